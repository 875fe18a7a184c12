//! Reads a zip archive by its central directory and places its entries. The records are judged in
//! `zip.rs`, the disk is `extract.rs`.
//!
//! An entry gives exactly the bytes that it announces, with its checksum, or the archive is refused;
//! no two entries share a byte of the archive.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use super::entry_path::printable;
use super::extract::{EntryAttributes, Extractor};
use super::limits::OverLimit;
use super::unpack::{CHUNK_BYTES, FileAt, UnpackError, UnpackGuard, UnpackRefusal, write};
use super::zip::{
    BadZip, CENTRAL_BYTES, Central, Directory, END_BYTES, END64_BYTES, LOCAL_BYTES, LOCATOR_BYTES,
    Method, TAIL_BYTES, ZipEntryKind, apply_extra, check_local, find_end, parse_central, parse_end,
    parse_end64, parse_locator,
};

/// Unpacks all entries, in the order of the directory.
pub(super) fn unzip(
    archive: &File,
    place: &mut Extractor<'_>,
    watch: &mut UnpackGuard<'_>,
) -> Result<(), UnpackError> {
    let length = archive.metadata().map_err(UnpackError::Read)?.len();
    let directory = directory(archive, length)?;
    let end = directory.offset.checked_add(directory.bytes).filter(|end| *end <= length);
    let end = end.ok_or(BadZip::Missing("central directory"))?;
    let start = FileAt { file: archive, offset: directory.offset };
    let mut records = BufReader::new(start.take(end - directory.offset));
    let mut zip = Zip { archive, directory, taken: BTreeMap::new(), packed: 0 };
    let allowed = watch.meter.limits().entries;
    OverLimit::check("entries", allowed, directory.entries).map_err(UnpackError::between)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for _ in 0..directory.entries {
        watch.step()?;
        watch.meter.add_entry().map_err(UnpackError::between)?;
        let mut record = [0; CENTRAL_BYTES];
        fill(&mut records, &mut record)?;
        let mut entry = parse_central(&record)?;
        let mut name = vec![0; entry.name_bytes];
        fill(&mut records, &mut name)?;
        let mut extra = vec![0; entry.extra_bytes];
        fill(&mut records, &mut extra)?;
        let mut comment = vec![0; entry.comment_bytes];
        fill(&mut records, &mut comment)?;
        apply_extra(&mut entry, &extra)?;
        zip.entry(&entry, &name, &mut buffer, place, watch)?;
    }
    Ok(())
}

fn directory(archive: &File, length: u64) -> Result<Directory, UnpackError> {
    let tail_bytes = usize::try_from(length).unwrap_or(usize::MAX).min(TAIL_BYTES);
    let tail_start = length - tail_bytes as u64;
    let mut tail = vec![0; tail_bytes];
    archive.read_exact_at(&mut tail, tail_start).map_err(cut_short)?;
    let at = find_end(&tail)?;
    let mut end = [0; END_BYTES];
    end.copy_from_slice(&tail[at..at + END_BYTES]);
    if let Some(directory) = parse_end(&end)? {
        return Ok(directory);
    }
    let at = (tail_start + at as u64).checked_sub(LOCATOR_BYTES as u64);
    let mut locator = [0; LOCATOR_BYTES];
    let at = at.ok_or(BadZip::Missing("zip64 locator"))?;
    archive.read_exact_at(&mut locator, at).map_err(cut_short)?;
    let mut end64 = [0; END64_BYTES];
    archive.read_exact_at(&mut end64, parse_locator(&locator)?).map_err(cut_short)?;
    Ok(parse_end64(&end64)?)
}

struct Zip<'a> {
    archive: &'a File,
    directory: Directory,
    /// The bytes of the archive that belong to an entry: begin → end.
    taken: BTreeMap<u64, u64>,
    /// Bytes of all entries so far, before decompression.
    packed: u64,
}

impl Zip<'_> {
    fn entry(
        &mut self,
        entry: &Central,
        name: &[u8],
        buffer: &mut [u8],
        place: &mut Extractor<'_>,
        watch: &mut UnpackGuard<'_>,
    ) -> Result<(), UnpackError> {
        let path = watch.path(name, place)?;
        let kind = entry.kind(name);
        // Packers list folders behind what is in them, too: the folder made for that is no duplicate.
        let is_listed_now = kind == ZipEntryKind::Folder && place.has_made_folder(&path);
        if place.has_made(&path) && !is_listed_now {
            return Err(UnpackRefusal::Duplicate.at(&path));
        }
        watch.meter.announce(entry.bytes).map_err(|over| at(name, over))?;
        let data = self.data(entry, name)?;
        let mode = entry.permissions(kind);
        let attributes = EntryAttributes { mode, uid: 0, gid: 0, modified: entry.modified };
        match kind {
            ZipEntryKind::Folder if entry.bytes != 0 => {
                Err(BadZip::Size { announced: 0, given: entry.bytes }.into())
            }
            ZipEntryKind::Folder => place.folder(&path, attributes),
            ZipEntryKind::Device => watch.device(place, &path),
            ZipEntryKind::File => {
                let mut file = place.file(&path)?;
                self.copy(entry, data, buffer, watch, |chunk| write(&mut file, &path, chunk))?;
                place.finish_file(&path, &file, attributes)
            }
            ZipEntryKind::Symlink => {
                let allowed = watch.meter.limits().link_bytes;
                OverLimit::check("link_bytes", allowed, entry.bytes)
                    .map_err(|over| at(name, over))?;
                let mut text = Vec::new();
                self.copy(entry, data, buffer, watch, |chunk| {
                    text.extend_from_slice(chunk);
                    Ok(())
                })?;
                watch.link_text(&path, &text)?;
                place.symlink(&path, OsStr::from_bytes(&text), attributes)
            }
        }
    }

    /// Where an entry's bytes begin. Its local header must say the same as the directory.
    fn data(&mut self, entry: &Central, name: &[u8]) -> Result<u64, UnpackError> {
        let mut record = [0; LOCAL_BYTES];
        self.archive.read_exact_at(&mut record, entry.offset).map_err(cut_short)?;
        let (name_bytes, extra_bytes) = check_local(&record, entry)?;
        let mut local_name = vec![0; name_bytes];
        let name_at = entry.offset.saturating_add(LOCAL_BYTES as u64);
        self.archive.read_exact_at(&mut local_name, name_at).map_err(cut_short)?;
        if local_name != name {
            return Err(BadZip::Lie("name").into());
        }
        let data = name_at.saturating_add((name_bytes + extra_bytes) as u64);
        let end = data.saturating_add(entry.packed_bytes);
        if end > self.directory.offset {
            return Err(BadZip::Overlap.into());
        }
        let before = self.taken.range(..end).next_back();
        if before.is_some_and(|(_, before_end)| *before_end > entry.offset) {
            return Err(BadZip::Overlap.into());
        }
        self.taken.insert(entry.offset, end);
        Ok(data)
    }

    fn copy(
        &mut self,
        entry: &Central,
        data: u64,
        buffer: &mut [u8],
        watch: &mut UnpackGuard<'_>,
        mut sink: impl FnMut(&[u8]) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        self.packed = self.packed.saturating_add(entry.packed_bytes);
        let packed = FileAt { file: self.archive, offset: data }.take(entry.packed_bytes);
        let mut input: Box<dyn Read> = match entry.method {
            Method::Stored => Box::new(packed),
            Method::Deflated => Box::new(flate2::read::DeflateDecoder::new(packed)),
        };
        let mut crc = crc32fast::Hasher::new();
        let mut given = 0;
        loop {
            let read = match input.read(buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(UnpackError::Read(error)),
            };
            given += read as u64;
            if given > entry.bytes {
                return Err(BadZip::Size { announced: entry.bytes, given }.into());
            }
            watch.meter.add_bytes(read as u64, self.packed).map_err(UnpackError::between)?;
            crc.update(&buffer[..read]);
            sink(&buffer[..read])?;
            watch.step()?;
        }
        if given != entry.bytes {
            return Err(BadZip::Size { announced: entry.bytes, given }.into());
        }
        if crc.finalize() != entry.crc32 {
            return Err(BadZip::Checksum.into());
        }
        Ok(())
    }
}

fn at(name: &[u8], over: OverLimit) -> UnpackError {
    UnpackError::OverLimit { entry: printable(name), over }
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<(), UnpackError> {
    input.read_exact(buffer).map_err(cut_short)
}

fn cut_short(error: io::Error) -> UnpackError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => UnpackError::CutShort,
        _ => UnpackError::Read(error),
    }
}

#[cfg(test)]
mod tests;
