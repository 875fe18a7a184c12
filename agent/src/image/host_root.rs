//! The root file system `host:`: a skeleton folder of ours, and the machine's program folders bound
//! read-only into it.
//!
//! What is in it: `/usr` bound; `/bin`, `/sbin`, `/lib*` as the machine has them, links into `/usr`
//! or bound folders; empty mount points; an `/etc` of our own making with users, hosts and name
//! services, and from the machine's `/etc` only what programs need and everybody may read: the
//! resolver's servers, the loader's cache, alternatives, trusted certificates, a few tables. Not in
//! it: shadow, keys, machine id, host name, the operator's configuration, `/var`, `/root`, `/home`.
//!
//! The skeleton is a layer named by its content: a machine whose resolver changes gets another one.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use super::cancel::Cancel;
use super::checksum::sha256_hex;
use super::extract::Ownership;
use super::layers::{LayerError, LayerStore, failed, owner_tag};
use super::rootfs::{Bind, Lower, PreparedRootfs};

/// The folders of programs that may be links into `/usr`, or folders of their own.
const PROGRAMS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Empty folders, with their modes. What is below another comes after it.
const FOLDERS: [(&str, u32); 17] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/alternatives", 0o755),
    ("etc/ssl", 0o755),
    ("etc/ssl/certs", 0o755),
    ("home", 0o755),
    ("home/vcap", 0o750),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];

/// Files of the machine's `/etc` that programs look for and that tell nothing about the machine.
const TABLES: [&str; 5] = ["ld.so.cache", "mime.types", "protocols", "rpc", "services"];

/// What is larger is none of the small files that we copy.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// How many certificates and alternatives are taken.
const MAX_LISTED: usize = 4096;

/// The user that Diego's definitions run as.
const VCAP: u32 = 2000;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    vcap:x:2000:2000:vcap:/home/vcap:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nvcap:x:2000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n\
    networks: files\nprotocols: files\nservices: files\n";

/// One thing of the skeleton, in the order of making.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SkeletonItem {
    Folder(PathBuf, u32),
    Link(PathBuf, PathBuf),
    File(PathBuf, Vec<u8>),
}

/// Makes the skeleton, and says what is bound into it.
pub(super) fn prepare(
    root: &Path,
    ownership: Ownership,
    store: &LayerStore,
    cancel: &Cancel,
) -> Result<PreparedRootfs, LayerError> {
    let (items, binds) = gather(root)?;
    let name = format!("host-{}-{}", digest(&items), owner_tag(ownership));
    let folder = store.built(&name, cancel, |folder| {
        items.iter().try_for_each(|item| make(folder, item, ownership))
    })?;
    Ok(PreparedRootfs { lowers: vec![Lower::Folder(folder)], binds })
}

fn gather(root: &Path) -> Result<(Vec<SkeletonItem>, Vec<Bind>), LayerError> {
    let mut items: Vec<SkeletonItem> =
        FOLDERS.iter().map(|(path, mode)| SkeletonItem::Folder(path.into(), *mode)).collect();
    let mut binds = Vec::new();
    let mut bind = |items: &mut Vec<SkeletonItem>, name: &str| {
        items.push(SkeletonItem::Folder(name.into(), 0o755));
        binds.push(Bind { source: root.join(name), target: name.into() });
    };
    let usr = root.join("usr");
    fs::read_dir(&usr).map_err(failed("list", &usr))?;
    bind(&mut items, "usr");
    for name in PROGRAMS {
        let path = root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(stat) if stat.is_symlink() => {
                let target = fs::read_link(&path).map_err(failed("read", &path))?;
                if is_in_usr(&target) {
                    items.push(SkeletonItem::Link(name.into(), target));
                }
            }
            Ok(stat) if stat.is_dir() => bind(&mut items, name),
            Ok(_) | Err(_) => {}
        }
    }
    let etc = root.join("etc");
    for (name, text) in
        [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH)]
    {
        items.push(SkeletonItem::File(Path::new("etc").join(name), text.into()));
    }
    items.push(SkeletonItem::File("etc/resolv.conf".into(), resolver(root).into_bytes()));
    for name in TABLES {
        if let Some(bytes) = readable(&etc.join(name)) {
            items.push(SkeletonItem::File(Path::new("etc").join(name), bytes));
        }
    }
    for name in ["os-release", "localtime"] {
        if let Ok(target) = fs::read_link(etc.join(name))
            && is_in_usr(target.strip_prefix("..").unwrap_or(&target))
        {
            items.push(SkeletonItem::Link(Path::new("etc").join(name), target));
        }
    }
    listed(&etc, "alternatives", &mut items);
    listed(&etc, "ssl/certs", &mut items);
    if let Some(bytes) = readable(&etc.join("pki/tls/certs/ca-bundle.crt")) {
        for folder in ["etc/pki", "etc/pki/tls", "etc/pki/tls/certs"] {
            items.push(SkeletonItem::Folder(folder.into(), 0o755));
        }
        items.push(SkeletonItem::File("etc/pki/tls/certs/ca-bundle.crt".into(), bytes));
    }
    Ok((items, binds))
}

/// Links and public files of one folder of `/etc`, by name. Links only into `/usr` or beside them.
fn listed(etc: &Path, folder: &str, items: &mut Vec<SkeletonItem>) {
    let Ok(entries) = fs::read_dir(etc.join(folder)) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names.into_iter().take(MAX_LISTED) {
        let from = etc.join(folder).join(&name);
        let to = Path::new("etc").join(folder).join(&name);
        match fs::read_link(&from) {
            Ok(target) if is_in_usr(&target) || target.components().count() == 1 => {
                items.push(SkeletonItem::Link(to, target));
            }
            Ok(_) => {}
            Err(_) => items.extend(readable(&from).map(|bytes| SkeletonItem::File(to, bytes))),
        }
    }
}

/// `usr/bin` or `/usr/share/x`, and nothing that climbs.
fn is_in_usr(target: &Path) -> bool {
    let relative = target.strip_prefix("/").unwrap_or(target);
    relative.starts_with("usr") && !relative.components().any(|it| it.as_os_str() == "..")
}

/// A small regular file that everybody on the machine may read, and that holds no key.
fn readable(path: &Path) -> Option<Vec<u8>> {
    let stat = fs::metadata(path).ok()?;
    let is_public = stat.is_file() && stat.permissions().mode() & 0o004 != 0;
    if !is_public || stat.len() > MAX_FILE_BYTES {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let key = b"PRIVATE KEY";
    let has_key = bytes.windows(key.len()).any(|window| window == key);
    (!has_key).then_some(bytes)
}

/// The machine's name servers. One on its loopback cannot be reached from a container; the file
/// that systemd keeps behind it names the real ones.
fn resolver(root: &Path) -> String {
    let files = ["etc/resolv.conf", "run/systemd/resolve/resolv.conf"];
    let read = |path: &str| readable(&root.join(path)).unwrap_or_default();
    let texts = files.map(|path| usable_servers(&String::from_utf8_lossy(&read(path))));
    texts.into_iter().find(|text| text.contains("nameserver")).unwrap_or_default()
}

fn usable_servers(text: &str) -> String {
    let mut usable = String::new();
    for line in text.lines().map(str::trim) {
        let keep = match line.split_whitespace().next() {
            Some("nameserver") => {
                let address = line.split_whitespace().nth(1).and_then(|it| it.parse().ok());
                address.is_some_and(|it: IpAddr| !it.to_canonical().is_loopback())
            }
            Some("search" | "options") => true,
            Some(_) | None => false,
        };
        if keep {
            let _ = writeln!(usable, "{line}");
        }
    }
    usable
}

/// Lengths before bytes, so that no two lists read the same.
fn digest(items: &[SkeletonItem]) -> String {
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    };
    for item in items {
        match item {
            SkeletonItem::Folder(path, mode) => {
                put(b"folder");
                put(path.as_os_str().as_bytes());
                put(&mode.to_le_bytes());
            }
            SkeletonItem::Link(path, target) => {
                put(b"link");
                put(path.as_os_str().as_bytes());
                put(target.as_os_str().as_bytes());
            }
            SkeletonItem::File(path, content) => {
                put(b"file");
                put(path.as_os_str().as_bytes());
                put(content);
            }
        }
    }
    sha256_hex(&bytes)
}

fn make(folder: &Path, item: &SkeletonItem, ownership: Ownership) -> Result<(), LayerError> {
    let path = match item {
        SkeletonItem::Folder(path, mode) => {
            let path = folder.join(path);
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed("make", &path))?;
            set_mode(&path, *mode)?;
            path
        }
        SkeletonItem::Link(path, target) => {
            let path = folder.join(path);
            symlink(target, &path).map_err(failed("link", &path))?;
            path
        }
        SkeletonItem::File(path, content) => {
            let path = folder.join(path);
            fs::write(&path, content).map_err(failed("write", &path))?;
            set_mode(&path, 0o644)?;
            path
        }
    };
    let id = if path.file_name() == Some(OsStr::new("vcap")) { VCAP } else { 0 };
    let owner = ownership.of(id.into(), id.into());
    let owner = owner.map_err(|over| failed("own", &path)(std::io::Error::other(over)))?;
    if let Some((uid, gid)) = owner {
        lchown(&path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(failed("own", &path))?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), LayerError> {
    let set = fs::set_permissions(path, Permissions::from_mode(mode));
    set.map_err(failed("set the mode of", path))
}
