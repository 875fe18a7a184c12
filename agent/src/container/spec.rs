//! What a container is made of and what runs in it: the values that a machine passes on to the shim.
//! They go over the shim's socket and lie beside it on the disk, so neither names in JSON nor the order
//! of fields and variants may change: `shim::wire` holds the bytes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
    /// What becomes of its output. With a terminal it goes there, whatever is said here.
    pub output: OutputTarget,
    /// Gives it a terminal of this size. Output, input and end of the terminal are those of the
    /// connection that asked; when that closes, the process is hung up on.
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// What becomes of a process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputTarget {
    /// Kept, line by line.
    Log,
    /// Both streams together, for whoever hears of the end: the last 4 KiB, because a
    /// program says last why it failed. What is no text is replaced. Nothing of it is logged.
    Capture,
    /// Thrown away.
    Discard,
}

/// A line that the agent adds to a container's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// What it is marked with.
    pub source: String,
    /// Which stream it counts for.
    pub stream: LogStream,
    /// The text. Of several lines each becomes one of the log.
    pub text: String,
}

/// Which of a process's two streams a line is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// Where the host keeps its cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hierarchy {
    /// One tree for everything.
    Unified(PathBuf),
    /// A tree for each controller: its name and where it is mounted.
    Older(Vec<(String, PathBuf)>),
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
