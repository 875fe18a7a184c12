//! The real machine: containers held by shims, a network of bridge and veth pairs, root file
//! systems, downloads, checks. What blocks is done on threads; what the shims say is heard by one.
//!
//! All that it has can be found again: a container is a folder with a shim's socket in it, its
//! network is in the kernel under its name, its ids are in its spec. So an agent that starts takes
//! hold of what is known, and removes the rest.

mod ids;
mod make;
mod pool;
mod shim_poller;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};
use volvox_host::sync::lock;
use volvox_protocol::limits::RESULT_BYTES;

use self::ids::IdRanges;
use self::pool::ThreadPool;
use self::shim_poller::{ShimEvent, ShimPoller};
use super::files::{ContainerFiles, Ids};
use super::net::{Attached, CellNetwork, NetworkConfig};
use super::shim::{PATIENCE, Shim, ShimError, Shims};
use super::shim_timeouts::Waiting;
use super::transfer::{self, TransferConfig, Transfers};
use super::{check, image_mount};
use crate::container::exit::Exit;
use crate::container::guid::ContainerGuid;
use crate::container::network::ContainerNetwork;
use crate::container::op::{ContainerOp, OpOutcome};
use crate::container::runtime::{OutcomeSender, RecoveredState, Runtime, RuntimeError};
use crate::container::spec::{ContainerSpec, Hierarchy, LogLimits, LogLine};
use crate::container::step::{
    CheckOutcome, StepEvent, StepId, StepSignal, TransferFailure, Transferred,
};
use crate::image::cache::Cache;
use crate::image::cancel::Cancel;
use crate::image::fetch::{FetchConfig, Fetcher};
use crate::image::layers::{LayerHold, LayerStore};
use crate::image::rootfs::RootfsConfig;
use crate::shim::wire::ShimRequest;

/// Containers that are made or taken away at a time.
const MAKING: usize = 8;
/// Containers that are taken hold of, or removed, at a time when an agent starts. They mostly wait.
const TAKING_HOLD: usize = 16;
/// Transfers under way, waiting ones included. Those that move bytes are fewer.
const TRANSFERRING: usize = 64;
/// Checks at a time.
const CHECKING: usize = 64;
/// How long a shim may say nothing.
pub const QUIET_FOR: Duration = Duration::from_secs(30);
/// How often layers of downloads that nobody uses are removed.
const SWEEP: Duration = Duration::from_secs(600);

/// How a machine is to hold containers.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Where containers, layers and downloads are kept.
    pub state: PathBuf,
    /// The program `volvox-shim`.
    pub shim: PathBuf,
    /// The network.
    pub network: NetworkConfig,
    /// Root file systems.
    pub rootfs: RootfsConfig,
    /// Downloads.
    pub fetch: FetchConfig,
    /// How many transfers, and how large.
    pub transfers: TransferConfig,
    /// Bytes of the download cache.
    pub cache_bytes: u64,
    /// Whether `privileged` may be asked for.
    pub allow_privileged: bool,
    /// The folder of certificates that definitions may have mounted.
    pub certificates: Option<PathBuf>,
    /// How output is kept; the rate is the definition's.
    pub log: LogLimits,
    /// How long shims may be silent.
    pub silence: ShimTimeouts,
}

/// How long shims may be silent. Containers whose shim hangs are ended, and count as failed: nobody could
/// stop them or hear of their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShimTimeouts {
    /// How long one may take to answer. Then the conversation is begun anew, once.
    pub answer_within: Duration,
    /// One that has said nothing for so long is asked how it is.
    pub quiet_for: Duration,
}

impl Default for ShimTimeouts {
    fn default() -> Self {
        ShimTimeouts { answer_within: PATIENCE, quiet_for: QUIET_FOR }
    }
}

/// The machine, as the executor sees it.
#[derive(Debug)]
pub struct Machine {
    shared: Arc<MachineShared>,
    making: ThreadPool,
    transferring: ThreadPool,
    checking: ThreadPool,
}

/// What the threads share.
#[derive(Debug)]
struct MachineShared {
    config: MachineConfig,
    shims: Shims,
    cgroups: Hierarchy,
    network: Mutex<CellNetwork>,
    transfers: Transfers,
    ids: Mutex<IdRanges>,
    watch: OnceLock<ShimPoller>,
    outcomes: OnceLock<OutcomeSender>,
    held: Mutex<BTreeMap<ContainerGuid, ContainerAccess>>,
    /// Those that are being taken away: nobody takes hold of them again.
    leaving: Mutex<BTreeSet<ContainerGuid>>,
    swept_at: Mutex<Instant>,
    cancels: Mutex<BTreeMap<(ContainerGuid, Option<StepId>), Cancel>>,
}

/// What leads into a container that is there.
#[derive(Debug)]
struct ContainerAccess {
    files: Arc<ContainerFiles>,
    /// Layers that it has mounted.
    _holds: Vec<LayerHold>,
}

/// What an agent that starts finds.
#[derive(Debug)]
enum Found<'a> {
    /// A container that it is to go on with.
    Known(&'a ContainerGuid),
    /// One that is to go.
    Unknown(&'a str),
}

impl Machine {
    /// Sets the machine up: folders, network, cgroups. Containers that are there are left alone.
    pub fn open(config: MachineConfig) -> Result<Self, RuntimeError> {
        let folder = |name: &str| config.state.join(name);
        let fetcher =
            Fetcher::new(config.fetch.clone()).map_err(RuntimeError::doing("set downloads up"))?;
        let cache = Cache::open(&folder("cache"), config.cache_bytes)
            .map_err(RuntimeError::doing("open the cache"))?;
        let layers =
            LayerStore::open(&folder("layers")).map_err(RuntimeError::doing("open the layers"))?;
        let network = CellNetwork::open(config.network.clone())
            .map_err(RuntimeError::doing("open the network"))?;
        let cgroups = Hierarchy::detect().map_err(RuntimeError::doing("find the cgroups"))?;
        let transfers = Transfers::new(fetcher, cache, Arc::new(layers), config.transfers);
        let shared = MachineShared {
            shims: Shims::new(&folder("containers"), &config.shim)
                .with_patience(config.silence.answer_within),
            cgroups,
            network: Mutex::new(network),
            transfers,
            ids: Mutex::default(),
            watch: OnceLock::new(),
            outcomes: OnceLock::new(),
            held: Mutex::default(),
            leaving: Mutex::default(),
            swept_at: Mutex::new(Instant::now()),
            cancels: Mutex::default(),
            config,
        };
        Ok(Machine {
            shared: Arc::new(shared),
            making: ThreadPool::new("containers", MAKING),
            transferring: ThreadPool::new("transfers", TRANSFERRING),
            checking: ThreadPool::new("checks", CHECKING),
        })
    }

    /// Removes the network and the mounts of a cell that has no containers any more. What cannot be
    /// removed does not keep the rest.
    pub fn remove(config: MachineConfig) -> Result<(), RuntimeError> {
        Shims::new(&config.state, &config.shim).close();
        let mounts = config.state.join("layers").join("mounts");
        let mut done = CellNetwork::open(config.network)
            .and_then(CellNetwork::destroy)
            .map_err(RuntimeError::doing("remove the network"));
        for entry in std::fs::read_dir(mounts).into_iter().flatten().flatten() {
            let unmounted = image_mount::unmount(&entry.path())
                .map_err(RuntimeError::doing("remove a mounted image"));
            done = done.and(unmounted);
        }
        done
    }

    /// Begins to hear the shims.
    fn listen(&self) -> io::Result<()> {
        let shared = Arc::downgrade(&self.shared);
        let pool = self.making.clone();
        let watch = ShimPoller::start(self.shared.config.silence, move |heard| {
            let Some(shared) = shared.upgrade() else { return };
            match heard {
                ShimEvent::Lost(guid, asked) => pool.run(move || shared.lost(&guid, asked)),
                ShimEvent::Step(guid, event) => shared.hear(guid, event),
            }
        })?;
        let _ = self.shared.watch.set(watch);
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(watch) = self.shared.watch.get() {
            watch.stop();
        }
    }
}

impl Runtime for Machine {
    fn find(
        &mut self,
        known: &BTreeSet<ContainerGuid>,
        outcomes: &OutcomeSender,
    ) -> Result<BTreeMap<ContainerGuid, RecoveredState>, RuntimeError> {
        let _ = self.shared.outcomes.set(outcomes.clone());
        self.listen().map_err(RuntimeError::doing("listen to the shims"))?;
        let names: BTreeSet<String> = known.iter().map(|it| it.as_str().to_owned()).collect();
        let recovered = lock(&self.shared.network)
            .recover(&names)
            .map_err(RuntimeError::doing("recover the network"))?;
        let there = self.shared.shims.list().map_err(RuntimeError::doing("find containers"))?;
        let (ours, unknown): (BTreeSet<String>, BTreeSet<String>) =
            there.into_iter().partition(|name| names.contains(name));
        for spec in unknown.iter().filter_map(|name| self.shared.shims.spec(name)) {
            lock(&self.shared.ids).found(spec.first_id);
        }
        let ours = known.iter().filter(|guid| ours.contains(guid.as_str())).map(Found::Known);
        let found = ours.chain(unknown.iter().map(|name| Found::Unknown(name))).collect();
        let standings = self
            .shared
            .take_hold_of_all(found, &recovered.attached)
            .map_err(RuntimeError::doing("take hold of containers"))?;
        self.shared.sweep();
        info!(known = known.len(), found = standings.len(), "containers found");
        Ok(standings)
    }

    fn perform(&mut self, container: &ContainerGuid, deed: ContainerOp) {
        let (shared, guid) = (Arc::clone(&self.shared), container.clone());
        match deed {
            ContainerOp::Make(plan) => {
                let cancel = shared.cancel_for(&guid, None);
                self.making.run(move || {
                    let made = guarded(|| make::make(&shared, &guid, &plan, &cancel));
                    let outcome = match made.unwrap_or_else(Err) {
                        Ok(facts) => OpOutcome::Made(facts),
                        Err(reason) => OpOutcome::NotMade(reason),
                    };
                    shared.done(&guid, None);
                    shared.tell(guid, outcome);
                });
            }
            ContainerOp::Abandon => drop(shared.cancel(&guid, None)),
            ContainerOp::Destroy => self.making.run(move || {
                let destroyed = guarded(|| make::destroy(&shared, &guid));
                let outcome = match destroyed.unwrap_or_else(Err) {
                    Ok(()) => OpOutcome::Destroyed,
                    Err(reason) => OpOutcome::DestroyFailed(reason),
                };
                shared.tell(guid, outcome);
            }),
            ContainerOp::Spawn(process) => {
                let step = StepId(process.id);
                if !shared.watch().start_process(&guid, step, &ShimRequest::Run(*process)) {
                    let error = "the container's shim was lost".to_owned();
                    // Not from this thread, which empties the queue that it would wait for.
                    self.making.run(move || {
                        shared.tell(guid, OpOutcome::Step(StepEvent::SpawnFailed { step, error }))
                    });
                }
            }
            ContainerOp::Signal(step, signal) => {
                let signal = match signal {
                    StepSignal::Term => libc::SIGTERM,
                    StepSignal::Kill => libc::SIGKILL,
                };
                shared.watch().ask(&guid, &ShimRequest::Signal(step.0, signal));
            }
            ContainerOp::ForgetExit(id) => shared.watch().ask(&guid, &ShimRequest::Forget(id)),
            ContainerOp::Log(line) => shared.log(&guid, line),
            ContainerOp::Download(step, action) => {
                self.transfer(guid, step, move |transfers, files, cancel| {
                    transfer::download(&action, transfers, files, cancel)
                });
            }
            ContainerOp::Upload(step, action) => {
                self.transfer(guid, step, move |transfers, files, cancel| {
                    transfer::upload(&action, transfers, files, cancel)
                });
            }
            ContainerOp::CancelTransfer(step) => {
                // One that runs tells its own end; of one that is not known it is told here.
                if !shared.cancel(&guid, Some(step)) {
                    let result = Err(TransferFailure::Fetch);
                    let event = StepEvent::TransferDone { step, result };
                    self.making.run(move || shared.tell(guid, OpOutcome::Step(event)));
                }
            }
            ContainerOp::Check { step, check, timeout } => {
                let cancel = shared.cancel_for(&guid, Some(step));
                self.checking.run(move || {
                    let outcome = guarded(|| match shared.address(&guid) {
                        Some(address) => check::check(&check, address, timeout, &cancel),
                        None => CheckOutcome::CouldNotRun("the container is gone".to_owned()),
                    });
                    let outcome = outcome.unwrap_or_else(CheckOutcome::CouldNotRun);
                    shared.done(&guid, Some(step));
                    let event = StepEvent::CheckResult { step, outcome };
                    shared.tell(guid, OpOutcome::Step(event));
                });
            }
            ContainerOp::CancelCheck(step) => drop(shared.cancel(&guid, Some(step))),
            ContainerOp::ReadResult(path) => self.transferring.run(move || {
                let read = guarded(|| match shared.files(&guid) {
                    Some(files) => transfer::result_file(&files, &path, RESULT_BYTES)
                        .map_err(|error| error.to_string()),
                    None => Err("the container is gone".to_owned()),
                });
                shared.tell(guid, OpOutcome::ResultRead(read.unwrap_or_else(Err)));
            }),
        }
    }
}

impl Machine {
    fn transfer(
        &self,
        guid: ContainerGuid,
        step: StepId,
        work: impl FnOnce(&Transfers, &ContainerFiles, &Cancel) -> Result<Transferred, TransferFailure>
        + Send
        + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let cancel = shared.cancel_for(&guid, Some(step));
        self.transferring.run(move || {
            let result = guarded(|| match shared.files(&guid) {
                Some(files) => work(&shared.transfers, &files, &cancel),
                None => Err(TransferFailure::Copy("the container is gone".to_owned())),
            });
            let result = result.unwrap_or_else(|error| Err(TransferFailure::Copy(error)));
            shared.done(&guid, Some(step));
            shared.tell(guid, OpOutcome::Step(StepEvent::TransferDone { step, result }));
        });
    }
}

impl MachineShared {
    fn tell(&self, guid: ContainerGuid, outcome: OpOutcome) {
        if let Some(outcomes) = self.outcomes.get() {
            outcomes.tell(guid, outcome);
        }
    }

    fn watch(&self) -> &ShimPoller {
        self.watch.get().expect("find comes before everything else, and sets it")
    }

    fn hear(&self, guid: ContainerGuid, event: StepEvent) {
        self.tell(guid, OpOutcome::Step(event));
    }

    /// Takes hold of containers after a restart and removes those that are not known, several at a
    /// time: those that hang, or are only slow, are not to hold up the others.
    fn take_hold_of_all(
        &self,
        found: Vec<Found<'_>>,
        attached: &BTreeMap<String, Attached>,
    ) -> Result<BTreeMap<ContainerGuid, RecoveredState>, ShimError> {
        let standings = pool::side_by_side("find", TAKING_HOLD, found, |it| match it {
            Found::Known(guid) => {
                let standing = self.attach(guid, attached.get(guid.as_str()))?;
                Ok(Some((guid.clone(), standing)))
            }
            Found::Unknown(name) => {
                self.remove_unknown(name);
                Ok(None)
            }
        });
        Ok(standings?.into_iter().flatten().collect())
    }

    /// Takes hold of a container after a restart.
    fn attach(
        &self,
        guid: &ContainerGuid,
        attached: Option<&Attached>,
    ) -> Result<RecoveredState, ShimError> {
        let name = guid.as_str();
        let dead = || RecoveredState::Dead { exited: self.recorded(guid) };
        let Some(spec) = self.shims.spec(name) else { return Ok(dead()) };
        lock(&self.ids).found(spec.first_id);
        let (status, shim) = match self.shims.ask_again(name, Waiting::at_start()) {
            Ok(found) => found,
            // It is our own trouble, not the container's.
            Err(error @ ShimError::Io { .. }) => return Err(error),
            Err(error) => {
                warn!(container = %guid, %error, "a container has died while no agent ran");
                self.kill_shim(guid);
                return Ok(dead());
            }
        };
        if attached.is_none() || status.init == 0 {
            warn!(container = %guid, "a container has lost its network or its first process");
            return Ok(dead());
        }
        let held = self.hold(guid, shim, &spec, self.layers_of(&spec));
        if let Err(error) = held {
            warn!(container = %guid, %error, "a container cannot be held");
            return Ok(dead());
        }
        let exited = status.exited.into_iter().map(|exit| (exit.id, exit));
        Ok(RecoveredState::Alive {
            running: status.running.into_iter().collect(),
            exited: exited.collect(),
        })
    }

    /// A shim does not answer. It may have died; it may have cut us off, and then we come back. No
    /// exit is missed: those that we have not heard are in its status, or on the disk.
    fn lost(&self, guid: &ContainerGuid, asked: Vec<StepId>) {
        if lock(&self.leaving).contains(guid) {
            return;
        }
        let (running, exited, shim) = match self.shims.ask_again(guid.as_str(), Waiting::at_work())
        {
            Ok((status, shim)) => {
                let exited = status.exited.into_iter().map(|exit| (exit.id, exit));
                (status.running, exited.collect(), Some(shim))
            }
            Err(error) => {
                debug!(container = %guid, %error, "a shim was lost");
                // It may hang. Then nobody would hear of its container any more, and nobody could stop it.
                self.kill_shim(guid);
                (Vec::new(), self.recorded(guid), None)
            }
        };
        // Before anything is told: the executor logs and signals when it hears of it, and without a
        // conversation nobody would do that. An end that is heard from now on may come before its
        // start is told below, and steps take it as both.
        let held = match (shim, self.shims.spec(guid.as_str())) {
            (Some(shim), Some(spec)) => {
                let layers = self.layers_of(&spec);
                self.hold(guid, shim, &spec, layers).is_ok()
            }
            (_, _) => false,
        };
        for step in asked {
            let started = running.contains(&step.0) || exited.contains_key(&step.0);
            let event = if started {
                StepEvent::ProcessStarted(step)
            } else {
                let error = "the container's shim was lost".to_owned();
                StepEvent::SpawnFailed { step, error }
            };
            self.hear(guid.clone(), event);
        }
        for exit in exited.into_values() {
            self.hear(guid.clone(), StepEvent::ProcessExited(exit));
        }
        if !held {
            self.tell(guid.clone(), OpOutcome::Gone);
        }
    }

    /// Whoever takes the container away tries it again.
    fn kill_shim(&self, guid: &ContainerGuid) {
        if let Err(error) = self.shims.kill(guid.as_str()) {
            error!(container = %guid, %error, "a shim that hangs cannot be ended");
        }
    }

    fn recorded(&self, guid: &ContainerGuid) -> BTreeMap<u32, Exit> {
        match self.shims.recorded_exits(guid.as_str()) {
            Ok(exits) => exits,
            Err(error) => {
                error!(container = %guid, %error, "exit records cannot be read");
                BTreeMap::new()
            }
        }
    }

    /// Keeps the conversation with a container's shim, and a way into its files.
    fn hold(
        &self,
        guid: &ContainerGuid,
        mut shim: Shim,
        spec: &ContainerSpec,
        holds: Vec<LayerHold>,
    ) -> Result<(), ShimError> {
        let init = shim.status()?.init;
        let gone = |source: io::Error| ShimError::Gone { id: spec.id.clone(), source };
        let ids = Ids { first: if spec.privileged { 0 } else { spec.first_id }, count: spec.ids };
        let files = ContainerFiles::of_process(init, ids)
            .map_err(|error| gone(io::Error::other(error.to_string())))?;
        // The number may have been given to another process before the root was opened.
        if shim.status()?.init != init || init == 0 {
            return Err(gone(io::Error::other("its first process is gone")));
        }
        let held = ContainerAccess { files: Arc::new(files), _holds: holds };
        // Whoever takes it away says so first, and lets go of it then: one of the two sees the other.
        lock(&self.held).insert(guid.clone(), held);
        if lock(&self.leaving).contains(guid) {
            lock(&self.held).remove(guid);
            return Err(gone(io::Error::other("it is being taken away")));
        }
        let (connection, exits) = shim.into_connection();
        self.watch().hold(guid, connection).map_err(gone)?;
        for exit in exits {
            self.hear(guid.clone(), StepEvent::ProcessExited(exit));
        }
        Ok(())
    }

    /// Holds the layers that a container has mounted, as its spec tells.
    fn layers_of(&self, spec: &ContainerSpec) -> Vec<LayerHold> {
        let layers = self.transfers.layers();
        spec.binds.iter().filter_map(|bind| layers.hold(&bind.source)).collect()
    }

    fn log(&self, guid: &ContainerGuid, line: LogLine) {
        self.watch().ask(guid, &ShimRequest::Log(line));
    }

    /// Removes layers of downloads that no container has mounted any more.
    fn sweep(&self) {
        *lock(&self.swept_at) = Instant::now();
        match self.transfers.layers().remove_unused() {
            Ok(0) => {}
            Ok(layers) => info!(layers, "removed unused layers"),
            Err(error) => warn!(%error, "unused layers cannot be removed"),
        }
    }

    fn sweep_if_due(&self) {
        let is_due = lock(&self.swept_at).elapsed() > SWEEP;
        if is_due {
            self.sweep();
        }
    }

    fn release(&self, guid: &ContainerGuid) {
        lock(&self.held).remove(guid);
        if let Some(watch) = self.watch.get() {
            watch.release(guid);
        }
    }

    /// Removes a container that nobody knows: an agent died before it had written it down, or its
    /// record was lost.
    fn remove_unknown(&self, name: &str) {
        warn!(container = name, "removing a container that is not known");
        let guid = volvox_protocol::id::InstanceGuid::new(name).map(ContainerGuid::from);
        let removed = match guid {
            Ok(guid) => make::destroy(self, &guid),
            // No container of ours has such a name.
            Err(_) => return,
        };
        if let Err(error) = removed {
            error!(container = name, error, "a container that is not known cannot be removed");
        }
    }

    fn files(&self, guid: &ContainerGuid) -> Option<Arc<ContainerFiles>> {
        lock(&self.held).get(guid).map(|held| Arc::clone(&held.files))
    }

    fn address(&self, guid: &ContainerGuid) -> Option<std::net::Ipv4Addr> {
        lock(&self.network).attached_of(guid.as_str()).map(|it| it.address)
    }

    fn facts(&self, attached: &Attached) -> ContainerNetwork {
        make::facts(self.host_address(), attached)
    }

    fn host_address(&self) -> IpAddr {
        self.config.network.host_address
    }

    fn files_of(&self, guid: &ContainerGuid) -> PathBuf {
        self.config.state.join("files").join(guid.as_str())
    }

    fn take_ids(&self) -> Option<u32> {
        lock(&self.ids).take()
    }

    fn give_back_ids(&self, first: u32) {
        lock(&self.ids).give_back(first);
    }

    // Cancelling.

    fn cancel_for(&self, guid: &ContainerGuid, step: Option<StepId>) -> Cancel {
        let cancel = Cancel::new();
        lock(&self.cancels).insert((guid.clone(), step), cancel.clone());
        cancel
    }

    /// Cancels what is under way. False when nothing is.
    fn cancel(&self, guid: &ContainerGuid, step: Option<StepId>) -> bool {
        let known = lock(&self.cancels).get(&(guid.clone(), step)).cloned();
        if let Some(cancel) = &known {
            cancel.cancel();
        }
        known.is_some()
    }

    fn done(&self, guid: &ContainerGuid, step: Option<StepId>) {
        lock(&self.cancels).remove(&(guid.clone(), step));
    }
}

/// Whoever waits for an outcome gets one, even when we have made a mistake.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .map_err(|_| "an internal error; the agent's log has the details".to_owned())
}
