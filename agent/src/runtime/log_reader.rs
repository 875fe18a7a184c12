//! Reads a container's log files, which its shim writes: `0.log` is the newest, `1.log` the one
//! before. All that is kept comes first, the oldest line first; then what is new at each call,
//! across turn-overs, no line twice.
//!
//! A file is known by its inode and by the time of its first line: an inode number alone is given
//! away again, and the next `0.log` may get that of a file that is gone. The file that is read is
//! held open, so what is turned over meanwhile is still read to its end. A [`Position`] points behind
//! the last line that was given, and never into a file of which nothing was given.
//!
//! The caller decides how often it looks. Nothing here blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use volvox_protocol::time::Timestamp;

use crate::container::spec::LogStream;
use crate::image::dir_handle::DirHandle;

/// Bytes that one call looks at; what is left comes with the next.
const READ_BYTES: usize = 1 << 20;
/// The longest beginning of a file that is looked at for its first line's time.
const HEAD_BYTES: usize = 24;
/// How often the list of files is taken anew when a turn-over came between.
const LOOKS: usize = 16;

/// One line of a container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLogLine {
    /// When it was written.
    pub at: Timestamp,
    /// On which stream.
    pub stream: LogStream,
    /// Whose it is.
    pub source: String,
    /// What it says, without its end. Not always UTF-8.
    pub text: Vec<u8>,
}

impl StoredLogLine {
    /// `nanoseconds stream source text`, as the shim writes it. `None`: it is damaged.
    fn parse(line: &[u8]) -> Option<StoredLogLine> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let at = nanos(parts.next()?)?;
        let stream = match parts.next()? {
            b"out" => LogStream::Out,
            b"err" => LogStream::Err,
            _ => return None,
        };
        let source = String::from_utf8_lossy(parts.next()?).into_owned();
        let text = parts.next()?.to_vec();
        Some(StoredLogLine { at: Timestamp::from_nanos(at), stream, source, text })
    }
}

/// A place in a log, to be written down and gone on from. The default is the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The file's inode.
    inode: u64,
    /// The time of its first line.
    begins: u64,
    /// Behind the last line that was given.
    offset: u64,
}

/// Reads one container's log.
#[derive(Debug)]
pub struct LogReader {
    folder: DirHandle,
    current: Option<Current>,
    position: Position,
    gaps: u64,
}

/// The file that is being read.
#[derive(Debug)]
struct Current {
    file: File,
    inode: u64,
    /// The time of its first line, once one was given.
    begins: Option<u64>,
    offset: u64,
}

impl LogReader {
    /// Reads the log in `folder`, from this place on.
    pub fn open(folder: &Path, position: Position) -> io::Result<LogReader> {
        let folder = DirHandle::open(folder)?;
        let mut reader = LogReader { folder, current: None, position, gaps: 0 };
        if position == Position::default() {
            return Ok(reader);
        }
        reader.current = reader.files()?.into_iter().find_map(|file| resumed(file, position));
        if reader.current.is_none() {
            // All files that are there are newer than the one that is not.
            reader.gaps = 1;
        }
        Ok(reader)
    }

    /// Where to go on. Note it after the lines before it are safe.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How often a file was gone before it, or the one after it, could be read: lines may be missing.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// The lines that have come since the last call, as many as fit into one. None: nothing new.
    pub fn read_more(&mut self) -> io::Result<Vec<StoredLogLine>> {
        let mut lines = Vec::new();
        match self.take_files(&mut lines) {
            // Lines that were taken are given; a failure that stays is told by the next call.
            Err(error) if lines.is_empty() => Err(error),
            Ok(()) | Err(_) => Ok(lines),
        }
    }

    fn take_files(&mut self, lines: &mut Vec<StoredLogLine>) -> io::Result<()> {
        let mut room = READ_BYTES;
        while self.current.is_some() || self.next_file()? {
            self.take_lines(lines, &mut room)?;
            if room == 0 || !self.is_turned_over()? {
                break;
            }
            // The shim may have added to it until it turned it over. Now nobody does.
            self.take_lines(lines, &mut room)?;
            if room == 0 || !self.next_file()? {
                break;
            }
        }
        Ok(())
    }

    /// Takes the complete lines of the current file, until its end or as far as there is room.
    fn take_lines(&mut self, lines: &mut Vec<StoredLogLine>, room: &mut usize) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.was_emptied()? {
            // A log of a single file is begun anew in the same file.
            self.gaps += 1;
            (current.begins, current.offset) = (None, 0);
        }
        let ahead = current.file.metadata()?.len().saturating_sub(current.offset);
        let mut buffer = vec![0; usize::try_from(ahead).unwrap_or(*room).min(*room)];
        let read = read_at(&current.file, &mut buffer, current.offset)?;
        let Some(end) = buffer[..read].iter().rposition(|byte| *byte == b'\n') else {
            if read == READ_BYTES {
                // No line is that long: it is none of the shim's.
                tracing::warn!(offset = current.offset, "passed over a damaged part of a log");
                current.offset += read as u64;
            }
            // A line that did not fit into what was left of the room fits into the next call's.
            *room = if read == *room { 0 } else { *room };
            return Ok(());
        };
        for line in buffer[..end].split(|byte| *byte == b'\n') {
            match StoredLogLine::parse(line) {
                Some(line) => lines.push(line),
                None => tracing::warn!(offset = current.offset, "passed over a damaged log line"),
            }
        }
        current.offset += end as u64 + 1;
        *room = if read == *room { 0 } else { *room - (end + 1) };
        let begins = match current.begins {
            Some(begins) => begins,
            None => first_nanos(&current.file)?,
        };
        current.begins = Some(begins);
        self.position = Position { inode: current.inode, begins, offset: current.offset };
        Ok(())
    }

    /// Whether there is a newer file than the current one.
    fn is_turned_over(&self) -> io::Result<bool> {
        let Some(current) = &self.current else { return Ok(false) };
        // In the middle of a turn-over there is no newest file for a moment.
        let newest = self.file(0)?;
        Ok(newest.is_some_and(|(inode, _)| inode != current.inode))
    }

    /// Goes to the file after the current one; to the oldest if there is no current one.
    fn next_file(&mut self) -> io::Result<bool> {
        let files = self.files()?;
        let inode = self.current.as_ref().map(|it| it.inode);
        let at = files.iter().position(|(found, _)| Some(*found) == inode);
        if inode.is_some() && at.is_none() {
            self.gaps += 1;
        }
        let next = files.into_iter().nth(at.map_or(0, |at| at + 1));
        let found = next.is_some();
        if let Some((inode, file)) = next {
            self.current = Some(Current { file, inode, begins: None, offset: 0 });
        }
        Ok(found)
    }

    /// All files, the oldest first, as they stood at one moment.
    fn files(&self) -> io::Result<Vec<(u64, File)>> {
        let mut files = self.list_files()?;
        for _ in 0..LOOKS {
            // The files of the first look are open, so none of their inodes is given away.
            let again = self.list_files()?;
            let inodes = |files: &[(u64, File)]| files.iter().map(|it| it.0).collect::<Vec<_>>();
            if inodes(&files) == inodes(&again) {
                return Ok(files);
            }
            files = again;
        }
        // It turns over faster than we can look: next time.
        Err(io::ErrorKind::ResourceBusy.into())
    }

    fn list_files(&self) -> io::Result<Vec<(u64, File)>> {
        // Each listing has a descriptor with a position of its own.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let listing = openat(&self.folder, ".", flags, Mode::empty())?;
        let mut numbers = Vec::new();
        for entry in nix::dir::Dir::from_fd(listing)?.iter() {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().and_then(|it| it.strip_suffix(".log"));
            numbers.extend(name.and_then(|it| it.parse::<u32>().ok()));
        }
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.dedup();
        let found = numbers.into_iter().map(|number| self.file(number));
        found.filter_map(Result::transpose).collect()
    }

    /// The file of this number: no link, nothing but a file.
    fn file(&self, number: u32) -> io::Result<Option<(u64, File)>> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&self.folder, format!("{number}.log").as_str(), flags, Mode::empty()) {
            Ok(fd) => {
                let file = File::from(fd);
                let stat = file.metadata()?;
                Ok(stat.is_file().then_some((stat.ino(), file)))
            }
            Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ELOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Current {
    /// Whether what was read of it is no longer there.
    fn was_emptied(&self) -> io::Result<bool> {
        let Some(begins) = self.begins else { return Ok(false) };
        Ok(self.file.metadata()?.len() < self.offset || first_nanos(&self.file)? != begins)
    }
}

/// This file, if the position is one in it.
fn resumed((inode, file): (u64, File), position: Position) -> Option<Current> {
    let before = position.offset.checked_sub(1)?;
    let mut end = [0];
    let is_same = inode == position.inode
        && first_nanos(&file).ok()? == position.begins
        && file.read_at(&mut end, before).ok()? == 1
        && end == *b"\n";
    let begins = Some(position.begins);
    is_same.then_some(Current { file, inode, begins, offset: position.offset })
}

/// The time of a file's first line; 0 if that is damaged.
fn first_nanos(file: &File) -> io::Result<u64> {
    let mut head = [0; HEAD_BYTES];
    let read = read_at(file, &mut head, 0)?;
    let first = head[..read].split(|byte| *byte == b' ').next();
    Ok(first.and_then(nanos).unwrap_or_default())
}

fn nanos(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
