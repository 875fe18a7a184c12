//! One program with a terminal in a container, for one person.
//!
//! The conversation with the shim is on a thread of its own, since it polls descriptors. Between it and
//! the stream are two short queues: when the person does not read, the output's is full, the thread does
//! not read the shim, and the shim does not read the terminal; when the program does not read what is
//! typed, the other is full, and the stream is not read. Dropping either end hangs up on the program.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use volvox_host::clock::wall;
use volvox_mesh::request::{RpcRefusal, StreamHandler};
use volvox_mesh::transport::stream::{FrameReader, FrameWriter, StreamError};
use volvox_protocol::limits::{ARGUMENT_BYTES, ARGUMENTS, ENVIRONMENT, TEXT_BYTES};
use volvox_protocol::stream::{self, Frame, OpenTerminal, Opened, PIECE_BYTES};

use super::{ContainerLocator, STILL_HERE, blocking};
use crate::container::exit::End;
use crate::container::guid::ContainerGuid;
use crate::container::spec::{OutputTarget, ProcessSpec, TerminalSize};
use crate::runtime::shim::{ShimError, Terminal, TerminalEvent};

/// Frames that wait between the thread and the stream, each way.
const QUEUE: usize = 8;
/// Processes of people have ids from here on, those of the executor below.
const FIRST_ID: u32 = 1 << 31;
/// How often the thread looks whether it is still needed.
const LOOK_MS: u16 = 1_000;

pub(super) async fn open(
    place: Arc<ContainerLocator>,
    guid: ContainerGuid,
    request: OpenTerminal,
) -> Result<(Opened, StreamHandler), RpcRefusal> {
    check(&request).map_err(|rule| RpcRefusal::Malformed(rule.to_owned()))?;
    let name = guid.clone();
    let opened = blocking(move || place.shims.terminal(name.as_str(), spec(request))).await?;
    let terminal = opened.map_err(|error| RpcRefusal::Failed(told(&error)))?;
    let talk: StreamHandler = Box::new(move |reader, writer| {
        Box::pin(async move {
            if let Err(error) = talk(terminal, reader, writer).await {
                tracing::debug!(container = %guid, %error, "a terminal was left");
            }
        })
    });
    Ok((Opened {}, talk))
}

fn check(request: &OpenTerminal) -> Result<(), &'static str> {
    let is_short = |text: &str| text.len() <= TEXT_BYTES;
    if request.path.is_empty() || !is_short(&request.path) {
        return Err("the program must be named, in at most 4096 bytes");
    }
    if !is_short(&request.dir) || !is_short(&request.user) {
        return Err("folder and user may have 4096 bytes each");
    }
    let fits = |list: &[String], most| {
        list.len() <= most && list.iter().all(|one| one.len() <= ARGUMENT_BYTES)
    };
    if !fits(&request.args, ARGUMENTS) || !fits(&request.env, ENVIRONMENT) {
        return Err("too many or too long arguments or variables");
    }
    Ok(())
}

fn spec(request: OpenTerminal) -> ProcessSpec {
    // New in this container, also after a restart of the agent: the time, and a count.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = u32::try_from(wall().as_nanos() % 1_000_000_000).unwrap_or(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let id = FIRST_ID | (nanos ^ std::process::id()).wrapping_add(count);
    ProcessSpec {
        id,
        path: request.path,
        args: request.args,
        env: request.env,
        dir: request.dir,
        user: request.user,
        nofile: None,
        source: "EXEC".to_owned(),
        output: OutputTarget::Discard,
        terminal: Some(size(request.size)),
    }
}

fn size(size: stream::TerminalSize) -> TerminalSize {
    TerminalSize { rows: size.rows.max(1), columns: size.columns.max(1) }
}

fn told(error: &ShimError) -> String {
    match error {
        ShimError::Gone { .. } => "the container does not run".to_owned(),
        ShimError::Create { .. } | ShimError::Refused(_) | ShimError::Io { .. } => {
            error.to_string()
        }
    }
}

/// Carries frames both ways until the program ends or the person goes.
async fn talk(
    terminal: Terminal,
    mut reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), StreamError> {
    let (typed, to_thread) = mpsc::channel(QUEUE);
    let (shown, mut from_thread) = mpsc::channel(QUEUE);
    let Ok((mut bell, ringing)) = pair() else {
        let failed = Frame::Failed("no descriptor is left on the cell".to_owned());
        return writer.send(&failed).await;
    };
    let thread = Thread { terminal, to_thread, shown, ringing };
    // It ends when its queues are closed, which is when this function is left.
    std::thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(move || thread.run())
        .map_err(|error| StreamError::Lost(error.to_string()))?;
    let (mut waiting, mut listening, mut ends) = (None, true, false);
    let mut beat = tokio::time::interval(STILL_HERE);
    loop {
        tokio::select! {
            // One who does not read can still type: control-C, for one.
            sent = writer.flush(), if writer.is_behind() => sent?,
            frame = from_thread.recv(), if !writer.is_behind() => {
                let Some(frame) = frame else { return Ok(()) };
                ring(&mut bell);
                writer.begin(&frame);
                ends = frame.is_last();
                beat.reset();
            }
            frame = reader.next(), if listening && waiting.is_none() => match frame? {
                Some(frame) => waiting = Some(frame),
                None => {
                    (waiting, listening) = (Some(Frame::EndInput), false);
                }
            },
            place = typed.reserve(), if waiting.is_some() => {
                match (place, waiting.take()) {
                    (Ok(place), Some(frame)) => {
                        place.send(frame);
                        ring(&mut bell);
                    }
                    // The program has ended, and nobody reads any more. How it ended is in the other
                    // queue.
                    (Err(_), _) => listening = false,
                    (Ok(_), None) => {}
                }
            }
            _ = beat.tick(), if !writer.is_behind() => writer.begin(&Frame::StillHere),
        }
        if ends && !writer.is_behind() {
            return writer.finish().await;
        }
    }
}

fn pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (bell, ringing) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    ringing.set_nonblocking(true)?;
    Ok((bell, ringing))
}

/// Has the thread look at its queues. A bell that rings already is as good.
fn ring(bell: &mut UnixStream) {
    let _ = bell.write(&[1]);
}

struct Thread {
    terminal: Terminal,
    to_thread: mpsc::Receiver<Frame>,
    shown: mpsc::Sender<Frame>,
    ringing: UnixStream,
}

impl Thread {
    fn run(mut self) {
        let mut full = None;
        while let Some(wants_terminal) = self.turn(&mut full) {
            self.wait(wants_terminal);
        }
    }

    /// Does what can be done without waiting. Whether to wait for the terminal, too; none: it is over.
    fn turn(&mut self, full: &mut Option<Frame>) -> Option<bool> {
        while !self.terminal.is_behind() {
            match self.to_thread.try_recv() {
                Ok(frame) => self.hand_over(frame),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        loop {
            let frame = match full.take() {
                Some(frame) => frame,
                None => match self.terminal.next(Duration::from_millis(1)) {
                    Ok(None) => return Some(true),
                    Ok(Some(TerminalEvent::Output(bytes))) => Frame::Output(bytes),
                    Ok(Some(TerminalEvent::Exited(exit))) => Frame::Exit(match exit.end {
                        End::Status(status) => status,
                        End::Signal(signal) => 128 + signal,
                    }),
                    Err(error) => Frame::Failed(told(&error)),
                },
            };
            let is_last = frame.is_last();
            match self.shown.try_send(frame) {
                Ok(()) if is_last => return None,
                Ok(()) => {}
                Err(TrySendError::Full(frame)) => {
                    *full = Some(frame);
                    return Some(false);
                }
                Err(TrySendError::Closed(_)) => return None,
            }
        }
    }

    fn hand_over(&mut self, frame: Frame) {
        match frame {
            Frame::Input(bytes) => bytes.chunks(PIECE_BYTES).for_each(|it| self.terminal.input(it)),
            Frame::EndInput => self.terminal.end_input(),
            Frame::Resize(to) => self.terminal.resize(size(to)),
            Frame::Signal(signal) => self.terminal.signal(signal.into()),
            // Not for us, or of a later release.
            Frame::StillHere
            | Frame::Output(_)
            | Frame::ErrorOutput(_)
            | Frame::Lines(_)
            | Frame::Exit(_)
            | Frame::Failed(_)
            | Frame::End(_)
            | Frame::Unknown(_) => {}
        }
    }

    /// Waits for the bell, and for the terminal if there is room for what it shows.
    fn wait(&mut self, wants_terminal: bool) {
        let bell = PollFd::new(self.ringing.as_fd(), PollFlags::POLLIN);
        let mut events = PollFlags::empty();
        if wants_terminal {
            events |= PollFlags::POLLIN;
        }
        if self.terminal.is_behind() {
            events |= PollFlags::POLLOUT;
        }
        let mut waiting = vec![bell];
        if !events.is_empty() {
            waiting.push(PollFd::new(self.terminal.as_fd(), events));
        }
        // Interrupted, or nothing for a while: the next turn looks.
        let _ = poll(&mut waiting, PollTimeout::from(LOOK_MS));
        let _ = self.ringing.read(&mut [0; 64]);
        if self.terminal.is_behind() {
            self.terminal.flush();
        }
    }
}
