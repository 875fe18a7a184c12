//! The records of a zip archive: bytes in, checked values out. Pure.
//!
//! The central directory is the truth; what a local header says otherwise is a lie and refused.
//! Stored and deflated entries only, zip64 included; no encryption, no volumes. `unzip.rs` reads.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use super::tar::ModifiedAt;

/// The record at the end of an archive, without its comment.
pub const END_BYTES: usize = 22;
/// The longest tail in which the end record can be: a comment has at most 65 535 bytes.
pub const TAIL_BYTES: usize = END_BYTES + 0xffff;
/// The record that says where the zip64 end record is; it stands before the end record.
pub const LOCATOR_BYTES: usize = 20;
/// The fixed part of the zip64 end record.
pub const END64_BYTES: usize = 56;
/// The fixed part of an entry of the central directory.
pub const CENTRAL_BYTES: usize = 46;
/// The fixed part of a local header.
pub const LOCAL_BYTES: usize = 30;

/// A zip archive that we do not take: damaged, hostile, or of a kind we refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadZip {
    /// There is no end record, or something behind it.
    #[error("no end record at the end")]
    NoEnd,
    /// A record is not where another says.
    #[error("no {0} where one is announced")]
    Missing(&'static str),
    /// It wants further files.
    #[error("archives of several volumes are not taken")]
    Volumes,
    /// A password is needed, or the directory is hidden.
    #[error("encrypted entries are not taken")]
    Encrypted,
    /// Neither stored nor deflated.
    #[error("compression method {0} is not taken")]
    Method(u16),
    /// Two records of one entry disagree.
    #[error("two records of an entry differ in {0}")]
    Lie(&'static str),
    /// An entry has more or fewer bytes than announced.
    #[error("an entry announces {announced} bytes and has {given}")]
    Size {
        /// What the directory says.
        announced: u64,
        /// What came out, up to one byte more than announced.
        given: u64,
    },
    /// The bytes are not those that were packed.
    #[error("an entry's checksum is wrong")]
    Checksum,
    /// Two entries share bytes: the trick of the densest bombs.
    #[error("entries overlap")]
    Overlap,
    /// An extra field that does not fit, or lacks a number.
    #[error("a bad extra field")]
    Extra,
}

/// Where the central directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// How many entries it has.
    pub entries: u64,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// How an entry is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Stored,
    /// Deflate.
    Deflated,
}

/// What an entry is, as its Unix mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZipEntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link: its data is the text.
    Symlink,
    /// A device, pipe or socket.
    Device,
}

/// The fixed part of an entry of the central directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Central {
    /// How it is packed.
    pub method: Method,
    /// The checksum of its bytes.
    pub crc32: u32,
    /// Bytes in the archive.
    pub packed_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Where its local header is.
    pub offset: u64,
    /// The Unix mode with its kind; 0 if it was made on another system.
    pub unix_mode: u32,
    /// When it was last changed.
    pub modified: ModifiedAt,
    /// How long the name, the extra field and the comment are that follow.
    pub name_bytes: usize,
    /// See `name_bytes`.
    pub extra_bytes: usize,
    /// See `name_bytes`.
    pub comment_bytes: usize,
}

impl Central {
    /// What it is. The slash decides where the mode says nothing.
    pub fn kind(&self, name: &[u8]) -> ZipEntryKind {
        match self.unix_mode & 0o170_000 {
            0o040_000 => ZipEntryKind::Folder,
            0o120_000 => ZipEntryKind::Symlink,
            0 | 0o100_000 if name.ends_with(b"/") => ZipEntryKind::Folder,
            0 | 0o100_000 => ZipEntryKind::File,
            _ => ZipEntryKind::Device,
        }
    }

    /// Permission bits; what was packed elsewhere gets the usual ones.
    pub fn permissions(&self, kind: ZipEntryKind) -> u32 {
        match (self.unix_mode, kind) {
            (0, ZipEntryKind::Folder) => 0o755,
            (0, ZipEntryKind::File | ZipEntryKind::Symlink | ZipEntryKind::Device) => 0o644,
            (
                mode,
                ZipEntryKind::File
                | ZipEntryKind::Folder
                | ZipEntryKind::Symlink
                | ZipEntryKind::Device,
            ) => mode & 0o7777,
        }
    }
}

/// Finds the end record in the tail of an archive: its offset in the tail. It must end the file.
pub fn find_end(tail: &[u8]) -> Result<usize, BadZip> {
    let last = tail.len().checked_sub(END_BYTES).ok_or(BadZip::NoEnd)?;
    (0..=last)
        .rev()
        .find(|at| {
            let record = &tail[*at..];
            record.starts_with(b"PK\x05\x06")
                && usize::from(u16_at(record, 20)) == record.len() - END_BYTES
        })
        .ok_or(BadZip::NoEnd)
}

/// Reads the end record. `None`: the numbers are too big for it and stand in the zip64 one.
pub fn parse_end(record: &[u8; END_BYTES]) -> Result<Option<Directory>, BadZip> {
    let (here, all) = (u16_at(record, 8), u16_at(record, 10));
    let (bytes, offset) = (u32_at(record, 12), u32_at(record, 16));
    if here == u16::MAX || all == u16::MAX || bytes == u32::MAX || offset == u32::MAX {
        return Ok(None);
    }
    if u16_at(record, 4) != 0 || u16_at(record, 6) != 0 || here != all {
        return Err(BadZip::Volumes);
    }
    Ok(Some(Directory { entries: all.into(), offset: offset.into(), bytes: bytes.into() }))
}

/// Reads where the zip64 end record is.
pub fn parse_locator(record: &[u8; LOCATOR_BYTES]) -> Result<u64, BadZip> {
    if !record.starts_with(b"PK\x06\x07") {
        return Err(BadZip::Missing("zip64 locator"));
    }
    if u32_at(record, 4) != 0 || u32_at(record, 16) > 1 {
        return Err(BadZip::Volumes);
    }
    Ok(u64_at(record, 8))
}

/// Reads the zip64 end record.
pub fn parse_end64(record: &[u8; END64_BYTES]) -> Result<Directory, BadZip> {
    if !record.starts_with(b"PK\x06\x06") {
        return Err(BadZip::Missing("zip64 end record"));
    }
    let (here, all) = (u64_at(record, 24), u64_at(record, 32));
    if u32_at(record, 16) != 0 || u32_at(record, 20) != 0 || here != all {
        return Err(BadZip::Volumes);
    }
    Ok(Directory { entries: all, bytes: u64_at(record, 40), offset: u64_at(record, 48) })
}

/// Reads the fixed part of an entry of the central directory.
pub fn parse_central(record: &[u8; CENTRAL_BYTES]) -> Result<Central, BadZip> {
    if !record.starts_with(b"PK\x01\x02") {
        return Err(BadZip::Missing("directory entry"));
    }
    check_flags(u16_at(record, 8))?;
    if u16_at(record, 34) != 0 {
        return Err(BadZip::Volumes);
    }
    // The upper byte of "version made by" is the system: 3 is Unix, 19 is macOS.
    let is_unix = matches!(record[5], 3 | 19);
    Ok(Central {
        method: method(u16_at(record, 10))?,
        crc32: u32_at(record, 16),
        packed_bytes: u32_at(record, 20).into(),
        bytes: u32_at(record, 24).into(),
        offset: u32_at(record, 42).into(),
        unix_mode: if is_unix { u32_at(record, 38) >> 16 } else { 0 },
        modified: dos_time(u16_at(record, 14), u16_at(record, 12)),
        name_bytes: u16_at(record, 28).into(),
        extra_bytes: u16_at(record, 30).into(),
        comment_bytes: u16_at(record, 32).into(),
    })
}

/// Takes what the extra field says into the entry: big numbers, a better time.
pub fn apply_extra(entry: &mut Central, mut extra: &[u8]) -> Result<(), BadZip> {
    let max = u64::from(u32::MAX);
    let mut wanted64 = [entry.bytes, entry.packed_bytes, entry.offset].contains(&max);
    while let [a, b, c, d, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*c, *d]));
        let (mut field, after) = rest.split_at_checked(length).ok_or(BadZip::Extra)?;
        match u16::from_le_bytes([*a, *b]) {
            0x0001 if wanted64 => {
                // Only the numbers that did not fit are here, in this order.
                for number in [&mut entry.bytes, &mut entry.packed_bytes, &mut entry.offset] {
                    if *number == max {
                        let (value, left) = field.split_at_checked(8).ok_or(BadZip::Extra)?;
                        *number = u64_at(value, 0);
                        field = left;
                    }
                }
                wanted64 = false;
            }
            0x5455 if field.len() >= 5 && field[0] & 1 != 0 => {
                let seconds = i64::from(u32_at(field, 1).cast_signed());
                entry.modified = ModifiedAt { seconds, nanoseconds: 0 };
            }
            _ => {}
        }
        extra = after;
    }
    if wanted64 { Err(BadZip::Extra) } else { Ok(()) }
}

/// Checks a local header against the directory. Returns how long its name and extra field are.
pub fn check_local(record: &[u8; LOCAL_BYTES], entry: &Central) -> Result<(usize, usize), BadZip> {
    if !record.starts_with(b"PK\x03\x04") {
        return Err(BadZip::Missing("local header"));
    }
    let flags = u16_at(record, 6);
    check_flags(flags)?;
    if method(u16_at(record, 8))? != entry.method {
        return Err(BadZip::Lie("method"));
    }
    // With bit 3 the numbers stand behind the data, and with zip64 in the extra field.
    let has_numbers = flags & 8 == 0;
    let same = |at, whole: u64| {
        let given = u32_at(record, at);
        given == u32::MAX || u64::from(given) == whole
    };
    if has_numbers && u32_at(record, 14) != entry.crc32 {
        return Err(BadZip::Lie("checksum"));
    }
    if has_numbers && !(same(18, entry.packed_bytes) && same(22, entry.bytes)) {
        return Err(BadZip::Lie("size"));
    }
    Ok((u16_at(record, 26).into(), u16_at(record, 28).into()))
}

/// Bit 0 is encryption, 6 strong encryption, 13 a hidden directory, 5 a patch.
fn check_flags(flags: u16) -> Result<(), BadZip> {
    if flags & (1 | 1 << 5 | 1 << 6 | 1 << 13) == 0 { Ok(()) } else { Err(BadZip::Encrypted) }
}

fn method(code: u16) -> Result<Method, BadZip> {
    match code {
        0 => Ok(Method::Stored),
        8 => Ok(Method::Deflated),
        other => Err(BadZip::Method(other)),
    }
}

/// DOS has no time zone; we read it as UTC. Days from the civil date, after Howard Hinnant.
fn dos_time(date: u16, time: u16) -> ModifiedAt {
    let (date, time) = (i64::from(date), i64::from(time));
    let (year, month, day) = (1980 + (date >> 9), (date >> 5) & 15, date & 31);
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    let seconds = (time >> 11) * 3600 + ((time >> 5) & 63) * 60 + (time & 31) * 2;
    ModifiedAt { seconds: days * 86_400 + seconds, nanoseconds: 0 }
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dos_times_are_utc() {
        // 2024-02-29 12:34:56: the day after a leap February's 28th.
        let (date, time) = (44 << 9 | 2 << 5 | 29, 12 << 11 | 34 << 5 | 28);
        assert_eq!(dos_time(date, time).seconds, 1_709_210_096);
        assert_eq!(dos_time(1 << 5 | 1, 0).seconds, 315_532_800);
    }

    #[test]
    fn the_end_record_must_end_the_file() {
        let mut record = [0; END_BYTES];
        record[..4].copy_from_slice(b"PK\x05\x06");
        assert_eq!(find_end(&record), Ok(0));
        assert_eq!(find_end(&[&record[..], b"x"].concat()), Err(BadZip::NoEnd));
        assert_eq!(find_end(&record[..21]), Err(BadZip::NoEnd));
        let mut with_comment = record.to_vec();
        with_comment[20] = 2;
        with_comment.extend(b"hi");
        assert_eq!(find_end(&[b"xx", &with_comment[..]].concat()), Ok(2));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_read_and_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 64..200)) {
            let _ = find_end(&bytes);
            let mut central = [0; CENTRAL_BYTES];
            central.copy_from_slice(&bytes[..CENTRAL_BYTES]);
            central[..4].copy_from_slice(b"PK\x01\x02");
            central[8..12].fill(0);
            if let Ok(mut entry) = parse_central(&central) {
                entry.bytes = u32::MAX.into();
                let _ = apply_extra(&mut entry, &bytes[46..]);
                let mut local = [0; LOCAL_BYTES];
                local.copy_from_slice(&bytes[..LOCAL_BYTES]);
                local[..4].copy_from_slice(b"PK\x03\x04");
                let _ = check_local(&local, &entry);
            }
        }
    }
}
