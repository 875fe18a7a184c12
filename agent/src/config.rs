//! The agent's configuration: a TOML file, every key with a default, checked as a whole. What is
//! wrong is told with its key and what would be right.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use volvox_mesh::profile::Profile;
use volvox_protocol::cell::{CellCapacity, RootfsProvider};
use volvox_protocol::id::CellId;
use volvox_protocol::tables::crash::CrashPolicy;

use crate::container::spec::LogLimits;
use crate::executor::logic::ExecutorSettings;
use crate::gossip::{self, AgentMeshConfig, CellFacts};
use crate::image::extract::Ownership;
use crate::image::fetch::FetchConfig;
use crate::image::limits::UnpackLimits;
use crate::image::rootfs::{HostRoot, Preloaded, RootfsConfig};
use crate::rep::{logic as rep, self_test};
use crate::runtime::machine::{MachineConfig, ShimTimeouts};
use crate::runtime::net::{Ipv4Network, NetworkConfig};
use crate::runtime::transfer::TransferConfig;

/// Every key with its default and what it means: what `volvox-agent config` prints.
pub const SAMPLE: &str = include_str!("config/sample.toml");

/// The metadata service of clouds; no container may ask it for the machine's keys.
const METADATA: &str = "169.254.0.0/16";

/// The file, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// The cell's name; by default the machine's.
    cell_id: String,
    /// Where containers, layers and downloads are kept; by default /var/lib/volvox/agent.
    state_dir: Option<PathBuf>,
    /// What a reboot may forget, and the socket; by default /run/volvox/agent.
    run_dir: Option<PathBuf>,
    /// The program `volvox-shim`; by default the one beside this program, or in ../lib/volvox.
    shim: Option<PathBuf>,
    /// Instances of one process are spread over zones.
    zone: Zone,
    /// Only work that asks for all of these is placed here.
    placement_tags: Vec<String>,
    /// Work may ask for these, and need not.
    optional_placement_tags: Vec<String>,
    /// Where metrics are served; by default 127.0.0.1:8892, empty: nowhere.
    metrics_listen: Option<String>,
    /// Notes, shown with the cell.
    annotations: BTreeMap<String, String>,
    capacity: Capacity,
    mesh: MeshSection,
    rep: RepSection,
    self_test: SelfTestSection,
    network: NetworkSection,
    rootfs: RootfsSection,
    containers: ContainersSection,
    downloads: DownloadsSection,
}

/// A zone, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
struct Zone(String);

impl Default for Zone {
    fn default() -> Self {
        Zone("default".to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MeshSection {
    listen: SocketAddr,
    /// Where others reach this cell, `address:port`; empty: found out, and followed.
    advertise: String,
    profile: String,
    /// `host:port` of others, besides those of the join token.
    seeds: Vec<String>,
}

impl Default for MeshSection {
    fn default() -> Self {
        MeshSection {
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8_891)),
            advertise: String::new(),
            profile: "lan".to_owned(),
            seeds: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RepSection {
    evacuation_timeout_s: u64,
    evacuation_poll_ms: u64,
    /// Whether SIGTERM (systemctl stop) hands everything over first.
    evacuate_on_stop: bool,
    /// How long an instance that is to stop still serves, after routers could hear of it.
    drain_ms: u64,
    alone_after_ms: u64,
    pass_every_s: u64,
    crash_immediate_restarts: u32,
    crash_smallest_wait_s: u64,
    crash_largest_wait_s: u64,
    crash_give_up_after: u32,
    crash_reset_after_s: u64,
}

impl Default for RepSection {
    fn default() -> Self {
        let policy = CrashPolicy::default();
        RepSection {
            evacuation_timeout_s: 600,
            evacuation_poll_ms: 1_000,
            evacuate_on_stop: false,
            drain_ms: 500,
            alone_after_ms: 2_000,
            pass_every_s: 30,
            crash_immediate_restarts: policy.immediate_restarts,
            crash_smallest_wait_s: policy.smallest_wait.as_secs(),
            crash_largest_wait_s: policy.largest_wait.as_secs(),
            crash_give_up_after: policy.give_up_after,
            crash_reset_after_s: policy.reset_after.as_secs(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SelfTestSection {
    enabled: bool,
    every_s: u64,
    again_s: u64,
    run_within_s: u64,
    remove_within_s: u64,
    failures: u32,
    /// The root file system; empty: `host:`, or the first preloaded one.
    rootfs: String,
}

impl Default for SelfTestSection {
    fn default() -> Self {
        let usual = self_test::SelfTestSettings::default();
        SelfTestSection {
            enabled: true,
            every_s: usual.every.as_secs(),
            again_s: usual.again.as_secs(),
            run_within_s: usual.run_within.as_secs(),
            remove_within_s: usual.remove_within.as_secs(),
            failures: usual.failures,
            rootfs: String::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Capacity {
    /// By default all of the machine's.
    memory_mb: Option<u32>,
    /// By default what is free on the file system of `state_dir`, less the cache.
    disk_mb: Option<u32>,
    /// By default 250.
    containers: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NetworkSection {
    bridge: String,
    subnet: String,
    host_address: Option<IpAddr>,
    first_port: u16,
    last_port: u16,
    mtu: u32,
    deny: Vec<String>,
}

impl Default for NetworkSection {
    fn default() -> Self {
        NetworkSection {
            bridge: "volvox0".to_owned(),
            subnet: "10.255.0.0/16".to_owned(),
            host_address: None,
            first_port: 61_000,
            last_port: 65_000,
            mtu: 1_500,
            deny: vec![METADATA.to_owned()],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RootfsSection {
    /// Whether `host:` is offered.
    host: bool,
    /// Folders, archives and images that `preloaded:NAME` means.
    preloaded: BTreeMap<String, PathBuf>,
}

impl Default for RootfsSection {
    fn default() -> Self {
        RootfsSection { host: true, preloaded: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContainersSection {
    /// Whether definitions may ask for `privileged`.
    allow_privileged: bool,
    graceful_shutdown_s: u64,
    inodes: u64,
    log_file_mb: u64,
    log_files: u32,
    /// A folder of certificates that definitions may have mounted.
    certificates: Option<PathBuf>,
}

impl Default for ContainersSection {
    fn default() -> Self {
        ContainersSection {
            allow_privileged: false,
            graceful_shutdown_s: 10,
            inodes: 200_000,
            log_file_mb: 4,
            log_files: 3,
            certificates: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DownloadsSection {
    cache_mb: u64,
    at_a_time: usize,
    /// Folders below which `file:` URLs may read.
    file_folders: Vec<PathBuf>,
    /// Whether downloads may come from this machine's own addresses; for tests and mirrors.
    allow_local: bool,
}

impl Default for DownloadsSection {
    fn default() -> Self {
        let (cache_mb, at_a_time) = (10_240, 5);
        DownloadsSection { cache_mb, at_a_time, file_folders: Vec::new(), allow_local: false }
    }
}

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The executor's numbers.
    pub settings: ExecutorSettings,
    /// The machine.
    pub machine: MachineConfig,
    /// What a reboot may forget, and the socket.
    pub run_dir: PathBuf,
    /// The cell in the mesh.
    pub mesh: AgentMeshConfig,
    /// The rep's numbers.
    pub rep: rep::RepSettings,
    /// The self-test and its root file system; none: it is off.
    pub self_test: Option<(self_test::SelfTestSettings, String)>,
    /// Whether SIGTERM hands everything over first.
    pub evacuate_on_stop: bool,
    /// Where metrics are served, if they are.
    pub metrics_listen: Option<SocketAddr>,
    /// Whether the machine's address was found out, and may change.
    pub address_is_found: bool,
}

impl AgentConfig {
    /// Reads a file, or takes the defaults.
    pub fn read(path: Option<&Path>) -> anyhow::Result<AgentConfig> {
        let file = match path {
            None => ConfigFile::default(),
            Some(path) => {
                let named = || format!("configuration {}", path.display());
                let text = std::fs::read_to_string(path).with_context(named)?;
                toml::from_str(&text).with_context(named)?
            }
        };
        AgentConfig::check(file)
    }

    fn check(file: ConfigFile) -> anyhow::Result<AgentConfig> {
        let state = file.state_dir.unwrap_or_else(|| "/var/lib/volvox/agent".into());
        let run_dir = file.run_dir.unwrap_or_else(|| "/run/volvox/agent".into());
        for (key, path) in [("state_dir", &state), ("run_dir", &run_dir)] {
            ensure!(path.is_absolute(), "{key} = {path:?}: an absolute path is wanted");
        }
        let name = if file.cell_id.is_empty() { host_name()? } else { file.cell_id };
        let cell_id = CellId::new(&name).with_context(|| format!("cell_id = {name:?}"))?;
        let self_test = self_test_of(&file.self_test, &file.rootfs)?;
        let evacuate_on_stop = file.rep.evacuate_on_stop;
        let metrics_listen = match file.metrics_listen.as_deref() {
            None => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8_892))),
            Some("") => None,
            Some(text) => Some(text.parse().with_context(|| format!("metrics_listen = {text:?}"))?),
        };
        let cache_bytes = file.downloads.cache_mb.saturating_mul(1 << 20);
        let capacity = capacity(&file.capacity, &state, file.downloads.cache_mb)?;
        let info = CellFacts {
            cell_id: cell_id.clone(),
            zone: file.zone.0.clone(),
            capacity,
            rootfs_providers: providers(&file.rootfs),
            placement_tags: file.placement_tags.clone(),
            optional_placement_tags: file.optional_placement_tags.clone(),
            annotations: file.annotations.clone(),
        };
        let rep = rep_of(&file.rep, &info)?;
        let mesh = mesh_of(&file.mesh, &state, info)?;
        let address_is_found = file.network.host_address.is_none();
        let mut settings = ExecutorSettings::new(cell_id, capacity);
        let graceful = file.containers.graceful_shutdown_s;
        ensure!(
            (1..=3_600).contains(&graceful),
            "containers.graceful_shutdown_s = {graceful}: 1 to 3600 is wanted"
        );
        settings.steps.graceful_shutdown_interval = Duration::from_secs(graceful);
        settings.limits.inodes = file.containers.inodes;
        let shim = file.shim.map_or_else(shim_beside_us, Ok)?;
        ensure!(shim.is_file(), "shim = {shim:?}: no such program");
        let mut fetch =
            FetchConfig { file_folders: file.downloads.file_folders, ..FetchConfig::default() };
        if file.downloads.allow_local {
            fetch.http.denied.clear();
        }
        let at_a_time = file.downloads.at_a_time;
        ensure!(
            (1..=64).contains(&at_a_time),
            "downloads.at_a_time = {at_a_time}: 1 to 64 is wanted"
        );
        let network = network(&file.network)?;
        settings.host_address = Some(network.host_address);
        let machine = MachineConfig {
            shim,
            network,
            rootfs: rootfs(&file.rootfs)?,
            fetch,
            transfers: TransferConfig {
                downloads: at_a_time,
                uploads: at_a_time,
                ..TransferConfig::default()
            },
            cache_bytes,
            allow_privileged: file.containers.allow_privileged,
            certificates: file.containers.certificates,
            log: LogLimits {
                file_bytes: file.containers.log_file_mb.clamp(1, 1 << 20) << 20,
                files: file.containers.log_files.clamp(1, 100),
                bytes_per_second: None,
            },
            silence: ShimTimeouts::default(),
            state,
        };
        Ok(AgentConfig {
            settings,
            machine,
            run_dir,
            mesh,
            rep,
            self_test,
            evacuate_on_stop,
            metrics_listen,
            address_is_found,
        })
    }

    /// The socket that people on this machine use.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("agent.sock")
    }

    /// The folder of what the cell was assigned.
    pub fn assignments(&self) -> PathBuf {
        self.machine.state.join("rep")
    }

    /// The folder of what a restart needs to know.
    pub fn records(&self) -> PathBuf {
        self.run_dir.join("executor")
    }
}

/// The schemes that this cell can mount.
fn providers(given: &RootfsSection) -> Vec<RootfsProvider> {
    let provider = |name: &str, properties: Vec<String>| {
        let name = name.to_owned();
        RootfsProvider { name, properties }
    };
    let mut all = Vec::new();
    if given.host {
        all.push(provider("host", Vec::new()));
    }
    if !given.preloaded.is_empty() {
        all.push(provider("preloaded", given.preloaded.keys().cloned().collect()));
    }
    all
}

fn span(key: &str, given: u64, most: u64, unit: Duration) -> anyhow::Result<Duration> {
    ensure!((1..=most).contains(&given), "{key} = {given}: 1 to {most} is wanted");
    Ok(unit.saturating_mul(u32::try_from(given).unwrap_or(u32::MAX)))
}

fn rep_of(given: &RepSection, info: &CellFacts) -> anyhow::Result<rep::RepSettings> {
    const YEAR: u64 = 366 * 86_400;
    let seconds = |key: &str, given| span(key, given, YEAR, Duration::from_secs(1));
    let millis = |key: &str, given| span(key, given, 3_600_000, Duration::from_millis(1));
    ensure!(given.drain_ms <= 600_000, "rep.drain_ms = {}: 0 to 600000 is wanted", given.drain_ms);
    Ok(rep::RepSettings {
        drain: Duration::from_millis(given.drain_ms),
        offer: rep::CellCapabilities {
            rootfs_providers: info.rootfs_providers.clone(),
            volume_drivers: Vec::new(),
        },
        pass_every: seconds("rep.pass_every_s", given.pass_every_s)?,
        evacuate_every: millis("rep.evacuation_poll_ms", given.evacuation_poll_ms)?,
        evacuation_timeout: seconds("rep.evacuation_timeout_s", given.evacuation_timeout_s)?,
        alone_after: millis("rep.alone_after_ms", given.alone_after_ms)?,
        crash_policy: CrashPolicy {
            immediate_restarts: given.crash_immediate_restarts,
            smallest_wait: seconds("rep.crash_smallest_wait_s", given.crash_smallest_wait_s)?,
            largest_wait: seconds("rep.crash_largest_wait_s", given.crash_largest_wait_s)?,
            give_up_after: given.crash_give_up_after,
            reset_after: seconds("rep.crash_reset_after_s", given.crash_reset_after_s)?,
        },
        ..rep::RepSettings::new(info.cell_id.clone(), &info.zone)
    })
}

fn mesh_of(given: &MeshSection, state: &Path, info: CellFacts) -> anyhow::Result<AgentMeshConfig> {
    let named = &given.profile;
    let profile = Profile::named(named);
    let profile = profile
        .with_context(|| format!("mesh.profile = {named:?}: lan, wan or metered is wanted"))?;
    let advertise = match given.advertise.as_str() {
        "" => None,
        text => Some(text.parse().with_context(|| format!("mesh.advertise = {text:?}"))?),
    };
    Ok(AgentMeshConfig {
        folder: gossip::folder_of(state),
        listen: given.listen,
        advertise,
        profile,
        seeds: given.seeds.clone(),
        info,
    })
}

fn self_test_of(
    given: &SelfTestSection,
    rootfs: &RootfsSection,
) -> anyhow::Result<Option<(self_test::SelfTestSettings, String)>> {
    let seconds = |key: &str, given| span(key, given, 86_400, Duration::from_secs(1));
    let settings = self_test::SelfTestSettings {
        every: seconds("self_test.every_s", given.every_s)?,
        again: seconds("self_test.again_s", given.again_s)?,
        run_within: seconds("self_test.run_within_s", given.run_within_s)?,
        remove_within: seconds("self_test.remove_within_s", given.remove_within_s)?,
        failures: given.failures.max(1),
    };
    let url = match (&given.rootfs, rootfs.preloaded.keys().next()) {
        (url, _) if !url.is_empty() => url.clone(),
        (_, Some(name)) if !rootfs.host => format!("preloaded:{name}"),
        (_, None) if !rootfs.host => return Ok(None),
        _ => "host:".to_owned(),
    };
    Ok(given.enabled.then_some((settings, url)))
}

fn host_name() -> anyhow::Result<String> {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the host name")?;
    Ok(name.trim().replace('.', "-"))
}

/// Beside this program, or where a package puts what nobody calls by hand: `../lib/volvox`.
fn shim_beside_us() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    let beside = own.with_file_name("volvox-shim");
    let installed = own.parent().and_then(Path::parent).map(|it| it.join("lib/volvox/volvox-shim"));
    Ok(installed.filter(|it| !beside.is_file() && it.is_file()).unwrap_or(beside))
}

fn capacity(given: &Capacity, state: &Path, cache_mb: u64) -> anyhow::Result<CellCapacity> {
    let memory_mb = match given.memory_mb {
        Some(memory_mb) => memory_mb,
        None => machine_memory_mb()?,
    };
    let disk_mb = match given.disk_mb {
        Some(disk_mb) => disk_mb,
        None => {
            let there = state.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
            let stat = nix::sys::statvfs::statvfs(there)
                .with_context(|| format!("look at {}", there.display()))?;
            let free = stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20;
            u32::try_from(free.saturating_sub(cache_mb)).unwrap_or(u32::MAX)
        }
    };
    let containers = given.containers.unwrap_or(250);
    ensure!(
        (1..=4_000).contains(&containers),
        "capacity.containers = {containers}: 1 to 4000 is wanted"
    );
    Ok(CellCapacity { memory_mb, disk_mb, containers })
}

fn machine_memory_mb() -> anyhow::Result<u32> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = total.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    let kib = kib.context("no MemTotal in /proc/meminfo")?;
    Ok(u32::try_from(kib >> 10).unwrap_or(u32::MAX))
}

fn network(given: &NetworkSection) -> anyhow::Result<NetworkConfig> {
    let address = |text: &str, key: &str| -> anyhow::Result<Ipv4Network> {
        text.parse().with_context(|| format!("network.{key} = {text:?}"))
    };
    let (first, last) = (given.first_port, given.last_port);
    ensure!(
        first <= last && first > 0,
        "network.first_port = {first}, last_port = {last}: a range is wanted"
    );
    Ok(NetworkConfig {
        bridge: given.bridge.clone(),
        subnet: address(&given.subnet, "subnet")?,
        host_address: given.host_address.unwrap_or_else(own_address),
        port_range: first..=last,
        mtu: given.mtu,
        deny: given.deny.iter().map(|it| address(it, "deny")).collect::<anyhow::Result<_>>()?,
    })
}

/// The address that this machine would use to reach others; nothing is sent to find out.
pub(crate) fn own_address() -> IpAddr {
    let nobody = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(nobody).and_then(|()| socket.local_addr()));
    asked.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |it| it.ip())
}

fn rootfs(given: &RootfsSection) -> anyhow::Result<RootfsConfig> {
    let mut preloaded = BTreeMap::new();
    for (name, path) in &given.preloaded {
        if crate::image::rootfs::Rootfs::parse(&format!("preloaded:{name}")).is_err() {
            bail!("rootfs.preloaded.{name:?}: letters, digits, '.', '_' and '-' are wanted");
        }
        let found = Preloaded::detect(path);
        let found = found.with_context(|| format!("rootfs.preloaded.{name} = {path:?}"))?;
        preloaded.insert(name.clone(), found);
    }
    let host = if given.host { HostRoot::At("/".into()) } else { HostRoot::Forbidden };
    // Layers are mapped into each container as they are mounted: on disk an id is what it is inside.
    let ownership = Ownership::Shifted { uid_offset: 0, gid_offset: 0, ids: 65_536 };
    Ok(RootfsConfig { preloaded, host, ownership, limits: UnpackLimits::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<AgentConfig, String> {
        let shim = format!("shim = \"/proc/self/exe\"\n{text}");
        let file: ConfigFile = toml::from_str(&shim).map_err(|error| error.to_string())?;
        AgentConfig::check(file).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn nothing_said_is_a_whole_configuration() {
        let config = check("").unwrap();
        assert!(config.settings.capacity.memory_mb > 0);
        assert_eq!(config.machine.network.bridge, "volvox0");
        assert!(!config.machine.allow_privileged);
        assert_eq!(config.socket(), Path::new("/run/volvox/agent/agent.sock"));
    }

    #[test]
    fn the_sample_is_the_default() {
        // Keys whose default is the machine's are commented out: with them the sample is still good.
        let said: ConfigFile = toml::from_str(SAMPLE).unwrap();
        assert_eq!(said, ConfigFile::default());
        let all: String = SAMPLE
            .lines()
            .map(|line| line.strip_prefix("#= ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let all: ConfigFile = toml::from_str(&all).unwrap();
        assert!(all.state_dir.is_some() && all.capacity.memory_mb.is_some());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, told) in [
            ("cell_id = \"a b\"", "cell_id"),
            ("state_dir = \"here\"", "state_dir"),
            ("sate_dir = \"/x\"", "sate_dir"),
            ("[network]\nsubnet = \"10.0.0.0/99\"", "network.subnet"),
            ("[network]\nfirst_port = 9\nlast_port = 8", "first_port"),
            ("[network]\ndeny = [\"all\"]", "network.deny"),
            ("[capacity]\ncontainers = 0", "capacity.containers"),
            ("[containers]\ngraceful_shutdown_s = 0", "graceful_shutdown_s"),
            ("[downloads]\nat_a_time = 1000", "at_a_time"),
            ("[rootfs.preloaded]\nbase = \"/does/not/exist\"", "rootfs.preloaded.base"),
            ("[rootfs.preloaded]\n\"a/b\" = \"/\"", "a/b"),
        ] {
            let error = check(text).err().unwrap_or_default();
            assert!(error.contains(told), "{text:?} said {error:?}");
        }
    }
}
