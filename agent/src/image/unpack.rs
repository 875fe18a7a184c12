//! Unpacks tar, tar.gz and zip into a folder, trusting nothing in them.
//!
//! | in the archive | what becomes of it |
//! |---|---|
//! | `..`, an absolute path, NUL, an empty name | refused |
//! | names that are not UTF-8 | kept, byte by byte |
//! | an entry below a symbolic link or a file | refused |
//! | a symbolic link | kept as text, never followed |
//! | a hard link | only to a file that this archive made before |
//! | devices, pipes, sockets | left out of a root file system, refused in a download |
//! | a character device 0/0 (a whiteout of overlayfs) | refused |
//! | `.wh.` names | refused in a root file system, plain files in a download |
//! | setuid, setgid, sticky | kept in a root file system, dropped in a download |
//! | extended attributes | dropped |
//! | sparse entries, data where none can be, unknown kinds | refused |
//! | a path twice | tar: the later one, as tar does; zip: refused |
//! | a file or link where a folder is | replaces it if that is empty, else refused |
//! | a folder where a file or link is | replaces it |
//! | sizes that lie (zip) | refused |
//!
//! The executor calls [`unpack`] for downloads, `layers.rs` for root file systems. An `Err` means
//! that what was made is gone again; a file that was replaced before is not back.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;

use super::cancel::Cancel;
use super::dir_handle::DirHandle;
use super::entry_path::{BadPath, EntryPath};
use super::extract::{Extractor, Ownership, Purpose};
use super::limits::{Meter, OverLimit, UnpackLimits};
use super::tar::BadHeader;
use super::untar::untar;
use super::unzip::unzip;
use super::zip::BadZip;

/// How much is written between two looks at the cancel flag.
pub const CHUNK_BYTES: usize = 64 << 10;

/// The formats that can be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// A plain tar archive.
    Tar,
    /// A tar archive in gzip, of one member or more.
    TarGz,
    /// A zip archive with stored or deflated entries.
    Zip,
}

impl Format {
    /// Reads the format from the first bytes; names and content types lie. `None`: none of ours.
    pub fn detect(archive: &File) -> io::Result<Option<Format>> {
        let mut head = [0; 512];
        let mut filled = 0;
        while filled < head.len() {
            match archive.read_at(&mut head[filled..], filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(match &head[..filled] {
            [0x1f, 0x8b, ..] => Some(Format::TarGz),
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Format::Zip),
            [..] if filled == head.len() && super::tar::parse_block(&head).is_ok() => {
                Some(Format::Tar)
            }
            [..] => None,
        })
    }
}

/// How far an unpack has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes after decompression.
    pub bytes: u64,
    /// Headers read.
    pub entries: u64,
}

/// What to unpack, and how.
pub struct Order<'a> {
    /// The format.
    pub format: Format,
    /// What for.
    pub purpose: Purpose,
    /// Who owns the result.
    pub ownership: Ownership,
    /// What it may cost.
    pub limits: UnpackLimits,
    /// Looked at after each block and entry.
    pub cancel: &'a Cancel,
    /// Told after each block and entry.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// What an unpack did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// What it read.
    pub read: Progress,
    /// Devices, pipes and sockets left out of a root file system.
    pub left_out: u64,
}

/// Why an entry is not taken. What this archive had made is removed; its sender must mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackRefusal {
    /// Its path is none of ours.
    #[error(transparent)]
    Path(BadPath),
    /// Something on its way is a link or a file.
    #[error("its path goes through something that is not a folder")]
    ThroughLink,
    /// It would replace a folder with something in it, or the folder we unpack into.
    #[error("it would replace a folder that is not empty")]
    ReplacesFolder,
    /// A hard link to something that is not a file of this archive, before it.
    #[error("hard link to {target}, which is no file that this archive made")]
    LinkTarget {
        /// Where to.
        target: String,
    },
    /// A symbolic link with an empty text, or a NUL in it.
    #[error("a symbolic link without a usable target")]
    LinkText,
    /// A device, pipe or socket in a download.
    #[error("devices, pipes and sockets are not taken")]
    Device,
    /// A mark of a layered file system.
    #[error("a whiteout: layers of an image are not taken as one archive")]
    Whiteout,
    /// The same path twice in a zip.
    #[error("the path occurs twice")]
    Duplicate,
}

impl UnpackRefusal {
    pub(super) fn at(self, path: &EntryPath) -> UnpackError {
        UnpackError::Refused { entry: path.to_string(), refusal: self }
    }
}

/// An archive that was not unpacked. What it had made is removed again.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// An entry that we do not take.
    #[error("refused archive entry {entry}: {refusal}")]
    Refused {
        /// The entry, escaped.
        entry: String,
        /// Why.
        refusal: UnpackRefusal,
    },
    /// More than a limit allows.
    #[error("refused archive at entry {entry}: {over}")]
    OverLimit {
        /// The entry, escaped; empty if it was between two.
        entry: String,
        /// Which limit.
        over: OverLimit,
    },
    /// A tar header that we do not take.
    #[error("refused tar archive: {0}")]
    BadHeader(#[from] BadHeader),
    /// A zip record that we do not take.
    #[error("refused zip archive: {0}")]
    BadZip(#[from] BadZip),
    /// It ends in the middle.
    #[error("the archive is cut short")]
    CutShort,
    /// Somebody wanted it stopped.
    #[error("cancelled")]
    Cancelled,
    /// It cannot be read, or decompressed.
    #[error("cannot read archive: {0}")]
    Read(#[source] io::Error),
    /// The disk did not take an entry. The operator must act if it is full.
    #[error("cannot write {entry}: {source}")]
    Write {
        /// The entry, escaped.
        entry: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl UnpackError {
    /// One kind of refusal for all limits, of paths too.
    pub(super) fn path(raw: &[u8], bad: BadPath) -> UnpackError {
        let entry = super::entry_path::printable(raw);
        match bad {
            BadPath::OverLimit(over) => UnpackError::OverLimit { entry, over },
            bad @ (BadPath::Absolute | BadPath::Parent | BadPath::Nul | BadPath::Empty) => {
                UnpackError::Refused { entry, refusal: UnpackRefusal::Path(bad) }
            }
        }
    }

    pub(super) fn between(over: OverLimit) -> UnpackError {
        UnpackError::OverLimit { entry: String::new(), over }
    }
}

/// Unpacks an archive into a folder.
pub fn unpack(archive: &File, into: &DirHandle, order: Order<'_>) -> Result<Unpacked, UnpackError> {
    let mut place = Extractor::new(into, order.purpose, order.ownership);
    let mut watch = UnpackGuard {
        meter: Meter::new(order.limits),
        cancel: order.cancel,
        progress: order.progress,
        left_out: 0,
    };
    let start = FileAt { file: archive, offset: 0 };
    match order.format {
        Format::Tar => untar(start, |it| it.offset, &mut place, &mut watch)?,
        Format::TarGz => {
            let plain = flate2::read::MultiGzDecoder::new(start);
            untar(plain, |it| it.get_ref().offset, &mut place, &mut watch)?;
        }
        Format::Zip => unzip(archive, &mut place, &mut watch)?,
    }
    place.finish()?;
    Ok(Unpacked { read: watch.now(), left_out: watch.left_out })
}

/// What both unpackers look at while they work.
pub(super) struct UnpackGuard<'a> {
    pub(super) meter: Meter,
    cancel: &'a Cancel,
    progress: &'a mut dyn FnMut(Progress),
    left_out: u64,
}

impl UnpackGuard<'_> {
    fn now(&self) -> Progress {
        Progress { bytes: self.meter.bytes(), entries: self.meter.entries() }
    }

    /// Between blocks and entries.
    pub(super) fn step(&mut self) -> Result<(), UnpackError> {
        if self.cancel.is_cancelled() {
            return Err(UnpackError::Cancelled);
        }
        let now = self.now();
        (self.progress)(now);
        Ok(())
    }

    /// Devices, pipes and sockets: left out or refused.
    pub(super) fn device(
        &mut self,
        place: &Extractor,
        path: &EntryPath,
    ) -> Result<(), UnpackError> {
        match place.purpose() {
            Purpose::Download => Err(UnpackRefusal::Device.at(path)),
            Purpose::RootFileSystem => {
                tracing::debug!(%path, "left a device out of a root file system");
                self.left_out += 1;
                Ok(())
            }
        }
    }

    /// A checked path of an entry, counted.
    pub(super) fn path(&mut self, raw: &[u8], place: &Extractor) -> Result<EntryPath, UnpackError> {
        let path = EntryPath::parse(raw, self.meter.limits());
        let path = path.map_err(|bad| UnpackError::path(raw, bad))?;
        let counted = self.meter.add_path(path.as_bytes().len());
        counted.map_err(|over| UnpackError::OverLimit { entry: path.to_string(), over })?;
        if place.purpose() == Purpose::RootFileSystem && path.is_whiteout() {
            return Err(UnpackRefusal::Whiteout.at(&path));
        }
        Ok(path)
    }

    /// The text of a symbolic link, checked.
    pub(super) fn link_text(&self, path: &EntryPath, text: &[u8]) -> Result<(), UnpackError> {
        let allowed = self.meter.limits().link_bytes;
        OverLimit::check("link_bytes", allowed, text.len() as u64)
            .map_err(|over| UnpackError::OverLimit { entry: path.to_string(), over })?;
        if text.is_empty() || text.contains(&0) {
            return Err(UnpackRefusal::LinkText.at(path));
        }
        Ok(())
    }
}

/// Writes a chunk of an entry.
pub(super) fn write(file: &mut File, path: &EntryPath, chunk: &[u8]) -> Result<(), UnpackError> {
    let written = file.write_all(chunk);
    written.map_err(|source| UnpackError::Write { entry: path.to_string(), source })
}

/// A file read from an offset on, without moving the position that others may share.
#[derive(Debug)]
pub(super) struct FileAt<'a> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
}

impl Read for FileAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
