//! The path of an archive's entry, checked. Pure.
//!
//! An [`EntryPath`] that exists is relative, has no `..`, no NUL and no empty name, and is within the
//! limits. It is bytes, as on disk: names that are not UTF-8 are kept as they are.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use super::limits::{OverLimit, UnpackLimits};

/// A path below the folder we unpack into; empty for that folder itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryPath(Vec<u8>);

/// Why a path is none of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It begins at the root of the machine.
    #[error("the path is absolute")]
    Absolute,
    /// It climbs.
    #[error("the path has a `..`")]
    Parent,
    /// C and Rust would read it differently.
    #[error("the path has a NUL byte")]
    Nul,
    /// There is no path at all.
    #[error("the path is empty")]
    Empty,
    /// It is longer or deeper than we allow.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
}

impl EntryPath {
    /// Checks what an archive calls an entry. `.` and doubled slashes are dropped.
    pub fn parse(raw: &[u8], limits: &UnpackLimits) -> Result<EntryPath, BadPath> {
        if raw.is_empty() {
            return Err(BadPath::Empty);
        }
        if raw.contains(&0) {
            return Err(BadPath::Nul);
        }
        if raw.starts_with(b"/") {
            return Err(BadPath::Absolute);
        }
        OverLimit::check("path_bytes", limits.path_bytes, raw.len() as u64)?;
        let mut path = Vec::with_capacity(raw.len());
        let mut depth = 0;
        for name in raw.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Err(BadPath::Parent),
                name => {
                    OverLimit::check("name_bytes", limits.name_bytes, name.len() as u64)?;
                    depth += 1;
                    OverLimit::check("depth", limits.depth, depth)?;
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(name);
                }
            }
        }
        Ok(EntryPath(path))
    }

    /// Whether it is the folder that we unpack into.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, without a slash at either end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the file system wants it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The names from the outermost folder on.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(OsStr::from_bytes)
    }

    /// The last name.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    }

    /// The folder around it; the root's is the root.
    pub fn parent(&self) -> EntryPath {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        EntryPath(self.0[..end].to_vec())
    }

    /// The path of `name` in this folder. The name comes from a checked path.
    #[must_use]
    pub fn join(&self, name: &OsStr) -> EntryPath {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        EntryPath(path)
    }

    /// Whether a name in it begins with `.wh.`: a layer's mark for something to hide.
    pub fn is_whiteout(&self) -> bool {
        self.names().any(|name| name.as_bytes().starts_with(b".wh."))
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Bytes of an archive for a message: escaped, so that they cannot forge a log line, and cut.
pub fn printable(raw: &[u8]) -> String {
    const MAX_BYTES: usize = 128;
    let cut = &raw[..raw.len().min(MAX_BYTES)];
    let more = if cut.len() < raw.len() { "…" } else { "" };
    format!("`{}{more}`", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(raw: &[u8], expected: Result<&[u8], BadPath>) {
        let limits =
            UnpackLimits { path_bytes: 20, name_bytes: 10, depth: 3, ..UnpackLimits::default() };
        let path = EntryPath::parse(raw, &limits);
        assert_eq!(path.as_ref().map(|it| it.as_bytes()).map_err(Clone::clone), expected);
    }

    #[test]
    fn paths_are_taken_apart_and_the_bad_ones_refused() {
        let over = |limit, allowed, given| Err(OverLimit { limit, allowed, given }.into());
        check(b"a/b", Ok(b"a/b"));
        check(b"./a//b/./", Ok(b"a/b"));
        check(b".", Ok(b""));
        check(b"./", Ok(b""));
        check(b"\xff\xfe/..x", Ok(b"\xff\xfe/..x"));
        check(b"..\\..\\x", Ok(b"..\\..\\x"));
        check(b"", Err(BadPath::Empty));
        check(b"/etc", Err(BadPath::Absolute));
        check(b"//etc", Err(BadPath::Absolute));
        check(b"..", Err(BadPath::Parent));
        check(b"a/../b", Err(BadPath::Parent));
        check(b"./..", Err(BadPath::Parent));
        check(b"a\0b", Err(BadPath::Nul));
        check(b"12345678901", over("name_bytes", 10, 11));
        check(b"a/b/c/d", over("depth", 3, 4));
        check(b"1234567890/1234567890", over("path_bytes", 20, 21));
    }

    #[test]
    fn parents_names_and_whiteouts_are_seen() {
        let path = |raw: &[u8]| EntryPath::parse(raw, &UnpackLimits::default()).unwrap();
        assert_eq!(path(b"a/b/c").parent(), path(b"a/b"));
        assert!(path(b"a").parent().is_root() && EntryPath::default().parent().is_root());
        assert_eq!((path(b"a/b").name(), path(b"a").name()), (OsStr::new("b"), OsStr::new("a")));
        assert_eq!(path(b"a").join(OsStr::new("b")), path(b"a/b"));
        assert!(path(b"a/.wh.b").is_whiteout() && path(b".wh..wh..opq").is_whiteout());
        assert!(!path(b"a.wh.b").is_whiteout());
        assert_eq!(printable(b"a\n\xff"), "`a\\n\\xff`");
    }

    proptest! {
        #[test]
        fn an_accepted_path_stays_below(raw in prop::collection::vec(
            prop::sample::select(vec![b'.', b'/', b'a', 0, 0xff]), 0..24)) {
            if let Ok(path) = EntryPath::parse(&raw, &UnpackLimits::default()) {
                prop_assert!(!path.as_bytes().starts_with(b"/"));
                for name in path.names() {
                    let name = name.as_bytes();
                    prop_assert!(!name.is_empty() && name != b"." && name != b"..");
                    prop_assert!(!name.contains(&0) && !name.contains(&b'/'));
                }
            }
        }
    }
}
