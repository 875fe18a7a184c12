//! What agent and shim say to each other, and what they leave on disk for each other.
//!
//! The spec lies in the container's folder before the shim is started; requests and replies pass
//! over the unix socket in the same folder, each a length and postcard bytes.
//!
//! On each connection the answers come in the order of the requests, one for each. So an agent may
//! send without waiting. [`ShimReply::Exited`] and [`ShimReply::Output`] are no answers and may come between
//! any two; the output of a terminal always comes before the end of its process.
//!
//! The end of a process is told to every connection and kept, in memory and on disk, until an agent
//! says [`ShimRequest::Forget`]. So an agent that comes back learns all from [`ShimRequest::Status`], and one
//! that acknowledges what it has taken in lets neither grow. One that never does is refused further
//! processes at [`PROCESSES`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};

use crate::container::exit::Exit;
use crate::container::spec::{LogLine, ProcessSpec, TerminalSize};

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

/// What the agent asks of a shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShimRequest {
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
pub enum ShimReply {
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

#[cfg(test)]
mod golden {
    use volvox_golden::{Golden, variants};

    use super::*;
    use crate::container::exit::End;
    use crate::container::spec::{
        Access, Bind, ContainerSpec, Hierarchy, Limits, LogLimits, LogStream, OutputTarget,
    };

    fn golden(name: &str) -> Golden {
        Golden::open(env!("CARGO_MANIFEST_DIR"), name)
    }

    /// An agent that is upgraded talks to shims of the release before. So these bytes must not
    /// change: a new message is a new variant at the end, a new field is a new message.
    #[test]
    fn the_bytes_of_messages_are_those_that_running_shims_know() {
        let mut golden = golden("shim");
        let size = TerminalSize { rows: 2, columns: 3 };
        let process = ProcessSpec {
            id: 1,
            path: "p".into(),
            args: vec!["a".into()],
            env: vec!["E=1".into()],
            dir: "d".into(),
            user: "u".into(),
            nofile: Some(9),
            source: "s".into(),
            output: OutputTarget::Capture,
            terminal: Some(size),
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
        golden.postcards(variants!(ShimRequest {
            Run(process),
            Signal(1, 15),
            Log(line),
            Input(1, vec![2]),
            EndInput(1),
            Resize(1, size),
            Forget(1),
            Status,
            Destroy,
        }));
        golden.postcards(variants!(ShimReply {
            Done,
            Failed("f".into()),
            Status(status),
            Exited(exit),
            Output(1, vec![2]),
        }));
        golden.postcards(variants!(OutputTarget { Log, Discard, Capture }));
        golden.postcards(variants!(LogStream { Out, Err }));
        golden.postcards(variants!(End { Status(3), Signal(9) }));
        golden.close();
    }

    /// The file that a shim makes its container from, which an upgraded agent reads again.
    #[test]
    fn a_containers_spec_has_its_golden_text() {
        let mut golden = golden("spec");
        let bind = |access| Bind { source: "/s".into(), target: "/t".into(), access };
        let accesses = variants!(Access { ReadOnly, ReadWrite });
        let older = vec![("pids".to_owned(), "/sys/pids".into())];
        let hierarchies = variants!(Hierarchy { Unified("/sys".into()), Older(older) });
        for (name, cgroup) in hierarchies {
            let spec = ContainerSpec {
                id: "id".into(),
                layers: vec!["/l".into()],
                binds: accesses.map(|(_, access)| bind(access)).into(),
                first_id: 1,
                ids: 2,
                privileged: true,
                cgroup,
                limits: Limits {
                    memory_bytes: 3,
                    cpu_shares: 4,
                    pids: 5,
                    disk_bytes: 6,
                    inodes: 7,
                },
                log: LogLimits { file_bytes: 8, files: 9, bytes_per_second: Some(10) },
            };
            golden.json(&format!("ContainerSpec.{name}"), &spec);
        }
        golden.close();
    }
}
