//! The coordinator's configuration: a TOML file, every key with a default, checked as a whole. What is
//! wrong is told with its key and what would be right. `config/sample.toml` documents every key.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use serde::{Deserialize, Serialize};
use volvox_mesh::profile::Profile;
use volvox_protocol::id::CellId;
use volvox_protocol::tables::crash::CrashPolicy;

use crate::api::Limits;
use crate::api::access::Role;
use crate::api::tls::Certificate;
use crate::auction::settings::{AuctionSettings, ZonePolicy};
use crate::bbs::hub::HubLimits;
use crate::bbs::settings::BoardSettings;
use crate::callback::logic::CallbackSettings;
use crate::cells::CellsSettings;
use crate::cells::settings::HoldPolicy;

/// Every key with its default and what it means: what `volvox-coordinator config` prints.
pub const SAMPLE: &str = include_str!("config/sample.toml");

macro_rules! section {
    ($(#[$meta:meta])* $name:ident { $( $key:ident : $ty:ty = $default:expr ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name { $( $key: $ty ),* }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $key: $default ),* }
            }
        }
    };
}

section!(
    /// The file, as it is written.
    ConfigFile {
        data_dir: PathBuf = "/var/lib/volvox/coordinator".into(),
        name: String = String::new(),
        api: ApiSection = ApiSection::default(),
        events: EventsSection = EventsSection::default(),
        audit: AuditSection = AuditSection::default(),
        mesh: MeshSection = MeshSection::default(),
        cells: CellsSection = CellsSection::default(),
        auction: AuctionSection = AuctionSection::default(),
        convergence: ConvergenceSection = ConvergenceSection::default(),
        callbacks: CallbacksSection = CallbacksSection::default(),
        log: LogSection = LogSection::default(),
        shutdown: ShutdownSection = ShutdownSection::default(),
    }
);
section!(ApiSection {
    listen: Vec<String> = vec!["127.0.0.1:8889".to_owned()],
    socket: PathBuf = PathBuf::new(),
    tls: TlsSection = TlsSection::default(),
    certificates: BTreeMap<String, Role> = BTreeMap::new(),
    limits: LimitsSection = LimitsSection::default(),
});
section!(TlsSection {
    certificate: PathBuf = PathBuf::new(),
    key: PathBuf = PathBuf::new(),
    names: Vec<String> = Vec::new(),
    on_loopback: bool = false,
    client_ca: PathBuf = PathBuf::new(),
});
section!(LimitsSection {
    connections: u32 = 8_192,
    strangers: u32 = 1_024,
    header_s: u32 = 30,
    idle_s: u32 = 120,
    body_s: u32 = 30,
    stall_s: u32 = 30,
    call_s: u32 = 60,
    bodies_mb: u32 = 64,
    requests_per_second: u32 = 20_000,
});
section!(EventsSection {
    streams: u32 = 4_096,
    memory: u32 = 262_144,
    memory_mb: u32 = 256,
    heartbeat_s: u32 = 15,
});
section!(AuditSection { file_mb: u32 = 16, files: u32 = 8 });
section!(MeshSection {
    listen: String = "[::]:8890".to_owned(),
    advertise: String = String::new(),
    profile: String = "lan".to_owned(),
    seeds: Vec<String> = Vec::new(),
    certificate_days: u32 = 30,
});
section!(CellsSection {
    settle_s: u32 = 20,
    hold_share_percent: u32 = 30,
    hold_at_least: u32 = 3,
    hold_window_s: u32 = 30,
    hold_grace_s: u32 = 60,
    mismatch_s: u32 = 10,
    answer_s: u32 = 10,
});
section!(AuctionSection {
    zone_policy: String = "even".to_owned(),
    zones: Vec<String> = Vec::new(),
    starting_weight: u32 = 1,
    bin_pack_weight: u32 = 0,
    in_flight_starts: u32 = 0,
});
section!(ConvergenceSection {
    full_pass_s: u32 = 300,
    stale_after_s: u32 = 30,
    evacuation_timeout_s: u32 = 600,
    task_retries: u32 = 3,
    kick_task_after_s: u32 = 30,
    expire_pending_task_s: u32 = 1_800,
    expire_completed_task_s: u32 = 120,
    stuck_after_s: u32 = 600,
    definition_history: u32 = 10,
    definition_history_days: u32 = 30,
    crash_immediate_restarts: u32 = 3,
    crash_smallest_wait_s: u32 = 60,
    crash_largest_wait_s: u32 = 960,
    crash_give_up_after: u32 = 200,
    crash_reset_after_s: u32 = 300,
});
section!(CallbacksSection {
    at_once: u32 = 64,
    tries: u32 = 3,
    timeout_s: u32 = 8,
    pause_ms: u32 = 500,
    trusted: PathBuf = PathBuf::new(),
});
section!(LogSection { format: String = "text".to_owned(), level: String = "info".to_owned() });
section!(ShutdownSection { grace_s: u32 = 10 });

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// What other members call us.
    pub name: CellId,
    /// Where the API is served.
    pub listen: Vec<SocketAddr>,
    /// Whether a loopback address has TLS too.
    pub tls_on_loopback: bool,
    /// The socket of this machine.
    pub socket: PathBuf,
    /// What the API shows.
    pub certificate: Certificate,
    /// Who signs client certificates.
    pub client_ca: Option<PathBuf>,
    /// What their bearers may do.
    pub certificates: BTreeMap<String, Role>,
    /// How much of everything.
    pub limits: Limits,
    /// What is remembered of events.
    pub memory: HubLimits,
    /// Bytes of the audit's file, and how many old ones are kept.
    pub audit: (u64, u32),
    /// Where members of the mesh reach us.
    pub mesh_listen: SocketAddr,
    /// What they are told.
    pub mesh_advertise: Option<SocketAddr>,
    /// The pace.
    pub profile: Profile,
    /// Who may be there.
    pub seeds: Vec<String>,
    /// How long members' certificates are valid.
    pub validity: Duration,
    /// The cells.
    pub cells: CellsSettings,
    /// The auction.
    pub auction: AuctionSettings,
    /// The board.
    pub board: BoardSettings,
    /// The time between two looks at everything.
    pub full_pass: Duration,
    /// Callbacks.
    pub callbacks: CallbackSettings,
    /// How the log is written.
    pub log_format: LogFormat,
    /// What of it.
    pub log_level: String,
    /// What calls under way have after SIGTERM.
    pub grace: Duration,
}

impl CoordinatorConfig {
    /// Reads a file, or takes the defaults. A data folder given here comes first.
    pub fn read(path: Option<&Path>, data_dir: Option<&Path>) -> anyhow::Result<CoordinatorConfig> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("configuration {}", path.display()))?,
        };
        let config = CoordinatorConfig::parse(&text, data_dir);
        match path {
            None => config,
            Some(path) => config.with_context(|| format!("configuration {}", path.display())),
        }
    }

    /// Reads a text.
    pub fn parse(text: &str, data_dir: Option<&Path>) -> anyhow::Result<CoordinatorConfig> {
        let mut file: ConfigFile = toml::from_str(text).map_err(|error| {
            let suggestion = suggestion(error.message());
            anyhow!("{}{suggestion}", error.to_string().trim_end())
        })?;
        if let Some(data_dir) = data_dir {
            file.data_dir = data_dir.to_owned();
        }
        check(file)
    }
}

fn check(file: ConfigFile) -> anyhow::Result<CoordinatorConfig> {
    let data_dir = file.data_dir;
    ensure!(data_dir.is_absolute(), "data_dir = {data_dir:?}: an absolute path is wanted");
    let name = if file.name.is_empty() { host_name()? } else { file.name };
    let name = CellId::new(&name).with_context(|| format!("name = {name:?}"))?;
    let api = file.api;
    ensure!(!api.listen.is_empty(), "api.listen is empty: the API must be somewhere");
    let listen = api.listen.iter().map(|text| address("api.listen", text));
    let listen: Vec<SocketAddr> = listen.collect::<anyhow::Result<_>>()?;
    let tls = api.tls;
    let certificate = match (path(tls.certificate), path(tls.key)) {
        (Some(chain), Some(key)) => Certificate::Files { chain, key },
        (None, None) => Certificate::Own { names: own_names(&listen, &name, tls.names) },
        (Some(_), None) => return Err(anyhow!("api.tls.certificate needs api.tls.key too")),
        (None, Some(_)) => return Err(anyhow!("api.tls.key needs api.tls.certificate too")),
    };
    let client_ca = path(tls.client_ca);
    ensure!(
        client_ca.is_some() || api.certificates.is_empty(),
        "api.certificates names certificates, but api.tls.client_ca does not say whose are accepted"
    );
    let mesh = file.mesh;
    let profile = Profile::named(&mesh.profile).ok_or_else(|| {
        anyhow!("mesh.profile = {:?}: lan, wan or metered is wanted", mesh.profile)
    })?;
    let mesh_advertise = match mesh.advertise.as_str() {
        "" => None,
        text => Some(address("mesh.advertise", text)?),
    };
    let log_format = match file.log.format.as_str() {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        other => return Err(anyhow!("log.format = {other:?}: text or json is wanted")),
    };
    let callbacks = callbacks(file.callbacks, file.convergence.kick_task_after_s)?;
    let days = within("mesh.certificate_days", mesh.certificate_days, 1, 365)?;
    Ok(CoordinatorConfig {
        socket: path(api.socket).unwrap_or_else(|| data_dir.join("api.sock")),
        limits: limits(&api.limits, &file.events)?,
        memory: HubLimits {
            events: count("events.memory", file.events.memory, 1_024, 16_777_216)?,
            bytes: count("events.memory_mb", file.events.memory_mb, 1, 65_536)? << 20,
        },
        audit: (
            u64::from(within("audit.file_mb", file.audit.file_mb, 1, 65_536)?) << 20,
            within("audit.files", file.audit.files, 1, 1_000)?,
        ),
        mesh_listen: address("mesh.listen", &mesh.listen)?,
        validity: Duration::from_secs(u64::from(days) * 86_400),
        cells: cells(&file.cells)?,
        auction: auction(file.auction, &name)?,
        board: board(&file.convergence)?,
        full_pass: seconds("convergence.full_pass_s", file.convergence.full_pass_s)?,
        callbacks,
        grace: Duration::from_secs(file.shutdown.grace_s.into()),
        log_level: file.log.level,
        data_dir,
        name,
        listen,
        tls_on_loopback: tls.on_loopback,
        certificate,
        client_ca,
        certificates: api.certificates,
        mesh_advertise,
        profile,
        seeds: mesh.seeds,
        log_format,
    })
}

fn limits(file: &LimitsSection, events: &EventsSection) -> anyhow::Result<Limits> {
    Ok(Limits {
        connections: count("api.limits.connections", file.connections, 1, 1_000_000)?,
        strangers: count("api.limits.strangers", file.strangers, 1, 1_000_000)?,
        header_time: seconds("api.limits.header_s", file.header_s)?,
        idle_time: seconds("api.limits.idle_s", file.idle_s)?,
        body_time: seconds("api.limits.body_s", file.body_s)?,
        stall_time: seconds("api.limits.stall_s", file.stall_s)?,
        call_time: seconds("api.limits.call_s", file.call_s)?,
        bodies_bytes: count("api.limits.bodies_mb", file.bodies_mb, 2, 4_095)? << 20,
        streams: count("events.streams", events.streams, 1, 1_000_000)?,
        requests_per_second: file.requests_per_second,
        heartbeat: seconds("events.heartbeat_s", events.heartbeat_s)?,
    })
}

fn cells(file: &CellsSection) -> anyhow::Result<CellsSettings> {
    let default = CellsSettings::default();
    Ok(CellsSettings {
        settle_after: Duration::from_secs(file.settle_s.into()),
        hold: HoldPolicy {
            share_percent: within("cells.hold_share_percent", file.hold_share_percent, 0, 100)?,
            at_least: count("cells.hold_at_least", file.hold_at_least, 1, 1_000_000)?,
            window: seconds("cells.hold_window_s", file.hold_window_s)?,
            grace: seconds("cells.hold_grace_s", file.hold_grace_s)?,
            ..default.hold
        },
        mismatch_lasts: seconds("cells.mismatch_s", file.mismatch_s)?,
        answer_within: seconds("cells.answer_s", file.answer_s)?,
        ..default
    })
}

/// All tries must fit into the time after which convergence begins again: a consumer that is told twice
/// at once would be wrong to complain, and right to wonder.
fn callbacks(file: CallbacksSection, kick_s: u32) -> anyhow::Result<CallbackSettings> {
    let tries = within("callbacks.tries", file.tries, 1, 10)?;
    let timeout = seconds("callbacks.timeout_s", file.timeout_s)?;
    let pause = Duration::from_millis(file.pause_ms.into());
    let longest = timeout * tries + pause * ((1 << (tries - 1)) - 1);
    ensure!(
        longest < Duration::from_secs(kick_s.into()),
        "callbacks: {tries} tries of {} s with their pauses take {:.1} s, but \
         convergence.kick_task_after_s = {kick_s} begins again before that: lower one or raise the other",
        file.timeout_s,
        longest.as_secs_f64(),
    );
    Ok(CallbackSettings {
        at_once: count("callbacks.at_once", file.at_once, 1, 1_024)?,
        tries,
        timeout,
        pause,
        trusted: file.trusted,
    })
}

fn auction(file: AuctionSection, name: &CellId) -> anyhow::Result<AuctionSettings> {
    let zone_policy = match file.zone_policy.as_str() {
        "even" => ZonePolicy::Even,
        "preferred" => ZonePolicy::Preferred { zones: file.zones },
        other => {
            return Err(anyhow!("auction.zone_policy = {other:?}: even or preferred is wanted"));
        }
    };
    Ok(AuctionSettings {
        zone_policy,
        starting_weight: within("auction.starting_weight", file.starting_weight, 0, 1_000)?,
        bin_pack_weight: within("auction.bin_pack_weight", file.bin_pack_weight, 0, 1_000_000)?,
        in_flight_starts: file.in_flight_starts,
        seed: crate::auction::settings::stable_hash(0, name.as_str()),
    })
}

fn board(file: &ConvergenceSection) -> anyhow::Result<BoardSettings> {
    Ok(BoardSettings {
        crash_policy: CrashPolicy {
            immediate_restarts: file.crash_immediate_restarts,
            smallest_wait: Duration::from_secs(file.crash_smallest_wait_s.into()),
            largest_wait: Duration::from_secs(file.crash_largest_wait_s.into()),
            give_up_after: file.crash_give_up_after,
            reset_after: Duration::from_secs(file.crash_reset_after_s.into()),
        },
        stale_after: seconds("convergence.stale_after_s", file.stale_after_s)?,
        evacuation_timeout: seconds("convergence.evacuation_timeout_s", file.evacuation_timeout_s)?,
        task_retries: file.task_retries,
        kick_task_after: seconds("convergence.kick_task_after_s", file.kick_task_after_s)?,
        expire_pending_task_after: seconds(
            "convergence.expire_pending_task_s",
            file.expire_pending_task_s,
        )?,
        expire_completed_task_after: seconds(
            "convergence.expire_completed_task_s",
            file.expire_completed_task_s,
        )?,
        stuck_after: seconds("convergence.stuck_after_s", file.stuck_after_s)?,
        definition_history: count(
            "convergence.definition_history",
            file.definition_history,
            0,
            1_000,
        )?,
        definition_history_age: Duration::from_secs(
            u64::from(within(
                "convergence.definition_history_days",
                file.definition_history_days,
                1,
                3_660,
            )?) * 86_400,
        ),
    })
}

/// The names in a certificate of our own.
fn own_names(listen: &[SocketAddr], name: &CellId, given: Vec<String>) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.push(name.to_string());
    let listened = listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    names.extend(listened.map(|ip| ip.to_string()));
    names.extend(given);
    names.sort();
    names.dedup();
    names
}

fn path(given: PathBuf) -> Option<PathBuf> {
    (!given.as_os_str().is_empty()).then_some(given)
}

fn address(key: &str, text: &str) -> anyhow::Result<SocketAddr> {
    let form = "an address with a port is wanted, such as 127.0.0.1:8889 or [::]:8889";
    text.parse().map_err(|_| anyhow!("{key} = {text:?}: {form}"))
}

fn within(key: &str, given: u32, least: u32, most: u32) -> anyhow::Result<u32> {
    ensure!((least..=most).contains(&given), "{key} = {given}: {least} to {most} is wanted");
    Ok(given)
}

fn count(key: &str, given: u32, least: u32, most: u32) -> anyhow::Result<usize> {
    Ok(usize::try_from(within(key, given, least, most)?)?)
}

/// A time of at least a second and at most a year.
fn seconds(key: &str, given: u32) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(within(key, given, 1, 366 * 86_400)?.into()))
}

fn host_name() -> anyhow::Result<String> {
    // By the system call: a hardened unit sees nothing of /proc/sys.
    let name = nix::unistd::gethostname().context("read the host name")?;
    Ok(name.to_string_lossy().trim().replace('.', "-"))
}

/// What a misspelt key was probably meant to be, from serde's words: "unknown field `lisen`, expected
/// one of `listen`, `socket`".
fn suggestion(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ") else { return String::new() };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(given) = names.next() else { return String::new() };
    let nearest = names.map(|name| (distance(given, name), name)).min();
    match nearest {
        Some((steps, name)) if steps <= given.len().div_ceil(2) => {
            format!("\ndid you mean `{name}`?")
        }
        Some(_) | None => String::new(),
    }
}

/// How many letters must be changed, added or removed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (nth, wanted) in other.chars().enumerate() {
            let changed = diagonal + usize::from(letter != wanted);
            diagonal = row[nth + 1];
            row[nth + 1] = changed.min(diagonal + 1).min(row[nth] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        CoordinatorConfig::parse(text, None).unwrap_err().to_string()
    }

    #[test]
    fn the_sample_has_every_key_at_its_default() {
        let sample: toml::Table = toml::from_str(SAMPLE).unwrap();
        let defaults = toml::Table::try_from(ConfigFile::default()).unwrap();
        assert_eq!(sample, defaults);
        let read: ConfigFile = toml::from_str(SAMPLE).unwrap();
        assert_eq!(read, ConfigFile::default());
        // Every key has a comment before it, or before those that it stands together with.
        let mut documented = false;
        for line in SAMPLE.lines() {
            match line {
                "" => documented = false,
                line if line.starts_with('#') => documented = true,
                line if line.starts_with('[') => documented = true,
                line => assert!(documented, "no word about {line}"),
            }
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_parts() {
        let config = CoordinatorConfig::parse("", None).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.memory, HubLimits::default());
        assert_eq!(config.board, BoardSettings::default());
        assert_eq!(config.cells, CellsSettings::default());
        assert_eq!(config.callbacks, CallbackSettings::default());
        let auction = AuctionSettings { seed: config.auction.seed, ..AuctionSettings::default() };
        assert_eq!(config.auction, auction);
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_right_one() {
        let message = refused("[api]\nlisen = []\n");
        assert!(message.contains("line 2, column 1"), "{message}");
        assert!(message.ends_with("did you mean `listen`?"), "{message}");
        assert!(refused("datadir = \"/x\"").ends_with("did you mean `data_dir`?"));
        assert!(!refused("zzz = 1").contains("did you mean"));
    }

    #[test]
    fn what_is_out_of_bounds_is_told_with_its_key() {
        for (text, expected) in [
            ("data_dir = \"x\"", "data_dir = \"x\": an absolute path is wanted"),
            ("[api]\nlisten = [\"here\"]", "api.listen = \"here\": an address with a port"),
            ("[api]\nlisten = []", "api.listen is empty"),
            ("[api.tls]\nkey = \"/k\"", "api.tls.key needs api.tls.certificate too"),
            ("[api.certificates]\na = \"read\"", "api.tls.client_ca does not say"),
            ("[api.limits]\nheader_s = 0", "api.limits.header_s = 0: 1 to"),
            ("[mesh]\nprofile = \"moon\"", "mesh.profile = \"moon\": lan, wan or metered"),
            ("[log]\nformat = \"xml\"", "log.format = \"xml\": text or json"),
            ("[auction]\nzone_policy = \"x\"", "auction.zone_policy = \"x\": even or preferred"),
            ("name = \"../x\"", "name = \"../x\""),
            ("[callbacks]\ntries = 5", "convergence.kick_task_after_s = 30 begins again before"),
        ] {
            let message = refused(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        let message = refused("[api.certificates]\na = \"root\"");
        assert!(message.contains("unknown variant `root`"), "{message}");
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("", "abc"), distance("abc", "abc")), (3, 0));
    }
}
