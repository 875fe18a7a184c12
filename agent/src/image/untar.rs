//! Reads a tar archive block by block and places its entries. The headers are judged in `tar.rs`,
//! the disk is `extract.rs`; this file knows the order of the blocks.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;

use super::entry_path::{EntryPath, printable};
use super::extract::{EntryAttributes, Extractor};
use super::limits::OverLimit;
use super::tar::{BLOCK_BYTES, BadHeader, Extended, Header, TarEntryKind, parse_block};
use super::unpack::{CHUNK_BYTES, UnpackError, UnpackGuard, UnpackRefusal, write};

/// Unpacks all entries. `packed` says how many bytes the reader has taken of the archive itself.
pub(super) fn untar<R: Read>(
    input: R,
    packed: fn(&R) -> u64,
    place: &mut Extractor<'_>,
    watch: &mut UnpackGuard<'_>,
) -> Result<(), UnpackError> {
    let mut blocks = Blocks { input, packed };
    let mut extended = Extended::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        watch.step()?;
        let mut block = [0; BLOCK_BYTES];
        blocks.read(&mut block, watch)?;
        let Some(header) = parse_block(&block)? else { break };
        let name = printable(&header.path);
        let over = |over| UnpackError::OverLimit { entry: name.clone(), over };
        watch.meter.add_entry().map_err(over)?;
        match header.kind {
            TarEntryKind::Pax
            | TarEntryKind::PaxGlobal
            | TarEntryKind::LongName
            | TarEntryKind::LongLink
            | TarEntryKind::Label => {
                let allowed = watch.meter.limits().header_bytes;
                OverLimit::check("header_bytes", allowed, header.size).map_err(over)?;
                let data = blocks.read_padded(header.size, watch)?;
                extended.add(header.kind, &data)?;
            }
            TarEntryKind::File
            | TarEntryKind::HardLink
            | TarEntryKind::Symlink
            | TarEntryKind::CharDevice
            | TarEntryKind::BlockDevice
            | TarEntryKind::Folder
            | TarEntryKind::Fifo => {
                let header = std::mem::take(&mut extended).apply(header)?;
                entry(header, &mut blocks, &mut buffer, place, watch)?;
            }
        }
    }
    if !extended.is_empty() {
        return Err(BadHeader::Dangling.into());
    }
    blocks.drain(&mut buffer, watch)
}

fn entry<R: Read>(
    header: Header,
    blocks: &mut Blocks<R>,
    buffer: &mut [u8],
    place: &mut Extractor<'_>,
    watch: &mut UnpackGuard<'_>,
) -> Result<(), UnpackError> {
    let path = watch.path(&header.path, place)?;
    let attributes = EntryAttributes {
        mode: header.mode,
        uid: header.uid,
        gid: header.gid,
        modified: header.modified,
    };
    match header.kind {
        TarEntryKind::Folder => place.folder(&path, attributes),
        TarEntryKind::File => {
            let announced = watch.meter.announce(header.size);
            announced.map_err(|over| UnpackError::OverLimit { entry: path.to_string(), over })?;
            let mut file = place.file(&path)?;
            let mut left = header.size;
            while left > 0 {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                blocks.read(&mut buffer[..take], watch)?;
                write(&mut file, &path, &buffer[..take])?;
                left -= take as u64;
                watch.step()?;
            }
            blocks.skip_padding(header.size, watch)?;
            place.finish_file(&path, &file, attributes)
        }
        TarEntryKind::Symlink => {
            watch.link_text(&path, &header.link)?;
            place.symlink(&path, OsStr::from_bytes(&header.link), attributes)
        }
        TarEntryKind::HardLink => {
            let target = EntryPath::parse(&header.link, watch.meter.limits());
            let target = target.map_err(|bad| UnpackError::path(&header.link, bad))?;
            place.hard_link(&path, &target)
        }
        TarEntryKind::CharDevice if header.is_device_zero => Err(UnpackRefusal::Whiteout.at(&path)),
        TarEntryKind::CharDevice | TarEntryKind::BlockDevice | TarEntryKind::Fifo => {
            watch.device(place, &path)
        }
        TarEntryKind::Pax
        | TarEntryKind::PaxGlobal
        | TarEntryKind::LongName
        | TarEntryKind::LongLink
        | TarEntryKind::Label => {
            debug_assert!(false, "extended headers are taken by the caller");
            Err(BadHeader::Dangling.into())
        }
    }
}

/// The decompressed archive, every byte of it counted.
struct Blocks<R> {
    input: R,
    packed: fn(&R) -> u64,
}

impl<R: Read> Blocks<R> {
    fn read(&mut self, buffer: &mut [u8], watch: &mut UnpackGuard<'_>) -> Result<(), UnpackError> {
        self.input.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => UnpackError::CutShort,
            _ => UnpackError::Read(error),
        })?;
        let packed = (self.packed)(&self.input);
        watch.meter.add_bytes(buffer.len() as u64, packed).map_err(UnpackError::between)
    }

    fn read_padded(
        &mut self,
        size: u64,
        watch: &mut UnpackGuard<'_>,
    ) -> Result<Vec<u8>, UnpackError> {
        let length = usize::try_from(size).map_err(|_| UnpackError::CutShort)?;
        let mut data = vec![0; length];
        self.read(&mut data, watch)?;
        self.skip_padding(size, watch)?;
        Ok(data)
    }

    fn skip_padding(&mut self, size: u64, watch: &mut UnpackGuard<'_>) -> Result<(), UnpackError> {
        let mut padding = [0; BLOCK_BYTES];
        // At most 511, so the conversion cannot fail.
        let rest = usize::try_from(size % BLOCK_BYTES as u64).unwrap_or(0);
        if rest == 0 { Ok(()) } else { self.read(&mut padding[rest..], watch) }
    }

    /// Reads what is behind the end, so that gzip's own checksum is checked.
    fn drain(&mut self, buffer: &mut [u8], watch: &mut UnpackGuard<'_>) -> Result<(), UnpackError> {
        loop {
            let read = match self.input.read(buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(UnpackError::Read(error)),
            };
            let packed = (self.packed)(&self.input);
            watch.meter.add_bytes(read, packed).map_err(UnpackError::between)?;
            watch.step()?;
        }
    }
}
