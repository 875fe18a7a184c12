//! A terminal for a process of the container, made of the container's own devpts.
//!
//! The pair is opened by the shim, through the root of the container's first process, without
//! following any link; what is opened must be the multiplexer of a devpts and nothing else, or there
//! is no terminal. The process's end comes from the pair itself and not from a path, so there is
//! nothing that the container could put in its place.
#![expect(unsafe_code, reason = "terminal calls; each block says why it is sound")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use crate::container::spec::TerminalSize;
use crate::kernel::sys;

/// Bytes typed and not yet read by the process, above which no more is taken.
const INPUT_BYTES: usize = 64 << 10;
/// What ends the input of a terminal that has not been told otherwise.
const END_OF_FILE: u8 = 4;
/// Bytes read from a terminal in one turn.
const TURN: usize = 16 << 10;

/// The shim's end of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: File,
    input: Vec<u8>,
    /// The connection that asked for it.
    pub(crate) client: u64,
}

/// Makes a terminal in the container whose first process is `init`, a child of ours that has not
/// been reaped. The second is the process's end, which belongs to the container's root.
pub(crate) fn open(
    init: i32,
    owner: u32,
    size: TerminalSize,
    client: u64,
) -> io::Result<(Terminal, OwnedFd)> {
    let make = || {
        let root: OwnedFd = File::open(format!("/proc/{init}/root"))?.into();
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
        let master = sys::open_in_root(root.as_fd(), Path::new("dev/pts/ptmx"), flags)?;
        let master = File::from(master);
        must_be_devpts(&master)?;
        let unlocked = 0;
        // SAFETY: the number lives through the call.
        check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: the call takes a number and gives a descriptor.
        let slave = check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
        // SAFETY: the kernel has just opened it for us.
        let slave = File::from(unsafe { OwnedFd::from_raw_fd(slave) });
        must_be_devpts(&slave)?;
        std::os::unix::fs::fchown(&slave, Some(owner), Some(owner))?;
        let terminal = Terminal { master, input: Vec::new(), client };
        terminal.resize(size)?;
        Ok((terminal, slave.into()))
    };
    make().map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("make a terminal: {error}"))
    })
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn must_be_devpts(file: &File) -> io::Result<()> {
    let kind = nix::sys::statfs::fstatfs(file)?.filesystem_type();
    let about = file.metadata()?;
    let is_terminal = about.file_type().is_char_device() && matches!(major(about.rdev()), 5 | 136);
    if kind == nix::sys::statfs::DEVPTS_SUPER_MAGIC && is_terminal {
        Ok(())
    } else {
        Err(io::Error::other("the container's /dev/pts is not what it was made"))
    }
}

/// The kernel's number for the kind of a device: 5 has the multiplexer, 136 the terminals.
fn major(device: u64) -> u64 {
    u64::from(libc::major(device))
}

/// In the new process, the leader of its session: makes the terminal that of the session, and its
/// file the user's, as login programs do.
pub(crate) fn take_over(slave: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
    // SAFETY: the call takes a number.
    check(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) })?;
    std::os::unix::fs::fchown(slave, Some(uid), None)
}

impl Terminal {
    /// Tells the kernel the size; it tells the processes.
    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size =
            libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the size lives through the call.
        check(unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
            .map(drop)
    }

    /// Types, as far as the terminal takes it; the rest waits.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.write();
    }

    /// Types what ends the input.
    pub(crate) fn end_input(&mut self) {
        self.input(&[END_OF_FILE]);
    }

    /// Whether something waits to be typed.
    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether so much waits to be typed that no more is to be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.input.len() > INPUT_BYTES
    }

    /// Types what waits, as far as the terminal takes it.
    pub(crate) fn write(&mut self) {
        while !self.input.is_empty() {
            match self.master.write(&self.input) {
                Ok(written) if written > 0 => drop(self.input.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody is there to read it.
                Ok(_) | Err(_) => self.input.clear(),
            }
        }
    }

    /// What it shows, some of it; empty if nothing now, an error if nothing ever again.
    pub(crate) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; TURN];
        loop {
            match self.master.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer.truncate(read);
                    return Ok(buffer);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> RawFd {
        self.master.as_raw_fd()
    }
}
