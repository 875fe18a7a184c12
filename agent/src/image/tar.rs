//! The headers of a tar archive: blocks of bytes in, checked values out. Pure.
//!
//! Knows v7, ustar, GNU (long names, base-256 numbers) and pax. Where readers of tar disagree about
//! what a header means, it is refused: sparse files, data behind a kind that has none, a global pax
//! header that renames, a long name with something behind its NUL. `untar.rs` reads the blocks.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::ops::Range;

/// The size of a block; everything in a tar archive is a multiple of it.
pub const BLOCK_BYTES: usize = 512;

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const MAJOR: Range<usize> = 329..337;
const MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;

/// What kind of entry a header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarEntryKind {
    /// A regular file.
    File,
    /// Another name for a file of the archive.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A folder.
    Folder,
    /// A named pipe.
    Fifo,
    /// Extended header of the next entry.
    Pax,
    /// Extended header of all later entries.
    PaxGlobal,
    /// GNU: the path of the next entry.
    LongName,
    /// GNU: the link target of the next entry.
    LongLink,
    /// GNU: the name of the volume. Means nothing to us.
    Label,
}

/// Seconds since 1970, and the nanoseconds after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModifiedAt {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Below 1 000 000 000.
    pub nanoseconds: u32,
}

/// One header, as the archive has it: paths are not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What it announces.
    pub kind: TarEntryKind,
    /// The path.
    pub path: Vec<u8>,
    /// The target, of links.
    pub link: Vec<u8>,
    /// The bytes that follow.
    pub size: u64,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u64,
    /// The group.
    pub gid: u64,
    /// When it was last changed.
    pub modified: ModifiedAt,
    /// Whether major and minor number are both 0: the whiteout of overlayfs, if a character device.
    pub is_device_zero: bool,
}

/// A header that we do not take. The archive is damaged, hostile, or of a dialect we refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// Not a header, or damaged.
    #[error("the checksum of a tar header is wrong")]
    Checksum,
    /// A number field has something else in it, or more than 63 bits.
    #[error("the field {0} of a tar header is no number we can take")]
    Number(&'static str),
    /// A size below zero.
    #[error("a tar header has a negative size")]
    NegativeSize,
    /// Sparse files of any dialect.
    #[error("sparse tar entries are not taken")]
    Sparse,
    /// A kind that we do not know, or that spans volumes.
    #[error("tar entries of kind {0:#04x} are not taken")]
    UnknownKind(u8),
    /// Readers disagree whether these bytes are data or the next header.
    #[error("a tar entry that can have no data announces {0} bytes of it")]
    UnwantedData(u64),
    /// A pax header that does not follow its grammar, or says what it may not.
    #[error("bad pax header: {0}")]
    Pax(&'static str),
    /// A GNU long name with something behind its NUL, or none in it.
    #[error("bad GNU long name")]
    LongName,
    /// An extended header that no entry follows.
    #[error("an extended tar header at the end of the archive")]
    Dangling,
}

/// Reads a block. `None` is the block of zeroes that ends an archive.
pub fn parse_block(block: &[u8; BLOCK_BYTES]) -> Result<Option<Header>, BadHeader> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    check_sum(block)?;
    let mut path = text(&block[NAME]).to_vec();
    // Only POSIX has a prefix; GNU keeps other things in these bytes.
    if block[MAGIC] == *b"ustar\x0000" && block[PREFIX.start] != 0 {
        let mut long = text(&block[PREFIX]).to_vec();
        long.push(b'/');
        long.extend_from_slice(&path);
        path = long;
    }
    let kind = match block[KIND] {
        // Before ustar there was no kind for folders; all readers go by the slash.
        0 | b'0' | b'7' if path.ends_with(b"/") => TarEntryKind::Folder,
        0 | b'0' | b'7' => TarEntryKind::File,
        b'1' => TarEntryKind::HardLink,
        b'2' => TarEntryKind::Symlink,
        b'3' => TarEntryKind::CharDevice,
        b'4' => TarEntryKind::BlockDevice,
        b'5' => TarEntryKind::Folder,
        b'6' => TarEntryKind::Fifo,
        b'x' | b'X' => TarEntryKind::Pax,
        b'g' => TarEntryKind::PaxGlobal,
        b'L' => TarEntryKind::LongName,
        b'K' => TarEntryKind::LongLink,
        b'V' => TarEntryKind::Label,
        b'S' => return Err(BadHeader::Sparse),
        other => return Err(BadHeader::UnknownKind(other)),
    };
    let size = number(&block[SIZE], "size")?;
    if size < 0 {
        return Err(BadHeader::NegativeSize);
    }
    let mode = number(&block[MODE], "mode")?;
    let is_device = matches!(kind, TarEntryKind::CharDevice | TarEntryKind::BlockDevice);
    Ok(Some(Header {
        kind,
        path,
        link: text(&block[LINK]).to_vec(),
        size: size.unsigned_abs(),
        mode: u32::try_from(mode & 0o7777).map_err(|_| BadHeader::Number("mode"))?,
        uid: unsigned(&block[UID], "uid")?,
        gid: unsigned(&block[GID], "gid")?,
        modified: ModifiedAt { seconds: number(&block[MTIME], "mtime")?, nanoseconds: 0 },
        is_device_zero: is_device
            && number(&block[MAJOR], "major")? == 0
            && number(&block[MINOR], "minor")? == 0,
    }))
}

/// What extended headers said about the entry that follows them.
#[derive(Debug, Default)]
pub struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<ModifiedAt>,
}

impl Extended {
    /// Takes the data of an extended header in. A later one of the same kind wins.
    pub fn add(&mut self, kind: TarEntryKind, data: &[u8]) -> Result<(), BadHeader> {
        match kind {
            TarEntryKind::Pax => self.add_pax(data),
            TarEntryKind::PaxGlobal => {
                // Only the comment of `git archive` and the like: nothing that changes entries.
                let mut scratch = Extended::default();
                scratch.add_pax(data)?;
                match scratch {
                    Extended { path: None, link: None, size: None, .. } => Ok(()),
                    Extended { .. } => Err(BadHeader::Pax("a global path, link or size")),
                }
            }
            TarEntryKind::LongName => {
                self.long_path = Some(long_text(data)?);
                Ok(())
            }
            TarEntryKind::LongLink => {
                self.long_link = Some(long_text(data)?);
                Ok(())
            }
            TarEntryKind::Label => Ok(()),
            TarEntryKind::File
            | TarEntryKind::HardLink
            | TarEntryKind::Symlink
            | TarEntryKind::CharDevice
            | TarEntryKind::BlockDevice
            | TarEntryKind::Folder
            | TarEntryKind::Fifo => Err(BadHeader::Pax("not an extended header")),
        }
    }

    /// Whether nothing waits for an entry.
    pub fn is_empty(&self) -> bool {
        matches!(
            self,
            Extended {
                path: None,
                link: None,
                long_path: None,
                long_link: None,
                size: None,
                uid: None,
                gid: None,
                modified: None,
            }
        )
    }

    /// The entry as the headers together tell it. Pax is stronger than GNU, and both than the block.
    pub fn apply(self, mut header: Header) -> Result<Header, BadHeader> {
        let is_folder = header.path.ends_with(b"/");
        if let Some(path) = self.path.or(self.long_path) {
            // The slash at the end of an old folder's name may be in the long name only.
            if header.kind == TarEntryKind::File && path.ends_with(b"/") && !is_folder {
                header.kind = TarEntryKind::Folder;
            }
            header.path = path;
        }
        header.link = self.link.or(self.long_link).unwrap_or(header.link);
        header.size = self.size.unwrap_or(header.size);
        header.uid = self.uid.unwrap_or(header.uid);
        header.gid = self.gid.unwrap_or(header.gid);
        header.modified = self.modified.unwrap_or(header.modified);
        if header.kind != TarEntryKind::File && header.size != 0 {
            return Err(BadHeader::UnwantedData(header.size));
        }
        Ok(header)
    }

    /// Records `<length> <key>=<value>\n`, the length counting all of itself.
    fn add_pax(&mut self, mut data: &[u8]) -> Result<(), BadHeader> {
        while !data.is_empty() {
            let space = data.iter().position(|byte| *byte == b' ');
            let space = space.ok_or(BadHeader::Pax("no length"))?;
            let length = digits(&data[..space]).and_then(|it| usize::try_from(it).ok());
            let length = length.filter(|it| *it > space + 1 && *it <= data.len());
            let length = length.ok_or(BadHeader::Pax("bad length"))?;
            let record = &data[space + 1..length];
            let record = record.strip_suffix(b"\n").ok_or(BadHeader::Pax("no line end"))?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let equals = equals.ok_or(BadHeader::Pax("no `=`"))?;
            self.add_record(&record[..equals], &record[equals + 1..])?;
            data = &data[length..];
        }
        Ok(())
    }

    /// Keys that we do not use are passed over; among them extended attributes, on purpose: with
    /// them an archive could plant `trusted.overlay.*` or file capabilities.
    fn add_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), BadHeader> {
        if key.starts_with(b"GNU.sparse.") || key == b"SCHILY.realsize" {
            return Err(BadHeader::Sparse);
        }
        let given = !value.is_empty();
        match key {
            b"path" => self.path = given.then(|| value.to_vec()),
            b"linkpath" => self.link = given.then(|| value.to_vec()),
            b"size" if value.starts_with(b"-") => return Err(BadHeader::NegativeSize),
            b"size" => self.size = optional(value, digits, "size")?,
            b"uid" => self.uid = optional(value, digits, "uid")?,
            b"gid" => self.gid = optional(value, digits, "gid")?,
            b"mtime" => self.modified = optional(value, decimal_time, "mtime")?,
            _ => {}
        }
        Ok(())
    }
}

/// An empty value takes back what an earlier header said.
fn optional<T>(
    value: &[u8],
    parse: fn(&[u8]) -> Option<T>,
    field: &'static str,
) -> Result<Option<T>, BadHeader> {
    if value.is_empty() {
        return Ok(None);
    }
    parse(value).map(Some).ok_or(BadHeader::Number(field))
}

fn check_sum(block: &[u8; BLOCK_BYTES]) -> Result<(), BadHeader> {
    let stored = number(&block[CHECKSUM], "checksum").map_err(|_| BadHeader::Checksum)?;
    let byte = |at: usize| if CHECKSUM.contains(&at) { b' ' } else { block[at] };
    // Old tars added the bytes as signed ones.
    let unsigned: i64 = (0..BLOCK_BYTES).map(|at| i64::from(byte(at))).sum();
    let signed: i64 = (0..BLOCK_BYTES).map(|at| i64::from(byte(at).cast_signed())).sum();
    if stored == unsigned || stored == signed { Ok(()) } else { Err(BadHeader::Checksum) }
}

/// Up to the first NUL, or all of the field.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A long name ends with NUL bytes; one in the middle would hide what is behind it.
fn long_text(data: &[u8]) -> Result<Vec<u8>, BadHeader> {
    let name = text(data);
    let rest = &data[name.len()..];
    if name.is_empty() || rest.iter().any(|byte| *byte != 0) {
        return Err(BadHeader::LongName);
    }
    Ok(name.to_vec())
}

fn unsigned(field: &[u8], name: &'static str) -> Result<u64, BadHeader> {
    u64::try_from(number(field, name)?).map_err(|_| BadHeader::Number(name))
}

/// Octal text, or base 256 with the first bit set. The second bit is the sign then.
fn number(field: &[u8], name: &'static str) -> Result<i64, BadHeader> {
    let bad = BadHeader::Number(name);
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let negative = first & 0x40 != 0;
        let start = if negative { i64::from(first | 0x80) - 256 } else { i64::from(first & 0x3f) };
        return rest.iter().try_fold(start, |value, byte| {
            value.checked_mul(256).and_then(|it| it.checked_add(i64::from(*byte))).ok_or(bad)
        });
    }
    let text = field.trim_ascii_start();
    let end = text.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(text.len());
    let (octal, rest) = text.split_at(end);
    if rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err(bad);
    }
    octal.iter().try_fold(0_i64, |value, byte| match byte {
        b'0'..=b'7' => {
            value.checked_mul(8).and_then(|it| it.checked_add(i64::from(byte - b'0'))).ok_or(bad)
        }
        _ => Err(bad),
    })
}

/// Decimal digits up to 63 bits; at least one.
fn digits(text: &[u8]) -> Option<u64> {
    let value = text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    (!text.is_empty() && i64::try_from(value).is_ok()).then_some(value)
}

/// `-12.5` as seconds and nanoseconds, the latter never negative.
fn decimal_time(text: &[u8]) -> Option<ModifiedAt> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = i64::try_from(digits(parts.next()?)?).ok()?;
    let mut fraction = parts.next().unwrap_or_default().to_vec();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    fraction.resize(9, b'0');
    let nanoseconds = u32::try_from(digits(&fraction)?).ok()?;
    Some(match (negative, nanoseconds) {
        (false, nanoseconds) => ModifiedAt { seconds: whole, nanoseconds },
        (true, 0) => ModifiedAt { seconds: -whole, nanoseconds: 0 },
        (true, part) => ModifiedAt { seconds: -whole - 1, nanoseconds: 1_000_000_000 - part },
    })
}

#[cfg(test)]
mod tests;
