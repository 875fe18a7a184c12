//! `volvox-coordinator init`: the first contact. Makes what a cluster begins with, and prints the one
//! line to run on a cell. A coordinator that runs is asked; before one runs, the authority is opened here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use volvox_host::durable;
use volvox_mesh::identity::MemberKind;
use volvox_mesh::tls::authority::{Authority, AuthorityError};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::registry::{NameConflict, TokenOrder};
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::api::{JoinTokenRequest, JoinTokenResponse, MemberRole};

use super::owner::become_owner;
use super::{installed, lifetime, socket};
use crate::config::CoordinatorConfig;
use crate::offline::{note, say};
use crate::run::{AUTHORITY, MEMBER};

/// How long a coordinator that is just starting is waited for, and how long between two looks.
const STARTING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_millis(100));

/// How a cluster begins.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox-coordinator init                               one machine may join, within a day
  volvox-coordinator init --uses 50 --expires 2h        fifty machines, with the same line
  volvox-coordinator init --address fleet.example:8890  where cells find this coordinator

The line is on stdout, everything else on stderr.")]
pub(crate) struct InitArgs {
    /// The configuration; without it /etc/volvox/coordinator.toml, if that is there.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The data folder; comes before the configuration's.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// How many machines may join with the line.
    #[arg(long, default_value_t = 1)]
    uses: u32,
    /// For how long they may, such as 30m or 7d.
    #[arg(long, default_value = "1d", value_parser = lifetime)]
    expires: Duration,
    /// Where joining machines find this coordinator, host:port; may be given several times. By
    /// default where it says that it is, or will say.
    #[arg(long)]
    address: Vec<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What came of it.
struct Made {
    id: String,
    line: String,
    expires_at: u64,
    /// Whether a coordinator runs.
    is_running: bool,
    /// Whether there was no authority before.
    is_new: bool,
}

/// Makes what is missing, and prints the line.
pub(crate) fn run(arguments: &InitArgs) -> anyhow::Result<ExitCode> {
    let file = arguments.config.clone().or_else(installed);
    let config = CoordinatorConfig::read(file.as_deref(), arguments.data_dir.as_deref())?;
    ensure!(arguments.uses > 0, "--uses 0: a line that nobody may use");
    let made = make(&config, arguments)?;
    let command = format!("volvox-agent join {}", made.line);
    if arguments.json {
        let shown = serde_json::json!({
            "command": command, "join_token": made.line, "id": made.id,
            "expires_at": made.expires_at, "uses": arguments.uses, "data_dir": config.data_dir,
            "running": made.is_running, "new_cluster": made.is_new,
        });
        say(&shown.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    if made.is_new {
        note(&format!("A new cluster: its authority is in {}", config.data_dir.display()));
    }
    if !made.is_running {
        note("No coordinator runs yet: systemctl start volvox-coordinator");
    }
    let addresses = JoinToken::parse(&made.line)?.addresses().to_vec();
    if addresses.iter().all(|it| is_loopback(it)) {
        note(
            "Other machines cannot reach this address; say where this one is: --address HOST:PORT",
        );
    }
    let machines = if arguments.uses == 1 { "one machine" } else { "each machine" };
    note(&format!("Run this as root on {machines} that is to be a cell:"));
    say(&command);
    Ok(ExitCode::SUCCESS)
}

/// Asks a coordinator that runs, or does it in its place.
fn make(config: &CoordinatorConfig, arguments: &InitArgs) -> anyhow::Result<Made> {
    let end = Instant::now() + STARTING.0;
    loop {
        if socket::is_served(&config.socket)? {
            return ask(config, arguments);
        }
        become_owner(&config.data_dir)?;
        match found(config, arguments) {
            // A coordinator that is just starting has it, and will soon answer.
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                std::thread::sleep(STARTING.1);
            }
            Err(error) if is_in_use(&error) => {
                let socket = config.socket.display();
                return Err(error.context(format!(
                    "a coordinator is at work on that folder, and does not answer at {socket}: name \
                     its configuration with --config"
                )));
            }
            other => return other,
        }
    }
}

fn ask(config: &CoordinatorConfig, arguments: &InitArgs) -> anyhow::Result<Made> {
    let request = JoinTokenRequest {
        role: MemberRole::Cell,
        cell_id: String::new(),
        replace: false,
        uses: arguments.uses,
        lifetime_s: u32::try_from(arguments.expires.as_secs()).unwrap_or(u32::MAX),
        label: "init".to_owned(),
        addresses: arguments.address.clone(),
    };
    let made: JoinTokenResponse = socket::call(&config.socket, "/v1/join_tokens/create", &request)?;
    Ok(Made {
        id: made.id,
        line: made.join_token,
        expires_at: made.expires_at.as_nanos(),
        is_running: true,
        is_new: false,
    })
}

fn found(config: &CoordinatorConfig, arguments: &InitArgs) -> anyhow::Result<Made> {
    let path = config.data_dir.join(AUTHORITY);
    let is_new = !path.join("authority.pem").exists();
    ensure!(
        !is_new || !config.data_dir.join(MEMBER).join("member.pem").exists(),
        "{} is a member of another coordinator's mesh: make the line there",
        config.data_dir.display()
    );
    durable::private_folder(&config.data_dir).context("make the data folder")?;
    let now = system_clock()();
    let mut authority =
        Authority::open(now, &path, config.validity).context("open the cluster's authority")?;
    let addresses = if arguments.address.is_empty() {
        vec![own_address(config).to_string()]
    } else {
        arguments.address.clone()
    };
    let order = TokenOrder {
        kind: MemberKind::Cell,
        cell: None,
        clash: NameConflict::Refuse,
        uses: arguments.uses,
        lifetime: arguments.expires,
        label: "init".to_owned(),
    };
    let token = authority.create_token(now, addresses, order).context("make the line")?;
    Ok(Made {
        id: token.id().to_string(),
        line: token.line(),
        expires_at: (now + arguments.expires).as_nanos(),
        is_running: false,
        is_new,
    })
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<AuthorityError>(), Some(AuthorityError::InUse(_)))
}

/// Where a coordinator with this configuration will say that it is.
fn own_address(config: &CoordinatorConfig) -> SocketAddr {
    if let Some(address) = config.mesh_advertise {
        return address;
    }
    let listen = config.mesh_listen;
    let ip = if listen.ip().is_unspecified() { route() } else { listen.ip() };
    SocketAddr::new(ip, listen.port())
}

/// The address that this machine would use to reach others; nothing is sent to find out.
fn route() -> IpAddr {
    let nobody = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(nobody).and_then(|()| socket.local_addr()));
    asked.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |it| it.ip())
}

fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|it| it.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn arguments(folder: &Path, words: &[&str]) -> InitArgs {
        use clap::{Args as _, FromArgMatches as _};
        let command = InitArgs::augment_args(clap::Command::new("init"));
        let data = ["init", "--data-dir", folder.to_str().unwrap()];
        let matches = command.get_matches_from(data.iter().chain(words));
        InitArgs::from_arg_matches(&matches).unwrap()
    }

    fn made(folder: &Path, words: &[&str]) -> anyhow::Result<Made> {
        let arguments = arguments(folder, words);
        make(&CoordinatorConfig::parse("", Some(folder))?, &arguments)
    }

    #[test]
    fn a_second_init_keeps_the_authority_and_makes_another_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep/data");
        let first = made(&folder, &["--address", "fleet.example:8890"]).unwrap();
        let second = made(&folder, &["--address", "fleet.example:8890", "--uses", "3"]).unwrap();
        assert!(first.is_new && !second.is_new && !first.is_running);
        let (one, two) =
            (JoinToken::parse(&first.line).unwrap(), JoinToken::parse(&second.line).unwrap());
        assert_eq!(one.ca(), two.ca());
        assert_ne!(one.id(), two.id());
        assert_eq!(one.addresses(), ["fleet.example:8890"]);
        let authority =
            Authority::open(system_clock()(), &folder.join(AUTHORITY), Duration::from_secs(86_400));
        let uses: Vec<u32> =
            authority.unwrap().register().tokens().map(|(_, token)| token.uses_left).collect();
        assert_eq!(uses.iter().sum::<u32>(), 4);
    }

    #[test]
    fn a_member_of_another_mesh_makes_no_authority() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(MEMBER)).unwrap();
        std::fs::write(folder.path().join(MEMBER).join("member.pem"), "").unwrap();
        let refused = made(folder.path(), &[]).err().unwrap();
        assert!(refused.to_string().contains("another coordinator's mesh"), "{refused}");
        assert!(!folder.path().join(AUTHORITY).exists());
    }

    #[test]
    fn what_is_advertised_is_where_cells_are_sent() {
        let parse = |text: &str| CoordinatorConfig::parse(text, Some(Path::new("/x"))).unwrap();
        let fixed = parse("[mesh]\nadvertise = \"192.0.2.7:99\"");
        assert_eq!(own_address(&fixed).to_string(), "192.0.2.7:99");
        let bound = parse("[mesh]\nlisten = \"127.0.0.3:88\"");
        assert_eq!(own_address(&bound).to_string(), "127.0.0.3:88");
        assert!(is_loopback("127.0.0.3:88") && !is_loopback("fleet.example:8890"));
    }
}
