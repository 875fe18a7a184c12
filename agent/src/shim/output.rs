//! Where the output of a running process goes: to the log, into memory, or to a terminal.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};

use volvox_host::clock::wall;

use super::lines::{Lines, Tail};
use super::logs::Log;
use super::pipe;
use super::terminal::{self, Terminal};
use crate::container::spec::{LogStream, OutputTarget, ProcessSpec};
use crate::kernel::sys;

/// The shim's ends of a process's streams.
#[derive(Debug, Default)]
pub(crate) struct ProcessOutput {
    pub(crate) sources: Vec<Source>,
    pub(crate) captured: Tail,
    pub(crate) terminal: Option<Terminal>,
}

/// The process's own ends.
#[derive(Debug)]
pub(crate) enum Streams {
    /// Nothing to read, and where the two outputs go.
    Apart { stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd },
    /// A terminal for all.
    Terminal(OwnedFd),
}

/// One pipe that output comes from.
#[derive(Debug)]
pub(crate) struct Source {
    pipe: File,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Log { lines: Lines, stream: LogStream, name: String },
    Capture,
}

/// Where a terminal is made: the container's first process, the id of its root, who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalTarget {
    pub(crate) init: i32,
    pub(crate) owner: u32,
    pub(crate) client: u64,
}

impl ProcessOutput {
    /// Makes the streams of a process. `nothing` is /dev/null, as the host has it: the container's
    /// own could be anything, also something that never lets go of whoever opens it.
    pub(crate) fn new(
        spec: &ProcessSpec,
        place: TerminalTarget,
        nothing: &File,
    ) -> io::Result<(Self, Streams)> {
        if let Some(size) = spec.terminal {
            let (terminal, slave) = terminal::open(place.init, place.owner, size, place.client)?;
            let outlet = ProcessOutput { terminal: Some(terminal), ..ProcessOutput::default() };
            return Ok((outlet, Streams::Terminal(slave)));
        }
        let null = || nothing.as_fd().try_clone_to_owned();
        let mut outlet = ProcessOutput::default();
        let mut stream = |sink| -> io::Result<OwnedFd> {
            let (pipe, end) = pipe()?;
            sys::set_nonblocking(pipe.as_fd())?;
            outlet.sources.push(Source { pipe, sink });
            Ok(end.into())
        };
        let log = |stream| Sink::Log { lines: Lines::default(), stream, name: spec.source.clone() };
        let (stdout, stderr) = match spec.output {
            OutputTarget::Log => (stream(log(LogStream::Out))?, stream(log(LogStream::Err))?),
            OutputTarget::Capture => {
                // One pipe for both, so that what was said stays in its order.
                let end = stream(Sink::Capture)?;
                (end.try_clone()?, end)
            }
            OutputTarget::Discard => (null()?, null()?),
        };
        Ok((outlet, Streams::Apart { stdin: null()?, stdout, stderr }))
    }

    /// Takes what is in those pipes that are `ready`.
    pub(crate) fn pump(&mut self, ready: &[RawFd], log: &mut Log) {
        let ProcessOutput { sources, captured, .. } = self;
        sources.retain_mut(|it| !ready.contains(&it.as_raw_fd()) || it.drain(log, captured));
    }

    /// The process has ended: takes what it had written, all of which is in the pipes already. Gives
    /// what was captured, and the pipes of its log, which what it started may go on to write to.
    pub(crate) fn finish(mut self, log: &mut Log) -> (String, Vec<Source>) {
        let ProcessOutput { sources, captured, .. } = &mut self;
        sources.retain_mut(|it| it.drain(log, captured) && matches!(it.sink, Sink::Log { .. }));
        (self.captured.text(), self.sources)
    }
}

impl Source {
    /// Takes what is in the pipe of a log whose process has ended. False when nothing can come.
    pub(crate) fn pump(&mut self, log: &mut Log) -> bool {
        self.drain(log, &mut Tail::default())
    }

    fn drain(&mut self, log: &mut Log, captured: &mut Tail) -> bool {
        // A process that writes without end must not keep us from everything else.
        const TURNS: usize = 16;
        let mut buffer = [0; 16_384];
        for _ in 0..TURNS {
            match (self.pipe.read(&mut buffer), &mut self.sink) {
                (Ok(0), Sink::Log { lines, stream, name }) => {
                    lines.flush(|line| log.line(wall(), *stream, name, line));
                    return false;
                }
                (Ok(0), Sink::Capture) => return false,
                (Ok(read), Sink::Log { lines, stream, name }) => {
                    lines.take(&buffer[..read], |line| log.line(wall(), *stream, name, line));
                }
                (Ok(read), Sink::Capture) => captured.take(&buffer[..read]),
                (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
                (Err(error), _) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }
}
