//! What agent and shim say to each other, and what they leave on disk for each other.
//!
//! The spec lies in the container's folder before the shim is started; requests and replies pass
//! over the unix socket in the same folder, each a length and postcard bytes.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cgroup::Hierarchy;

/// Bytes of one frame between agent and shim.
pub const FRAME_BYTES: usize = 1 << 20;
/// The spec's file name in a container's folder.
pub const SPEC: &str = "spec.json";
/// The socket's file name in a container's folder.
pub const SOCKET: &str = "shim.sock";
/// The folder of exit records in a container's folder.
pub const EXITS: &str = "exits";
/// The folder of log files in a container's folder.
pub const LOGS: &str = "logs";

/// Everything a shim needs to make its container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// The container's name, see [`is_container_id`].
    pub id: String,
    /// The layers of its root file system, the top one first. Never written to.
    pub layers: Vec<PathBuf>,
    /// Host folders and files that it sees.
    pub binds: Vec<Bind>,
    /// The first of its ids on the host; inside they begin at 0.
    pub first_id: u32,
    /// How many ids it has.
    pub ids: u32,
    /// Whether its root is the host's root. The cell's configuration must have allowed that.
    pub privileged: bool,
    /// Where the host keeps its cgroups, found once for all containers.
    pub cgroup: Hierarchy,
    /// What it may use.
    pub limits: Limits,
    /// How its output is kept.
    pub log: LogLimits,
}

/// Whether this can name a container: 1 to 63 letters, digits, `_` and `-`, no `-` first. It becomes
/// a folder, a cgroup, a host name, and an argument of programs.
pub fn is_container_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=63).contains(&id.len()) && id.bytes().all(plain) && !id.starts_with('-')
}

/// A host folder or file in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// On the host.
    pub source: PathBuf,
    /// In the container, absolute.
    pub target: PathBuf,
    /// Whether it may be written to.
    pub access: Access,
}

/// What a container may do with a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// What a container may use. Zero means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes, swap included.
    pub memory_bytes: u64,
    /// Its share of the processors when they are short; 1024 is one.
    pub cpu_shares: u64,
    /// Processes and threads.
    pub pids: u64,
    /// What it may write to its root file system, in bytes on disk.
    pub disk_bytes: u64,
    /// Files and folders that it may have there.
    pub inodes: u64,
}

/// How a container's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one file before the next is begun.
    pub file_bytes: u64,
    /// Files kept.
    pub files: u32,
    /// Bytes in a second that are kept, the rest is dropped and told of; nothing is no limit.
    pub bytes_per_second: Option<u64>,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits { file_bytes: 4 << 20, files: 3, bytes_per_second: None }
    }
}

/// A process to run in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The agent's name for it, new in this container.
    pub id: u32,
    /// The program, absolute or to be found in PATH.
    pub path: String,
    /// Its arguments, the program's name not counted.
    pub args: Vec<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// Where it starts; empty for the user's home.
    pub dir: String,
    /// Who it runs as: a name or a number of the container's own.
    pub user: String,
    /// Open files at most.
    pub nofile: Option<u64>,
    /// What its lines are marked with.
    pub source: String,
    /// What becomes of its output.
    pub output: Output,
}

/// What becomes of a process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Kept, line by line.
    Log,
    /// Thrown away.
    Discard,
}

/// What the agent asks of a shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run this process.
    Run(ProcessSpec),
    /// Send a signal to a process and to the group that it leads.
    Signal(u32, i32),
    /// Tell everything: the container and all its processes.
    Status,
    /// Kill everything, clean up, and end.
    Destroy,
}

/// What a shim answers, and what it says by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It was done.
    Done,
    /// It could not be done.
    Failed(String),
    /// The container and its processes.
    Status(Status),
    /// Not an answer: a process ended. Its record is on the disk already.
    Exited(Exit),
}

/// The container and its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The container's first process, as the host sees it.
    pub init: i32,
    /// Processes that run.
    pub running: Vec<u32>,
    /// Processes that have ended.
    pub exited: Vec<Exit>,
    /// What is not as it should be in the container, for the operator's eyes.
    pub notes: Vec<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The agent's name for it.
    pub id: u32,
    /// How.
    pub end: End,
    /// Whether it was killed and the kernel had killed in this container for want of memory.
    pub out_of_memory: bool,
    /// Whether it was killed because the container had more on disk than it may.
    pub out_of_disk: bool,
    /// When, in nanoseconds since the Unix epoch.
    pub at: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

#[cfg(test)]
mod tests {
    use super::is_container_id;

    #[test]
    fn names_of_containers_lead_nowhere_else() {
        let long = "x".repeat(63);
        for good in ["a", "A-1_b", "_x", "0", "4f2b1c9a-77d0-4c55-5b0c-1a2b", long.as_str()] {
            assert!(is_container_id(good), "{good:?}");
        }
        let too_long = "x".repeat(64);
        for bad in [
            "",
            ".",
            "..",
            "-",
            "-rf",
            "--help",
            "a/b",
            "/a",
            "a/",
            "../a",
            "a..b",
            ".a",
            "a b",
            "a\n",
            "a\0",
            "ä",
            "a+b",
            "a:b",
            "*",
            "a\\b",
            "%2e",
            "cgroup.procs",
            too_long.as_str(),
        ] {
            assert!(!is_container_id(bad), "{bad:?}");
        }
    }
}
