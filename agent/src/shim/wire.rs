//! What agent and shim say to each other, and what they leave on disk for each other.
//!
//! The spec lies in the container's folder before the shim is started; requests and replies pass
//! over the unix socket in the same folder, each a length and postcard bytes.
//!
//! On each connection the answers come in the order of the requests, one for each. So an agent may
//! send without waiting. [`Reply::Exited`] and [`Reply::Output`] are no answers and may come between
//! any two; the output of a terminal always comes before the end of its process.
//!
//! The end of a process is told to every connection and kept, in memory and on disk, until an agent
//! says [`Request::Forget`]. So an agent that comes back learns all from [`Request::Status`], and one
//! that acknowledges what it has taken in lets neither grow. One that never does is refused further
//! processes at [`PROCESSES`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::kernel::cgroup::Hierarchy;

/// Bytes of one frame between agent and shim: a process with all that a definition may say fits,
/// and so does a status with every process that may be known.
pub const FRAME_BYTES: usize = 4 << 20;
/// Bytes of a captured output that are kept.
pub const CAPTURE_BYTES: usize = 4_096;
/// Processes that may run in a container at once, those not counted that they start themselves. The
/// shim holds two pipes for each, and a thousand open files are what every system allows.
pub const RUNNING: usize = 384;
/// Processes that a shim may know: running, or ended and not forgotten.
pub const PROCESSES: usize = 960;

const _: () = assert!(PROCESSES * (CAPTURE_BYTES + 64) < FRAME_BYTES, "a status fits a frame");

/// The spec's file name in a container's folder.
pub const SPEC: &str = "spec.json";
/// The socket's file name in a container's folder.
pub const SOCKET: &str = "shim.sock";
/// The file of exit records in a container's folder.
pub const EXITS: &str = "exits";
/// The folder of log files in a container's folder.
pub const LOGS: &str = "logs";

/// The variable in a shim's environment that says how many seconds it has to make its container.
pub const MADE_WITHIN_S: &str = "VOLVOX_MADE_WITHIN_S";

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
    pub output: Output,
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
pub enum Output {
    /// Kept, line by line.
    Log,
    /// Both streams together, for whoever hears of the end: the last [`CAPTURE_BYTES`], because a
    /// program says last why it failed. What is no text is replaced. Nothing of it is logged.
    Capture,
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
    /// Write a line to the container's log. The rate limit is for containers: such a line is never
    /// dropped.
    Log(LogLine),
    /// Type these bytes into a terminal that this connection asked for. When the process does not
    /// read, the shim stops reading this connection: use one connection for each terminal.
    Input(u32, Vec<u8>),
    /// Tell a terminal's process that no input follows: types the end-of-file character.
    EndInput(u32),
    /// The terminal has another size now.
    Resize(u32, TerminalSize),
    /// The end of this process has been taken in: forget it. Its id must not be used again. A process
    /// that is not known is no error, so this may be said twice.
    Forget(u32),
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
    /// Not an answer: a process ended. It is on the disk already; see the shim's `exits` for what
    /// that means for checks.
    Exited(Exit),
    /// Not an answer: what a terminal shows, to the connection that asked for it.
    Output(u32, Vec<u8>),
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

/// The container and its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The container's first process, as the host sees it.
    pub init: i32,
    /// Processes that run.
    pub running: Vec<u32>,
    /// Processes that have ended and are not forgotten.
    pub exited: Vec<Exit>,
    /// What is not as it should be in the container, for the operator's eyes.
    pub notes: Vec<String>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What it said, if that was captured; at most [`CAPTURE_BYTES`].
    pub output: String,
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

#[cfg(test)]
mod bytes {
    use super::*;

    fn hex<T: Serialize>(message: &T) -> String {
        postcard::to_stdvec(message).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// An agent that is upgraded talks to shims of the release before. So these bytes must not
    /// change: a new message is a new variant at the end, a new field is a new message.
    #[test]
    fn the_bytes_of_messages_are_those_that_running_shims_know() {
        let process = ProcessSpec {
            id: 1,
            path: "p".into(),
            args: vec!["a".into()],
            env: vec!["E=1".into()],
            dir: "d".into(),
            user: "u".into(),
            nofile: Some(9),
            source: "s".into(),
            output: Output::Capture,
            terminal: Some(TerminalSize { rows: 2, columns: 3 }),
        };
        let line = LogLine { source: "s".into(), stream: LogStream::Err, text: "t".into() };
        let exit = Exit {
            id: 1,
            end: End::Signal(9),
            out_of_memory: true,
            out_of_disk: false,
            at: 5,
            output: "o".into(),
        };
        let status = Status {
            init: 7,
            running: vec![1],
            exited: vec![exit.clone()],
            notes: vec!["n".into()],
        };
        let requests = [
            Request::Run(process),
            Request::Signal(1, 15),
            Request::Log(line),
            Request::Input(1, vec![2]),
            Request::EndInput(1),
            Request::Resize(1, TerminalSize { rows: 2, columns: 3 }),
            Request::Forget(1),
            Request::Status,
            Request::Destroy,
        ];
        let replies = [
            Reply::Done,
            Reply::Failed("f".into()),
            Reply::Status(status),
            Reply::Exited(exit),
            Reply::Output(1, vec![2]),
        ];
        let told: Vec<String> = requests.iter().map(hex).chain(replies.iter().map(hex)).collect();
        assert_eq!(told, GOLDEN);
    }

    const GOLDEN: [&str; 14] = [
        "000101700101610103453d31016401750109017301010203",
        "01011e",
        "020173010174",
        "03010102",
        "0401",
        "05010203",
        "0601",
        "07",
        "08",
        "00",
        "010166",
        "020e010101010112010005016f01016e",
        "03010112010005016f",
        "04010102",
    ];
}
