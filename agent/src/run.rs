//! The agent at work: builds the machine and the executor, and serves until the process ends. It may
//! be killed at any time; the containers go on, and the next one finds them.

use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{info, warn};
use volvox_mesh::driver::Mesh;

use crate::config::{AgentConfig, own_address};
use crate::executor::driver::ExecutorHandle;
use crate::executor::store::ContainerRecords;
use crate::rep::driver::{Entrance, Parts, RepHandle};
use crate::rep::store::Assignments;
use crate::runtime::machine::Machine;
use crate::runtime::shim::Shims;
use crate::{control, gossip, streams};

/// How often an agent that is no member looks whether it has become one.
const LOOK_FOR_MEMBERSHIP: Duration = Duration::from_secs(1);

/// How often an agent that found its address out looks whether it is still the same.
const LOOK_AT_ADDRESS: Duration = Duration::from_secs(5);

/// Runs the agent, until it is told to end or has been evacuated. Containers go on without it.
pub fn run(config: &AgentConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(32)
        .enable_all()
        .build()
        .context("start the runtime")?;
    // Before anything else: a signal that comes while we start is not to be missed.
    let signals = runtime.block_on(async { Signals::new() })?;
    let executor = open(config)?;
    let member: Membership = Arc::default();
    let service = control::Service {
        executor: executor.clone(),
        member: Arc::clone(&member),
        runtime: runtime.handle().clone(),
        containers: config.machine.state.join("containers"),
    };
    if let Some(listen) = config.metrics_listen {
        let service = service.clone();
        std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || control::metrics::serve(listen, service))
            .context("serve the metrics")?;
    }
    let listener = control::listen(&config.socket())?;
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || control::serve(&listener, &service))
        .context("serve the socket")?;
    let cell_id = &config.settings.cell_id;
    info!(%cell_id, socket = %config.socket().display(), "agent ready");
    let lived = runtime.block_on(live(config, executor, &member, signals));
    runtime.shutdown_timeout(Duration::from_secs(2));
    match lived? {
        End::Over => Ok(()),
        End::Moved => begin_anew(),
    }
}

/// Why a life of the agent is over.
enum End {
    /// It was told to, or the cell is empty.
    Over,
    /// The machine has another address: rules and what is told of containers follow from it.
    Moved,
}

/// Becomes the same program again, as after a restart; the containers go on.
fn begin_anew() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os();
    let named = arguments.next().unwrap_or_default();
    let own = std::env::current_exe().context("find this program")?;
    Err(std::process::Command::new(own).arg0(named).args(arguments).exec())
        .context("begin anew with another address")
}

/// Waits until this machine is reached by another address than it was at the start. At a boot that is
/// when the network comes up: the agent does not wait for it.
async fn moved(config: &AgentConfig) {
    if !config.address_is_found {
        return std::future::pending().await;
    }
    let was = config.machine.network.host_address;
    loop {
        tokio::time::sleep(LOOK_AT_ADDRESS).await;
        let is = own_address();
        if is != was && !is.is_loopback() {
            info!(%was, %is, "this machine has another address: the agent begins anew");
            return;
        }
    }
}

/// The rep and the mesh, once this machine is a member.
#[derive(Clone)]
pub struct CellMember {
    /// What represents the containers.
    pub rep: RepHandle,
    /// The mesh.
    pub mesh: Mesh,
}

/// Filled when the machine is a member.
pub type Membership = Arc<OnceLock<CellMember>>;

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    evacuate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("hear SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("hear SIGINT")?,
            evacuate: signal(SignalKind::user_defined1()).context("hear SIGUSR1")?,
        })
    }
}

/// One life: becomes a member when it can, and ends when it is told to.
async fn live(
    config: &AgentConfig,
    executor: ExecutorHandle,
    membership: &Membership,
    mut signals: Signals,
) -> anyhow::Result<End> {
    let (evacuated, mut is_evacuated) = oneshot::channel();
    let begun = begin(config, executor, membership, evacuated);
    tokio::select! {
        begun = begun => begun?,
        _ = signals.terminate.recv() => return Ok(End::Over),
        _ = signals.interrupt.recv() => return Ok(End::Over),
    }
    notify(&[NotifyState::Ready]);
    let mut stopping = false;
    let mut moved = std::pin::pin!(moved(config));
    loop {
        tokio::select! {
            evacuated = &mut is_evacuated => {
                // Whoever looks after us is to start another. What kept this machine from being a
                // member after it had joined was logged, and may be over by then.
                evacuated.context("the rep has ended, or could not begin")?;
                // Everybody may know: there is nothing here any more.
                if let Some(member) = membership.get() {
                    member.mesh.leave().await;
                }
                return Ok(End::Over);
            }
            _ = signals.evacuate.recv() => evacuate("SIGUSR1", membership),
            _ = signals.terminate.recv() => {
                if stopping || !config.evacuate_on_stop || membership.get().is_none() {
                    info!("SIGTERM: ending, the containers go on");
                    notify(&[NotifyState::Stopping]);
                    return Ok(End::Over);
                }
                stopping = true;
                notify(&[NotifyState::Stopping]);
                evacuate("SIGTERM", membership);
            }
            // systemd's word for a restart, see the unit: it must never evacuate.
            _ = signals.interrupt.recv() => {
                info!("SIGINT: ending, the containers go on");
                notify(&[NotifyState::Stopping]);
                return Ok(End::Over);
            }
            () = &mut moved => return Ok(End::Moved),
            () = watchdog(membership) => {}
        }
    }
}

fn evacuate(by: &str, membership: &Membership) {
    match membership.get() {
        Some(member) => {
            info!(by, "evacuating");
            member.rep.evacuate();
        }
        None => warn!(by, "cannot evacuate: this machine is no member of a mesh"),
    }
}

/// Becomes a member: at once if it has joined, or in the background as soon as it has.
async fn begin(
    config: &AgentConfig,
    executor: ExecutorHandle,
    membership: &Membership,
    evacuated: oneshot::Sender<()>,
) -> anyhow::Result<()> {
    if config.mesh.is_member() {
        return become_member(config, executor, membership, evacuated).await;
    }
    warn!(
        "this machine is no member of a mesh yet: volvox-agent join LINE, with a line of volvox join-token"
    );
    let (config, membership) = (config.clone(), Arc::clone(membership));
    tokio::spawn(async move {
        while !config.mesh.is_member() {
            tokio::time::sleep(LOOK_FOR_MEMBERSHIP).await;
        }
        if let Err(error) = become_member(&config, executor, &membership, evacuated).await {
            tracing::error!(error = format!("{error:#}"), "cannot become a member");
        }
    });
    Ok(())
}

async fn become_member(
    config: &AgentConfig,
    executor: ExecutorHandle,
    membership: &Membership,
    evacuated: oneshot::Sender<()>,
) -> anyhow::Result<()> {
    let assignments = Assignments::open(&config.assignments()).context("open what was assigned")?;
    let entrance = Entrance::new();
    let rep = entrance.handle();
    let shims = Shims::new(&config.machine.state.join("containers"), &config.machine.shim);
    let router = streams::register(gossip::router(rep.clone()), executor.clone(), shims);
    let mesh = gossip::start(&config.mesh, router).await?;
    let parts = Parts {
        settings: config.rep.clone(),
        self_test: config.self_test.clone(),
        executor,
        assignments,
        evacuated: Box::new(move || {
            let _ended = evacuated.send(());
        }),
    };
    entrance.start(parts, mesh.clone(), tokio::runtime::Handle::current())?;
    info!(address = %mesh.listens_at(), "member of the mesh");
    tokio::spawn(gossip::follow(mesh.clone(), config.mesh.info.clone(), rep.clone()));
    let _first = membership.set(CellMember { rep, mesh });
    Ok(())
}

/// Tells systemd for as long as the rep answers; for ever, if nobody asked to be told.
async fn watchdog(membership: &Membership) {
    let Some(every) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(every / 3);
    loop {
        tick.tick().await;
        let well = match membership.get().cloned() {
            None => true,
            Some(member) => tokio::task::spawn_blocking(move || member.rep.status().is_ok())
                .await
                .unwrap_or(false),
        };
        if well {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the rep does not answer: the watchdog is not told");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd could not be told");
    }
}

/// The machine and what is known of its containers.
pub(crate) fn open(config: &AgentConfig) -> anyhow::Result<ExecutorHandle> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "containers need root: run it as root");
    raise_open_files(config.settings.capacity.containers)?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o711);
    for folder in [&config.machine.state, &config.run_dir] {
        builder.create(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let records =
        ContainerRecords::open(&config.records()).context("open the executor's records")?;
    let machine = Machine::open(config.machine.clone())?;
    ExecutorHandle::open(config.settings.clone(), records, machine).context("open the executor")
}

/// Each container takes two descriptors: the conversation with its shim, and its root.
fn raise_open_files(containers: u32) -> anyhow::Result<()> {
    const OTHERS: u64 = 512;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    let needed = u64::from(containers) * 2 + OTHERS;
    anyhow::ensure!(
        hard >= needed,
        "{containers} containers need {needed} open files and this process may have {hard}: raise \
         the limit (LimitNOFILE= in a systemd unit), or lower capacity.containers"
    );
    Ok(())
}
