//! `volvox exec`: the person's terminal, connected to one in a container.
//!
//! One loop waits for keys, for the coordinator and for signals. The person's terminal is raw meanwhile,
//! and is put back however this ends: also when we are told to end, which comes as a key of its own.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use volvox_host::terminal::{self, RawMode};
use volvox_protocol::api::ExecRequest;
use volvox_protocol::stream::{Frame, TerminalSize};

use crate::Context;
use crate::args::ExecArgs;
use crate::client::frames::Frames;
use crate::error::{Code, Failure};
use crate::output::Output;

/// How often the coordinator hears that somebody is there.
const STILL_HERE: Duration = Duration::from_secs(15);
/// A coordinator that says nothing for so long is gone: it does so every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// What ends us: the terminal must be put back first.
const ENDS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];

pub(super) fn run(context: &mut Context, args: &ExecArgs) -> Result<(), Failure> {
    if context.out.is_json() {
        return Err(Failure::usage("exec shows a terminal: there is no --json of it"));
    }
    if let Some(wrong) = args.env.iter().find(|one| !one.contains('=')) {
        return Err(Failure::usage(format!("--env {wrong:?}: NAME=VALUE is wanted")));
    }
    let size = terminal::size();
    let mut env = args.env.clone();
    if !env.iter().any(|one| one.starts_with("TERM=")) {
        env.push(format!("TERM={}", std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned())));
    }
    let request = ExecRequest {
        process_guid: args.app.as_ref().map(ToString::to_string).unwrap_or_default(),
        index: args.index,
        instance_guid: args.instance.as_ref().map(ToString::to_string).unwrap_or_default(),
        task_guid: args.task.as_ref().map(ToString::to_string).unwrap_or_default(),
        command: args.command.clone(),
        user: args.user.clone(),
        dir: args.dir.clone(),
        env,
        rows: size.rows.into(),
        columns: size.columns.into(),
    };
    let signals = watched()?;
    let body = serde_json::to_string(&request)?;
    let frames = context
        .client()?
        .frames("/v1/actual_lrps/exec", &body)
        .map_err(|failure| failure.hint_for(Code::NotFound, "`volvox ps` lists what there is"))?;
    let raw = io::stdin().is_terminal().then(RawMode::enter).transpose();
    let raw = raw.map_err(|error| Failure::failed(format!("prepare the terminal: {error}")))?;
    let (said, heard) = (Instant::now(), Instant::now());
    let mut session = Session { frames, signals, typing: true, said, heard, size };
    let ended = session.run(&mut context.out);
    // Before anything is said about it.
    drop(raw);
    context.status = ended?;
    Ok(())
}

/// From here on these signals are read, and do nothing by themselves.
fn watched() -> Result<SignalFd, Failure> {
    let failed = |error: Errno| Failure::failed(format!("watch for signals: {error}"));
    let mut signals = SigSet::empty();
    ENDS.into_iter().chain([Signal::SIGWINCH]).for_each(|signal| signals.add(signal));
    signals.thread_block().map_err(failed)?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&signals, flags).map_err(failed)
}

struct Session {
    frames: Frames,
    signals: SignalFd,
    /// More may be typed.
    typing: bool,
    said: Instant,
    heard: Instant,
    size: TerminalSize,
}

impl Session {
    /// Until the command ends: its status.
    fn run(&mut self, out: &mut Output) -> Result<u8, Failure> {
        let lost = |error: io::Error| {
            Failure::unreachable(format!("the connection to the coordinator was lost: {error}"))
                .hint("the command was hung up on")
        };
        loop {
            let typed = self.wait()?;
            if typed && self.typing {
                self.type_on().map_err(lost)?;
            }
            if let Some(status) = self.signalled().map_err(lost)? {
                return Ok(status);
            }
            while let Some(frame) = self.frames.next().map_err(lost)? {
                self.heard = Instant::now();
                match frame {
                    Frame::Output(bytes) | Frame::ErrorOutput(bytes) => out.bytes(&bytes)?,
                    Frame::Exit(status) => return Ok(u8::try_from(status).unwrap_or(u8::MAX)),
                    Frame::Failed(why) | Frame::End(why) => return Err(Failure::unreachable(why)),
                    Frame::StillHere
                    | Frame::Input(_)
                    | Frame::EndInput
                    | Frame::Resize(_)
                    | Frame::Signal(_)
                    | Frame::Lines(_)
                    | Frame::Unknown(_) => {}
                }
            }
            out.finish()?;
            self.frames.flush().map_err(lost)?;
            if self.heard.elapsed() > SILENCE {
                return Err(lost(io::ErrorKind::TimedOut.into()));
            }
            if self.said.elapsed() > STILL_HERE && !self.frames.is_behind() {
                self.said = Instant::now();
                self.frames.send(&Frame::StillHere).map_err(lost)?;
            }
        }
    }

    /// Waits until there is something to do. Whether something was typed.
    fn wait(&self) -> Result<bool, Failure> {
        let stdin = io::stdin();
        let mut events = PollFlags::POLLIN;
        if self.frames.is_behind() {
            events |= PollFlags::POLLOUT;
        }
        let mut waiting = vec![
            PollFd::new(self.frames.as_fd(), events),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        // What was typed and not taken is enough: the program is slower than the person.
        if self.typing && !self.frames.is_behind() {
            waiting.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut waiting, PollTimeout::from(1_000_u16)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(Failure::failed(format!("wait for the terminal: {error}"))),
        }
        Ok(waiting.get(2).is_some_and(|it| it.any() == Some(true)))
    }

    fn type_on(&mut self) -> io::Result<()> {
        let mut keys = [0; 4_096];
        // Past the library's buffer, which could keep some of it where nobody waits for it.
        let read = match nix::unistd::read(io::stdin(), &mut keys) {
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(()),
            read => read?,
        };
        self.said = Instant::now();
        if read > 0 {
            return self.frames.send(&Frame::Input(keys[..read].to_vec()));
        }
        self.typing = false;
        self.frames.send(&Frame::EndInput)
    }

    /// Minds signals. A status: we are to end.
    fn signalled(&mut self) -> io::Result<Option<u8>> {
        while let Ok(Some(told)) = self.signals.read_signal() {
            let number = u8::try_from(told.ssi_signo).unwrap_or(0);
            if ENDS.iter().any(|signal| *signal as i32 == i32::from(number)) {
                return Ok(Some(128 + number));
            }
            let size = terminal::size();
            if size != self.size {
                self.size = size;
                self.frames.send(&Frame::Resize(size))?;
            }
        }
        Ok(None)
    }
}
