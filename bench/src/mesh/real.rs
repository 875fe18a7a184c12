//! Real members: real sockets on loopback, real certificates, all in this process.
//!
//! Bytes are those of QUIC's packets with 28 more for IP and UDP each, as the connections count them.
//! A member that is to be killed has a runtime of its own, which is thrown away: it says nothing any
//! more, as after kill -9.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::broadcast::error::RecvError;
use volvox_bench::figures::{Figures, percentile};
use volvox_host::sync::lock;
use volvox_mesh::driver::{Mesh, MeshConfig, enrolment};
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::MemberEvent;
use volvox_mesh::profile::Profile;
use volvox_mesh::record::Content;
use volvox_mesh::request::Router;
use volvox_mesh::simulation::{sample_info, sample_load};
use volvox_mesh::tls::authority::{Authority, VALIDITY};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::NameConflict;
use volvox_mesh::transport::LinkInfo;
use volvox_protocol::id::CellId;

const PATIENCE: Duration = Duration::from_secs(120);
/// How long a quiet mesh, and a busy one, is watched.
const WATCH: Duration = Duration::from_secs(20);
/// How long a leaf is watched: it speaks seldom.
const WATCH_LEAF: Duration = Duration::from_secs(120);
/// How long it takes until news is no news any more.
const QUIET: Duration = Duration::from_secs(5);
const IP_AND_UDP: u64 = 28;

/// Measures what needs real endpoints.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let leaf = std::thread::spawn(metered);
    for members in [10, 50, 200] {
        measure(figures, members)?;
    }
    run_restarts(figures)?;
    let bits = leaf.join().map_err(|_| anyhow::anyhow!("measuring a leaf panicked"))??;
    figures.note("mesh.metered.idle.bits_per_s", bits, "bit/s");
    Ok(())
}

/// Measures what becomes of members that are killed alone, or start again.
pub(crate) fn run_restarts(figures: &mut Figures) -> anyhow::Result<()> {
    two_members(figures)?;
    coordinator_restart(figures)
}

fn measure(figures: &mut Figures, members: usize) -> anyhow::Result<()> {
    let victims = 5.min(members / 3);
    let memory = resident_kib();
    let mut fleet = Fleet::start(members, victims)?;
    let joined = fleet.wait_for_all(members)?;
    figures.note(&format!("mesh.join.{members}.s"), joined.as_secs_f64(), "s");
    fleet.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(10)).await });

    let (before, cpu) = (fleet.bytes(), cpu_seconds());
    fleet.runtime.block_on(async { tokio::time::sleep(WATCH).await });
    let per_second = |bytes: u64| per(bytes as f64, WATCH.as_secs_f64() * members as f64);
    figures.note(
        &format!("mesh.idle.{members}.bytes_per_s"),
        per_second(difference(&before, &fleet.bytes())),
        "B/s",
    );
    let cpu = (cpu_seconds() - cpu) / WATCH.as_secs_f64() / members as f64 * 100.0;
    figures.note(&format!("mesh.idle.{members}.cpu_percent"), cpu, "%");
    let resident = per((resident_kib() - memory) as f64, members as f64);
    if members == 200 {
        figures.note("mesh.rss_per_node.kib", resident, "KiB");
    }

    let (to_coordinator, to_most) = fleet.load_changes()?;
    for (nth, hundredths) in [("p50", 50), ("p99", 99)] {
        let name = format!("mesh.load_to_coordinator.{members}.{nth}_ms");
        figures.note(&name, percentile(&to_coordinator, hundredths), "ms");
    }
    let name = format!("mesh.load_to_99_percent.{members}.p50_ms");
    figures.note(&name, percentile(&to_most, 50), "ms");

    let before = fleet.bytes();
    fleet.change_every_second(WATCH);
    figures.note(
        &format!("mesh.busy.{members}.bytes_per_s"),
        per_second(difference(&before, &fleet.bytes())),
        "B/s",
    );

    let times = fleet.kill_victims()?;
    let name = format!("mesh.detect.{members}.s");
    figures.note(&name, percentile(&times, 90), "s");
    figures.note(&format!("mesh.detect.{members}.max_s"), percentile(&times, 100), "s");
    let alarms = *lock(&fleet.alarms);
    figures.note(&format!("mesh.false_alarms.{members}.real"), (alarms - times.len()) as f64, "");
    Ok(())
}

fn per(amount: f64, units: f64) -> f64 {
    amount / units
}

/// A mesh in this process. The first member is the coordinator.
struct Fleet {
    _folder: tempfile::TempDir,
    runtime: Runtime,
    meshes: Vec<Mesh>,
    victims: Vec<(Mesh, Runtime)>,
    /// Who was found missing by the coordinator, in number.
    alarms: Arc<Mutex<usize>>,
}

impl Fleet {
    fn start(members: usize, victims: usize) -> anyhow::Result<Fleet> {
        let folder = tempfile::tempdir()?;
        let authority =
            Authority::open(system_clock()(), &folder.path().join("authority"), VALIDITY)?;
        let authority = Arc::new(Mutex::new(authority));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let alarms = Arc::new(Mutex::new(0));
        let mut meshes: Vec<Mesh> = Vec::new();
        let mut doomed = Vec::new();
        for nth in 0..members {
            let kind = if nth == 0 { MemberKind::Coordinator } else { MemberKind::Cell };
            let name = format!("member-{nth}");
            let path = folder.path().join(&name);
            appoint(&authority, &path, kind, &name)?;
            let config = MeshConfig {
                folder: path,
                listen: ([127, 0, 0, 1], 0).into(),
                advertise: None,
                profile: Profile::lan(),
                seeds: meshes.first().iter().map(|c| c.listens_at().to_string()).collect(),
                enrolment: (nth == 0).then(|| enrolment(authority.clone())),
            };
            let service = Arc::new(Router::new());
            if nth > 0 && nth <= victims {
                let own = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
                let mesh = own.block_on(Mesh::start(config, service))?;
                doomed.push((mesh, own));
                continue;
            }
            let mesh = runtime.block_on(Mesh::start(config, service))?;
            if nth == 0 {
                let (mut events, alarms) = (mesh.subscribe(), alarms.clone());
                runtime.spawn(async move {
                    loop {
                        match events.recv().await {
                            Ok(MemberEvent::Missing { .. }) => {
                                *lock(&alarms) += 1;
                            }
                            Ok(_) | Err(RecvError::Lagged(_)) => {}
                            Err(RecvError::Closed) => return,
                        }
                    }
                });
            }
            meshes.push(mesh);
        }
        Ok(Fleet { _folder: folder, runtime, meshes, victims: doomed, alarms })
    }

    fn wait_for_all(&self, members: usize) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.runtime.block_on(async {
            loop {
                let mut all = true;
                for mesh in self.meshes.iter().chain(self.victims.iter().map(|(mesh, _)| mesh)) {
                    all &= mesh.status().await?.present == members;
                }
                if all {
                    return Ok(begun.elapsed());
                }
                if begun.elapsed() > PATIENCE {
                    bail!("not all {members} members know each other after {PATIENCE:?}");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }

    /// The bytes that all members have sent on each link that they have.
    fn bytes(&self) -> Sent {
        sent_by(self.meshes.iter().chain(self.victims.iter().map(|(mesh, _)| mesh)))
    }

    /// Times in milliseconds until a load is heard by the coordinator, and by 99 % of all.
    fn load_changes(&self) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
        let mut first = Vec::new();
        let mut most = Vec::new();
        for nth in 0..200usize {
            let cell = &self.meshes[1 + nth % (self.meshes.len() - 1)];
            // Members that all hear it are counted for some of them only: it takes seconds.
            let listeners = if nth % 20 == 0 { self.meshes.len() } else { 1 };
            if listeners > 1 {
                // What was said before is still on its way, within everybody's budget of bytes.
                self.runtime.block_on(async { tokio::time::sleep(QUIET).await });
            }
            // The cell itself hears nothing of its own load.
            let others = self.meshes[..listeners].iter().filter(|m| m.me() != cell.me());
            let mut subscriptions: Vec<_> = others.map(Mesh::subscribe).collect();
            let enough = (subscriptions.len() * 99).div_ceil(100);
            let free = 1_000 + u32::try_from(nth)?;
            let load = sample_load(cell.me().name.clone(), free);
            let begun = Instant::now();
            let times = self.runtime.block_on(async {
                cell.publish_load(load.clone()).await?;
                let mut times = Vec::new();
                for events in &mut subscriptions {
                    let heard = async {
                        loop {
                            match events.recv().await {
                                Ok(MemberEvent::Published(record))
                                    if record.content == Content::Load(load.clone()) =>
                                {
                                    return Ok(());
                                }
                                Ok(_) | Err(RecvError::Lagged(_)) => {}
                                Err(RecvError::Closed) => bail!("a member ended"),
                            }
                        }
                    };
                    let heard = tokio::time::timeout(Duration::from_secs(20), heard).await;
                    heard.context("a member did not hear of a load in 20 s")??;
                    times.push(begun.elapsed().as_secs_f64() * 1e3);
                    if times.len() >= enough {
                        break;
                    }
                }
                anyhow::Ok(times)
            })?;
            first.push(*times.first().context("the coordinator did not hear of a load")?);
            if listeners > 1 {
                most.push(times.iter().copied().fold(0.0, f64::max));
            }
        }
        Ok((first, most))
    }

    fn change_every_second(&self, span: Duration) {
        let end = Instant::now() + span;
        let mut free = 0;
        for cell in &self.meshes[1..] {
            let info = sample_info(cell.me().name.clone(), 1);
            let _ended = self.runtime.block_on(cell.publish_info(info));
        }
        while Instant::now() < end {
            let begun = Instant::now();
            free += 1;
            for cell in &self.meshes[1..] {
                let load = sample_load(cell.me().name.clone(), free);
                let _ended = self.runtime.block_on(cell.publish_load(load));
            }
            let rest = Duration::from_secs(1).saturating_sub(begun.elapsed());
            self.runtime.block_on(async { tokio::time::sleep(rest).await });
        }
    }

    /// Seconds from the end of each victim until the coordinator knows.
    fn kill_victims(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::new();
        for (mesh, runtime) in std::mem::take(&mut self.victims) {
            let mut events = self.meshes[0].subscribe();
            let victim = mesh.me().member;
            let begun = Instant::now();
            runtime.shutdown_background();
            let gone = async {
                loop {
                    match events.recv().await {
                        Ok(MemberEvent::Missing { identity, .. }) if identity.member == victim => {
                            return Ok(());
                        }
                        Ok(_) | Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => bail!("the coordinator ended"),
                    }
                }
            };
            self.runtime
                .block_on(async { tokio::time::timeout(PATIENCE, gone).await })
                .context("the coordinator did not find a killed member missing")??;
            times.push(begun.elapsed().as_secs_f64());
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
        }
        Ok(times)
    }
}

fn appoint(
    authority: &Mutex<Authority>,
    path: &Path,
    kind: MemberKind,
    name: &str,
) -> anyhow::Result<()> {
    let folder = MemberFolder::open(path)?;
    let key = folder.joining_key()?;
    let name = CellId::new(name)?;
    let mut authority = lock(authority);
    let issued =
        authority.appoint(system_clock()(), kind, name, key.public(), NameConflict::Refuse)?;
    let ca = authority.ca().clone();
    folder.store(&Credentials::new(key, issued.certificate, ca)?)?;
    Ok(())
}

/// Bytes by link: from whom, to whom.
type Sent = BTreeMap<(MemberId, MemberId), u64>;

fn sent_by<'a>(meshes: impl Iterator<Item = &'a Mesh>) -> Sent {
    let links = meshes.flat_map(|mesh| {
        let from = mesh.me().member;
        mesh.links().into_iter().map(move |link| (from, link))
    });
    let bytes = |link: &LinkInfo| link.sent_bytes + IP_AND_UDP * link.sent_packets;
    links.map(|(from, link)| ((from, link.member), bytes(&link))).collect()
}

/// What was sent between two looks. A link that ended meanwhile is left out, a new one counts whole.
fn difference(before: &Sent, after: &Sent) -> u64 {
    let since = |(link, bytes): (&(MemberId, MemberId), &u64)| {
        let old = before.get(link).copied().unwrap_or(0);
        if *bytes >= old { bytes - old } else { *bytes }
    };
    after.iter().map(since).sum()
}

/// One member of a small mesh, on a runtime of its own so that it can be killed.
struct Killable {
    mesh: Mesh,
    runtime: Runtime,
}

/// Starts a member at `listen`, which must be free soon: a process before may still hold the port.
fn start_at(
    path: &Path,
    listen: SocketAddr,
    seeds: Vec<String>,
    authority: Option<&Arc<Mutex<Authority>>>,
) -> anyhow::Result<Killable> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let begun = Instant::now();
    loop {
        let config = MeshConfig {
            folder: path.to_owned(),
            listen,
            advertise: None,
            profile: Profile::lan(),
            seeds: seeds.clone(),
            enrolment: authority.map(|authority| enrolment(authority.clone())),
        };
        match runtime.block_on(Mesh::start(config, Arc::new(Router::new()))) {
            Ok(mesh) => return Ok(Killable { mesh, runtime }),
            Err(error) if begun.elapsed() > PATIENCE => bail!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A lone cell and its coordinator: how soon each knows that the other was killed.
fn two_members(figures: &mut Figures) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for killed in [0, 1, 0, 1] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("authority");
        let authority = Authority::open(system_clock()(), &path, VALIDITY)?;
        let authority = Arc::new(Mutex::new(authority));
        let mut members = Vec::new();
        for (name, kind) in [("c", MemberKind::Coordinator), ("cell", MemberKind::Cell)] {
            let path = folder.path().join(name);
            appoint(&authority, &path, kind, name)?;
            let seeds = members.iter().map(|c: &Killable| c.mesh.listens_at().to_string());
            let seeds: Vec<String> = seeds.collect();
            let enrol = seeds.is_empty().then_some(&authority);
            members.push(start_at(&path, ([127, 0, 0, 1], 0).into(), seeds, enrol)?);
        }
        std::thread::sleep(QUIET);
        let victim = members.remove(killed);
        let other = members.remove(0);
        let mut events = other.mesh.subscribe();
        let begun = Instant::now();
        victim.runtime.shutdown_background();
        let gone = async {
            while !matches!(events.recv().await?, MemberEvent::Missing { .. }) {}
            anyhow::Ok(())
        };
        let gone = other.runtime.block_on(async { tokio::time::timeout(PATIENCE, gone).await });
        gone.context("one of two members was not found missing")??;
        times.push(begun.elapsed().as_secs_f64());
        other.runtime.shutdown_background();
    }
    figures.note("mesh.two_members.detect.s", percentile(&times, 100), "s");
    Ok(())
}

/// A coordinator is killed and started again at once: how soon it has a link to each cell, counted from
/// the moment at which it listens.
fn coordinator_restart(figures: &mut Figures) -> anyhow::Result<()> {
    const CELLS: usize = 100;
    let folder = tempfile::tempdir()?;
    let authority = Authority::open(system_clock()(), &folder.path().join("authority"), VALIDITY)?;
    let authority = Arc::new(Mutex::new(authority));
    let path = folder.path().join("c");
    appoint(&authority, &path, MemberKind::Coordinator, "c")?;
    let mut coordinator =
        start_at(&path, ([127, 0, 0, 1], 0).into(), Vec::new(), Some(&authority))?;
    let listen = coordinator.mesh.listens_at();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut cells = Vec::new();
    for nth in 0..CELLS {
        let name = format!("cell-{nth}");
        let path = folder.path().join(&name);
        appoint(&authority, &path, MemberKind::Cell, &name)?;
        let config = MeshConfig {
            folder: path,
            listen: ([127, 0, 0, 1], 0).into(),
            advertise: None,
            profile: Profile::lan(),
            seeds: vec![listen.to_string()],
            enrolment: None,
        };
        cells.push(runtime.block_on(Mesh::start(config, Arc::new(Router::new())))?);
    }
    let mut times = Vec::new();
    for _ in 0..3 {
        linked(&coordinator.mesh, CELLS, PATIENCE)?;
        // Peers are on its disk by then, and the mesh is quiet.
        std::thread::sleep(QUIET * 2);
        // As after kill -9: nothing is sent, and the port is free.
        let Killable { mesh, runtime } = coordinator;
        runtime.shutdown_background();
        drop(mesh);
        coordinator = start_at(&path, listen, Vec::new(), Some(&authority))?;
        times.extend(linked(&coordinator.mesh, CELLS, PATIENCE)?);
    }
    let name = "mesh.coordinator_restart.cells_back";
    figures.note(&format!("{name}.p50_ms"), percentile(&times, 50), "ms");
    figures.note(&format!("{name}.p99_ms"), percentile(&times, 99), "ms");
    Ok(())
}

/// Milliseconds until a member has a link to each of so many others.
fn linked(mesh: &Mesh, others: usize, patience: Duration) -> anyhow::Result<Vec<f64>> {
    let begun = Instant::now();
    let mut times = BTreeMap::new();
    while times.len() < others {
        ensure!(begun.elapsed() < patience, "{} of {others} links", times.len());
        for link in mesh.links() {
            times.entry(link.member).or_insert_with(|| begun.elapsed().as_secs_f64() * 1e3);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(times.into_values().collect())
}

/// Bits each second of a leaf that has nothing to say, both ways: a paid link counts both. It has links
/// to the coordinator and to two of three cells.
fn metered() -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::open(system_clock()(), &folder.path().join("authority"), VALIDITY)?;
    let authority = Arc::new(Mutex::new(authority));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut meshes: Vec<Mesh> = Vec::new();
    for name in ["c", "cell-1", "cell-2", "cell-3", "leaf"] {
        let kind = if name == "c" { MemberKind::Coordinator } else { MemberKind::Cell };
        let path = folder.path().join(name);
        appoint(&authority, &path, kind, name)?;
        let config = MeshConfig {
            folder: path,
            listen: ([127, 0, 0, 1], 0).into(),
            advertise: None,
            profile: if name == "leaf" { Profile::metered() } else { Profile::lan() },
            seeds: meshes.first().iter().map(|c| c.listens_at().to_string()).collect(),
            enrolment: (name == "c").then(|| enrolment(authority.clone())),
        };
        meshes.push(runtime.block_on(Mesh::start(config, Arc::new(Router::new())))?);
    }
    let leaf = meshes.last().context("there is no leaf")?.me().member;
    let of_leaf = |meshes: &[Mesh]| {
        let mut sent = sent_by(meshes.iter());
        sent.retain(|(from, to), _| *from == leaf || *to == leaf);
        sent
    };
    // A link that was made before all were known is kept for half a minute.
    std::thread::sleep(Duration::from_secs(10));
    let begun = Instant::now();
    let mut before = of_leaf(&meshes);
    while before.len() != 6 {
        let links = "a leaf has links to the coordinator and two cells";
        ensure!(begun.elapsed() < Duration::from_secs(60), "{links}: {before:?}");
        std::thread::sleep(Duration::from_millis(200));
        before = of_leaf(&meshes);
    }
    runtime.block_on(async { tokio::time::sleep(WATCH_LEAF).await });
    let sent = difference(&before, &of_leaf(&meshes));
    Ok(per(sent as f64 * 8.0, WATCH_LEAF.as_secs_f64()))
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |nth: usize| after.split_whitespace().nth(nth).and_then(|t| t.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}
