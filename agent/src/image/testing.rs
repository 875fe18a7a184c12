//! For tests: archives built by hand, byte by byte, and a scene with something outside to harm.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::cancel::Cancel;
use super::dir_handle::{DirHandle, ResolveMode};
use super::extract::{Ownership, Purpose};
use super::limits::UnpackLimits;
use super::unpack::{Format, Order, UnpackError, Unpacked, unpack};

/// One header and its data. Fields are public to be lied with.
#[derive(Debug, Clone)]
pub(crate) struct Tar {
    pub(crate) block: [u8; 512],
    pub(crate) data: Vec<u8>,
}

impl Tar {
    pub(crate) fn new(kind: u8, name: &[u8], data: &[u8]) -> Tar {
        let mut tar = Tar { block: [0; 512], data: data.to_vec() };
        tar.block[..name.len()].copy_from_slice(name);
        tar.block[100..107].copy_from_slice(b"0000644");
        tar.block[108..115].copy_from_slice(b"0000000");
        tar.block[116..123].copy_from_slice(b"0000000");
        tar.block[156] = kind;
        tar.set(124, format!("{:011o}", data.len()).as_bytes())
            .set(136, b"00000001750")
            .set(257, b"ustar\x0000")
    }

    pub(crate) fn file(name: &str, data: &[u8]) -> Tar {
        Tar::new(b'0', name.as_bytes(), data)
    }

    pub(crate) fn folder(name: &str) -> Tar {
        Tar::new(b'5', name.as_bytes(), b"").mode(0o755)
    }

    pub(crate) fn symlink(name: &str, target: &str) -> Tar {
        Tar::new(b'2', name.as_bytes(), b"").link(target)
    }

    pub(crate) fn hard_link(name: &str, target: &str) -> Tar {
        Tar::new(b'1', name.as_bytes(), b"").link(target)
    }

    /// A pax header with these records, their lengths reckoned.
    pub(crate) fn pax(kind: u8, records: &[(&str, &[u8])]) -> Tar {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length =
                (1..).map(|digits| rest + digits).find(|it| it.to_string().len() + rest == *it);
            data.extend(format!("{} {key}=", length.unwrap()).bytes());
            data.extend(*value);
            data.push(b'\n');
        }
        Tar::new(kind, b"pax", &data)
    }

    pub(crate) fn link(self, target: &str) -> Tar {
        self.set(157, target.as_bytes())
    }

    pub(crate) fn mode(self, mode: u32) -> Tar {
        self.set(100, format!("{mode:07o}").as_bytes())
    }

    pub(crate) fn owner(self, uid: u32, gid: u32) -> Tar {
        self.set(108, format!("{uid:07o}").as_bytes()).set(116, format!("{gid:07o}").as_bytes())
    }

    /// Overwrites a field; the checksum is mended last.
    pub(crate) fn set(mut self, at: usize, bytes: &[u8]) -> Tar {
        self.block[at..at + bytes.len()].copy_from_slice(bytes);
        self.block[148..156].fill(b' ');
        let sum: u32 = self.block.iter().map(|byte| u32::from(*byte)).sum();
        self.block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.block.to_vec();
        bytes.extend(&self.data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// All entries and the end.
pub(crate) fn archive(entries: &[Tar]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(Tar::bytes).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A file with these bytes and no name.
pub(crate) fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// A folder to unpack into, and beside it what must not change.
pub(crate) struct Scene {
    home: tempfile::TempDir,
    outside: BTreeMap<PathBuf, String>,
    pub(crate) walk: ResolveMode,
}

impl Scene {
    pub(crate) fn new(walk: ResolveMode) -> Scene {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("into")).unwrap();
        fs::create_dir_all(home.path().join("outside/folder")).unwrap();
        fs::write(home.path().join("outside/canary"), "sings").unwrap();
        fs::write(home.path().join("outside/folder/canary"), "sings too").unwrap();
        let outside = snapshot(&home.path().join("outside"));
        Scene { home, outside, walk }
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.home.path().join("into")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.home.path().join("outside")
    }

    /// What is in the folder: path → what it is, with its content.
    pub(crate) fn inside(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.target())
    }

    pub(crate) fn order<'a>(
        purpose: Purpose,
        format: Format,
        cancel: &'a Cancel,
        progress: &'a mut dyn FnMut(super::unpack::Progress),
    ) -> Order<'a> {
        let (ownership, limits) = (Ownership::Process, UnpackLimits::default());
        Order { format, purpose, ownership, limits, cancel, progress }
    }

    /// Unpacks, and asserts that nothing outside has changed and that a failure left nothing.
    pub(crate) fn unpack(
        &self,
        bytes: &[u8],
        change: impl FnOnce(&mut Order<'_>),
    ) -> Result<Unpacked, UnpackError> {
        let into = DirHandle::open_with(&self.target(), self.walk).unwrap();
        let file = file_of(bytes);
        let format = Format::detect(&file).unwrap().unwrap_or(Format::Tar);
        let before = self.inside();
        let (cancel, progress) = (Cancel::new(), &mut |_| {});
        let mut order = Scene::order(Purpose::Download, format, &cancel, progress);
        change(&mut order);
        let result = unpack(&file, &into, order);
        if result.is_err() {
            let after: BTreeMap<_, _> =
                self.inside().into_iter().filter(|(path, _)| !before.contains_key(path)).collect();
            assert!(after.is_empty(), "left behind: {after:?} after {result:?}");
        }
        self.assert_outside_unharmed();
        result
    }

    pub(crate) fn assert_outside_unharmed(&self) {
        assert_eq!(snapshot(&self.outside()), self.outside, "something outside has changed");
        let names: Vec<_> = fs::read_dir(self.home.path()).unwrap().collect();
        assert_eq!(names.len(), 2, "something new outside: {names:?}");
    }
}

/// Kind, mode, owner, link count and content of everything below a folder; times of files.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap().flatten() {
            let (path, stat) = (entry.path(), entry.metadata().unwrap());
            let mode = stat.permissions().mode() & 0o7777;
            let what = if stat.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if stat.is_dir() {
                folders.push(path.clone());
                format!("folder {mode:o} {}:{}", stat.uid(), stat.gid())
            } else if stat.is_file() {
                let content = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                format!("file {mode:o} {}:{} {} {content}", stat.uid(), stat.gid(), stat.mtime())
            } else {
                "special".to_owned()
            };
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), what);
        }
    }
    found
}

/// Says that a test could not run here, and why, where `make test` collects it.
pub(crate) fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("cannot note the skipped test: {error}");
        }
    }
}
