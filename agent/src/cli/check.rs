//! `volvox-agent check`: whether this machine can be a cell, and what to do about what is missing.

use std::net::UdpSocket;
use std::path::Path;
use std::process::ExitCode;

use nix::sched::{CloneFlags, unshare};
use serde::Serialize;
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::MemberFolder;

use super::say;
use crate::config::AgentConfig;
use crate::container::spec::Hierarchy;
use crate::control::{ControlClient, ControlReply, ControlRequest};
use crate::runtime::net::link;
use crate::runtime::net::netlink::Socket;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    #[serde(flatten)]
    verdict: Preflight,
}

#[derive(Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Preflight {
    /// As it should be.
    Good { found: String },
    /// It works, and could be better.
    Warning { found: String, advice: String },
    /// It cannot work so.
    Bad { found: String, advice: String },
}

fn good(found: impl Into<String>) -> Preflight {
    Preflight::Good { found: found.into() }
}

fn warning(found: impl Into<String>, advice: &str) -> Preflight {
    Preflight::Warning { found: found.into(), advice: advice.to_owned() }
}

fn bad(found: impl Into<String>, advice: &str) -> Preflight {
    Preflight::Bad { found: found.into(), advice: advice.to_owned() }
}

/// Looks at everything. 1: something is bad.
pub(super) fn run(config: &AgentConfig, json: bool) -> anyhow::Result<ExitCode> {
    let runs = ControlClient::connect(&config.socket()).ok();
    let findings = [
        ("root", root()),
        ("kernel", kernel()),
        ("user namespaces", user_namespaces()),
        ("overlayfs", overlay()),
        ("cgroups", cgroups()),
        ("network", network()),
        ("seccomp", seccomp()),
        ("shim", good(config.machine.shim.display().to_string())),
        ("memory", memory(config)),
        ("disk", disk(&config.machine.state)),
        ("ports", ports(config)),
        ("mesh port", mesh_port(config, runs.is_some())),
        ("clock", clock()),
        ("membership", membership(config)),
        ("agent", agent(runs)),
    ];
    let findings: Vec<Finding> =
        findings.into_iter().map(|(what, verdict)| Finding { what, verdict }).collect();
    if json {
        say(&serde_json::to_string_pretty(&findings)?);
    } else {
        findings.iter().for_each(tell);
    }
    let is_bad = findings.iter().any(|it| matches!(it.verdict, Preflight::Bad { .. }));
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(finding: &Finding) {
    let what = finding.what;
    match &finding.verdict {
        Preflight::Good { found } => say(&format!("good  {what:<16} {found}")),
        Preflight::Warning { found, advice } => {
            say(&format!("warn  {what:<16} {found}\n      {:<16} -> {advice}", ""));
        }
        Preflight::Bad { found, advice } => {
            say(&format!("BAD   {what:<16} {found}\n      {:<16} -> {advice}", ""));
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn root() -> Preflight {
    if nix::unistd::geteuid().is_root() {
        good("yes")
    } else {
        bad("no: containers need root", "run it as root (sudo), or as a systemd service")
    }
}

fn kernel() -> Preflight {
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 19) {
        good(release)
    } else {
        bad(
            release,
            "5.19 or later is wanted: layers are mapped into containers as they are mounted",
        )
    }
}

fn user_namespaces() -> Preflight {
    let most: u64 = read("/proc/sys/user/max_user_namespaces").parse().unwrap_or(0);
    if most > 0 {
        good(format!("up to {most}"))
    } else {
        bad("switched off", "sysctl user.max_user_namespaces=10000, and keep it in /etc/sysctl.d")
    }
}

fn overlay() -> Preflight {
    let known = read("/proc/filesystems").lines().any(|it| it.ends_with("\toverlay"));
    if known {
        good("there")
    } else {
        bad("not known to the kernel", "modprobe overlay, and name it in /etc/modules-load.d")
    }
}

fn cgroups() -> Preflight {
    let wanted = ["memory", "cpu", "pids"];
    let advice = "mount cgroup2 on /sys/fs/cgroup with its controllers (systemd does)";
    match Hierarchy::detect() {
        Err(error) => bad(error.to_string(), advice),
        Ok(Hierarchy::Unified(root)) => {
            let there =
                std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            let missing: Vec<&str> = wanted
                .into_iter()
                .filter(|it| !there.split_whitespace().any(|has| has == *it))
                .collect();
            if missing.is_empty() {
                good(format!("version 2 at {}", root.display()))
            } else {
                bad(
                    format!("version 2 without {}", missing.join(", ")),
                    "cgroup_enable=memory on the kernel's command line",
                )
            }
        }
        Ok(Hierarchy::Older(trees)) => {
            let missing: Vec<&str> =
                wanted.into_iter().filter(|it| !trees.iter().any(|(name, _)| name == it)).collect();
            if missing.is_empty() {
                warning(
                    "version 1",
                    "version 2 is better at memory: systemd.unified_cgroup_hierarchy=1",
                )
            } else {
                bad(format!("version 1 without {}", missing.join(", ")), advice)
            }
        }
    }
}

/// Tries it, in a network of its own that goes with the thread.
fn network() -> Preflight {
    let tried = std::thread::spawn(|| -> Result<(), String> {
        let told = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        unshare(CloneFlags::CLONE_NEWNET).map_err(|it| told("a network namespace", &it))?;
        let mut socket = Socket::route().map_err(|it| told("netlink", &it))?;
        let mac = [2, 0, 0, 0, 0, 1];
        link::add_bridge(&mut socket, "check0", mac, 1_500).map_err(|it| told("a bridge", &it))?;
        crate::runtime::net::tables().map_err(|it| told("nftables", &it))?;
        Ok(())
    });
    match tried.join().unwrap_or_else(|_| Err("the trial panicked".to_owned())) {
        Ok(()) => good("namespaces, bridges and nftables work"),
        Err(error) => {
            bad(error, "modprobe bridge veth nf_tables nft_chain_nat; see docs/operating.md")
        }
    }
}

fn seccomp() -> Preflight {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail");
    if actions.contains("errno") {
        good("there")
    } else {
        bad("not in this kernel", "a kernel with CONFIG_SECCOMP_FILTER is wanted")
    }
}

fn memory(config: &AgentConfig) -> Preflight {
    let promised = config.settings.capacity.memory_mb;
    let text = read("/proc/meminfo");
    let line = text.lines().find_map(|it| it.strip_prefix("MemTotal:")).unwrap_or_default();
    let total = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10;
    if u64::from(promised) <= total {
        good(format!("{promised} MB of {total} MB for containers"))
    } else {
        let advice = "lower capacity.memory_mb, unless containers never use what they ask for";
        warning(format!("{promised} MB are promised, the machine has {total} MB"), advice)
    }
}

fn disk(state: &Path) -> Preflight {
    let there = state.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let Ok(stat) = nix::sys::statvfs::statvfs(there) else {
        return bad(format!("{} cannot be looked at", there.display()), "check state_dir");
    };
    let free_mb = stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20;
    let found =
        format!("{free_mb} MB and {} inodes free at {}", stat.files_available(), there.display());
    if free_mb < 256 {
        bad(found, "make room, or set state_dir to a larger file system")
    } else if free_mb < 2_048 {
        warning(
            found,
            "layers and downloads need some gigabytes: make room, or set downloads.cache_mb",
        )
    } else {
        good(found)
    }
}

fn ports(config: &AgentConfig) -> Preflight {
    let range = &config.machine.network.port_range;
    let (first, last) = (*range.start(), *range.end());
    let text = read("/proc/sys/net/ipv4/ip_local_port_range");
    let mut numbers = text.split_whitespace().map(|it| it.parse::<u16>().unwrap_or(0));
    let (low, high) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("{first} to {last} lead to containers");
    if first <= high && low <= last {
        let advice = "set network.first_port and last_port, or net.ipv4.ip_local_port_range, so that they do not overlap";
        warning(format!("{found}; {low} to {high} are used for outgoing connections"), advice)
    } else {
        good(found)
    }
}

fn mesh_port(config: &AgentConfig, agent_runs: bool) -> Preflight {
    let listen = config.mesh.listen;
    if agent_runs {
        return good(format!("{listen}/udp, in use by the agent"));
    }
    match UdpSocket::bind(listen) {
        Ok(_) => good(format!("{listen}/udp is free; other members must be able to reach it")),
        Err(error) => {
            bad(format!("{listen}/udp: {error}"), "set mesh.listen, or stop what uses it")
        }
    }
}

fn clock() -> Preflight {
    // A machine without a battery begins in 1970, or at the time of its last shutdown.
    const SOME_TIME_AGO: u64 = 1_767_225_600;
    let now = system_clock()().as_nanos() / 1_000_000_000;
    if now < SOME_TIME_AGO {
        return bad(
            "it is wrong by years",
            "set it (timedatectl, chrony): certificates are judged by it",
        );
    }
    let synced = ["/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid", "/run/ntpd.pid"];
    if synced.iter().any(|it| Path::new(it).exists()) {
        good("kept by a time service")
    } else {
        warning(
            "no time service was found",
            "run systemd-timesyncd or chrony: certificates are judged by the clock",
        )
    }
}

fn membership(config: &AgentConfig) -> Preflight {
    if !config.mesh.is_member() {
        return warning(
            "no member of a cluster yet",
            "volvox-agent join LINE, with a line of volvox join-token create",
        );
    }
    let now = system_clock()();
    let loaded = MemberFolder::open(&config.mesh.folder).and_then(|folder| folder.load(now));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            return bad(error.to_string(), "restore the folder, or join again with a new token");
        }
    };
    let identity = loaded.credentials.identity();
    let days = identity.not_after.since(now).as_secs() / 86_400;
    let found = format!("cell {}, certificate for {days} more days", identity.name);
    if identity.name != config.settings.cell_id {
        bad(found, "cell_id is another now: set it back, or join again")
    } else if !loaded.credentials.is_valid_at(now) {
        bad(
            format!("cell {}, its certificate is not valid now", identity.name),
            "set the clock; if it has ended, the agent renews it when it reaches a coordinator",
        )
    } else if let Some(found) = loaded.warnings.first() {
        warning(found.to_string(), "chmod 600 it")
    } else {
        good(found)
    }
}

fn agent(client: Option<ControlClient>) -> Preflight {
    let Some(mut client) = client else {
        return warning("does not run", "systemctl start volvox-agent, or volvox-agent run");
    };
    match client.ask(&ControlRequest::Status) {
        Ok(ControlReply::Status(status)) => match status.rep {
            None => good("runs, by itself"),
            Some(rep) if rep.coordinator => good("runs, and a coordinator is there"),
            Some(_) => warning(
                "runs, and no coordinator is there",
                "see volvox-agent members; is the coordinator up, and its UDP port open?",
            ),
        },
        Ok(_) | Err(_) => {
            warning("does not answer as it should", "is it of another release? restart it")
        }
    }
}
