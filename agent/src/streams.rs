//! Logs and terminals of this cell's containers, for people far away: what a coordinator asks for is
//! served over the mesh, frame by frame, as fast as it is taken.
//!
//! Only coordinators may ask, and only for containers that the executor has. Who asked them, and whether
//! that person may, the coordinator has decided and written down.

mod log;
mod terminal;

use std::sync::Arc;
use std::time::Duration;

use volvox_mesh::identity::{MemberIdentity, MemberKind};
use volvox_mesh::request::{Router, RpcRefusal};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::stream::{OpenTerminal, ReadLog};

use crate::container::guid::ContainerGuid;
use crate::container::spec::is_container_id;
use crate::executor::driver::ExecutorHandle;
use crate::runtime::shim::Shims;

/// How often a stream with nothing to say says that it is there.
const STILL_HERE: Duration = Duration::from_secs(15);

/// Has this router answer for logs and terminals.
pub fn register(router: Router, executor: ExecutorHandle, shims: Shims) -> Router {
    let logs = Arc::new(ContainerLocator { executor, shims });
    let terminals = Arc::clone(&logs);
    router
        .on_stream(move |from, request: ReadLog| {
            let place = Arc::clone(&logs);
            async move {
                let guid = place.find(&from, &request.container).await?;
                log::open(place, guid, request).await
            }
        })
        .on_stream(move |from, request: OpenTerminal| {
            let place = Arc::clone(&terminals);
            async move {
                let guid = place.find(&from, &request.container).await?;
                tracing::info!(container = %guid, path = request.path, "a terminal is opened");
                terminal::open(place, guid, request).await
            }
        })
}

/// Where containers are found.
struct ContainerLocator {
    executor: ExecutorHandle,
    shims: Shims,
}

impl ContainerLocator {
    /// The container, if a coordinator asks for one of ours.
    async fn find(
        self: &Arc<Self>,
        from: &MemberIdentity,
        container: &str,
    ) -> Result<ContainerGuid, RpcRefusal> {
        if from.kind != MemberKind::Coordinator {
            return Err(RpcRefusal::NotAllowed("only a coordinator may ask for this".to_owned()));
        }
        let guid = InstanceGuid::new(container).ok().filter(|_| is_container_id(container));
        let guid =
            guid.ok_or_else(|| RpcRefusal::Malformed("no name of a container".to_owned()))?;
        let guid = ContainerGuid::from(guid);
        let (place, sought) = (Arc::clone(self), guid.clone());
        let found = blocking(move || place.executor.container(sought)).await?;
        match found {
            Ok(Some(_)) => Ok(guid),
            Ok(None) => {
                Err(RpcRefusal::Failed(format!("there is no container {guid} on this cell")))
            }
            Err(error) => Err(RpcRefusal::Failed(error.to_string())),
        }
    }
}

/// Does something that may wait, on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RpcRefusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| RpcRefusal::Failed("it panicked: see the agent's log".to_owned()))
}
