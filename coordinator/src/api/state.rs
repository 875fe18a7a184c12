//! What the handlers share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, watch};
use volvox_mesh::tls::authority::Authority;

use super::access::Access;
use super::audit::Audit;
use super::metrics::Metrics;
use super::preauth::PreauthLimiter;
use super::quota::{Limits, Quota};
use super::route::Route;
use super::routes;
use super::tls::Tls;
use crate::bbs::hub::Hub;
use crate::driver::Bbs;
use crate::driver::cells::Cells;

/// What the API is made of.
pub struct Parts {
    /// The board.
    pub bbs: Bbs,
    /// Its events.
    pub hub: Hub,
    /// Who may call.
    pub access: Access,
    /// Who did what.
    pub audit: Audit,
    /// How much of everything.
    pub limits: Limits,
    /// The cells; none: a board without a mesh, for tests and benchmarks.
    pub cells: Option<Cells>,
    /// Who lets machines in; none: this coordinator does not.
    pub authority: Option<Arc<Mutex<Authority>>>,
    /// The data folder: the authority of client certificates is in it.
    pub data_dir: PathBuf,
    /// What the API shows who it is with; none: it does not, nowhere.
    pub tls: Option<Arc<Tls>>,
}

/// The API: what every handler may use.
pub struct Api {
    pub(crate) bbs: Bbs,
    pub(crate) hub: Hub,
    pub(crate) access: Access,
    pub(crate) audit: Audit,
    pub(crate) limits: Limits,
    pub(crate) cells: Option<Cells>,
    pub(crate) authority: Option<Arc<Mutex<Authority>>>,
    pub(crate) data_dir: PathBuf,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) quota: Quota,
    pub(crate) metrics: Metrics,
    pub(crate) routes: BTreeMap<&'static str, Route>,
    /// Bytes of bodies that may be in our hands at once.
    pub(crate) bodies: Arc<Semaphore>,
    /// Streams of events that may be open at once.
    pub(crate) streams: Arc<Semaphore>,
    /// Where connections wait that have not shown who they are.
    pub(crate) lobby: PreauthLimiter,
    /// Room for those that have.
    pub(crate) seats: Semaphore,
    pub(crate) stopping: watch::Sender<bool>,
    ready: AtomicBool,
}

impl Api {
    /// Puts it together.
    pub fn new(parts: Parts) -> Arc<Self> {
        let routes: BTreeMap<&'static str, Route> =
            routes::table().into_iter().map(|route| (route.path, route)).collect();
        let limits = parts.limits;
        Arc::new(Api {
            bbs: parts.bbs,
            hub: parts.hub,
            access: parts.access,
            audit: parts.audit,
            cells: parts.cells,
            authority: parts.authority,
            data_dir: parts.data_dir,
            tls: parts.tls,
            quota: Quota::new(limits.requests_per_second),
            metrics: Metrics::new(routes.values().map(|route| route.name)),
            routes,
            bodies: Arc::new(Semaphore::new(limits.bodies_bytes)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            lobby: PreauthLimiter::new(limits.strangers),
            seats: Semaphore::new(limits.connections),
            stopping: watch::Sender::new(false),
            ready: AtomicBool::new(false),
            limits,
        })
    }

    /// Says that everything is up.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Whether everything is up, and not going down.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !*self.stopping.borrow()
    }

    /// Begins to end: no new connections, streams of events end, calls under way are finished.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.hub.close();
    }
}
