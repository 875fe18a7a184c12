//! The container's view of the file system: an overlay over its layers, fresh kernel file
//! systems, a private /dev, and nothing of the host's that it should not see.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use libc::{
    MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, MS_SLAVE, c_ulong,
};
use nix::fcntl::AtFlags;
use nix::unistd::{Gid, Uid, fchownat};

use super::disk::Disk;
use super::tree::{CopyDepth, NO_DEVICES, NO_SUID, READ_ONLY, Tree};
use crate::container::spec::{Access, Bind, ContainerSpec};
use crate::kernel::remove::remove_all;
use crate::kernel::sys;

/// Kernel files that tell of the host or could be turned against it: they read as empty.
const MASKED: [&str; 11] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/timer_list",
    "sys/firmware",
    "sys/devices/virtual/powercap",
];
/// Kernel files that may be read and not written.
const UNWRITABLE: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];
/// The devices that every program may expect.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What [`prepare`] has made.
#[derive(Debug)]
pub(crate) struct PreparedMounts {
    /// What keeps the container's writes within its limits.
    pub(crate) disk: Disk,
    /// What is not as it should be, and yet no reason not to run.
    pub(crate) notes: Vec<String>,
}

/// In the container's folder: where its root file system is mounted.
pub(crate) const ROOT: &str = "root";
/// In the container's folder: what it has written.
pub(crate) const UPPER: &str = "upper";
/// In the container's folder: what the overlay needs beside that.
pub(crate) const WORK: &str = "work";

/// Leaves the host's mounts for a copy that only the shim and its container have, so that what is
/// mounted for them goes when they do.
pub(crate) fn isolate() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount(Path::new(""), Path::new("/"), "", MS_REC | MS_SLAVE, b"")
}

/// On the host's side, as the host's root: mounts the root file system below `folder`. Layers and
/// binds show the ids on disk as the same ids of `users`, the container's user namespace; a
/// container without one sees them as they are. Returns where a file system could not do that.
pub(crate) fn prepare(
    spec: &ContainerSpec,
    folder: &Path,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<PreparedMounts> {
    let owner = if users.is_some() { spec.first_id } else { 0 };
    let path = folder.join(ROOT);
    std::fs::create_dir_all(&path)?;
    let upper = own_folder(&folder.join(UPPER), owner)?;
    let work = own_folder(&folder.join(WORK), owner)?;
    // Before the overlay makes folders of its own in them.
    let disk = Disk::limit(&spec.limits, &upper, &work, spec.first_id)
        .map_err(|error| named("limit the disk".to_owned(), &error))?;
    let mut notes = Vec::new();
    let mut layers = Vec::new();
    for source in &spec.layers {
        let layer = mapped(source, CopyDepth::Alone, NO_SUID | NO_DEVICES, users, &mut notes)
            .and_then(|layer| {
                // The overlay takes only what is attached somewhere. They all lie at the root's
                // place, each over the one before; their descriptors still tell them apart.
                layer.attach(File::open(&path)?.as_fd())?;
                Ok(layer)
            })
            .map_err(|error| named(format!("mount layer {}", source.display()), &error))?;
        layers.push(layer);
    }
    // By descriptor: no name needs escaping, and no number of layers exceeds a page of options.
    let lower: Vec<String> = layers.iter().map(|it| by_descriptor(it.as_fd())).collect();
    let options = format!(
        // Volatile: what is written here ends with the container, so nothing waits for the disk,
        // and neither a sync inside nor the unmounting writes out the host's whole file system.
        "volatile,lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        by_descriptor(upper.as_fd()),
        by_descriptor(work.as_fd()),
    );
    sys::mount(Path::new("overlay"), &path, "overlay", MS_NODEV, options.as_bytes())?;
    let root = File::open(&path)?;
    fresh_tmp(&root, owner)?;
    for bind in &spec.binds {
        place(&root, bind, users, owner, &mut notes).map_err(|error| {
            let from = bind.source.display();
            named(format!("bind {from} to {}", bind.target.display()), &error)
        })?;
    }
    Ok(PreparedMounts { disk, notes })
}

/// A /tmp in memory. It is the host's root that mounts it, and before the binds, which may lie in it:
/// the agent downloads into it, and in a file system that a container has mounted nobody can make a
/// file who has no id there.
fn fresh_tmp(root: &File, owner: u32) -> io::Result<()> {
    let place = folder_below(root.as_fd(), Path::new("tmp"), owner)
        .map_err(|_| io::Error::other("/tmp of the root file system is no folder"))?;
    let options = format!("mode=1777,nr_inodes=65536,uid={owner},gid={owner}");
    let place = by_descriptor(place.as_fd());
    let flags = MS_NOSUID | MS_NODEV;
    sys::mount(Path::new("tmpfs"), Path::new(&place), "tmpfs", flags, options.as_bytes())
}

/// Undoes [`prepare`]: below the overlay lie its layers, one over the other.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    loop {
        match sys::unmount(&folder.join(ROOT)) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    [ROOT, UPPER, WORK].iter().try_for_each(|made| remove_all(&folder.join(made)))
}

fn named(doing: String, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing}: {error}"))
}

fn by_descriptor(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// A folder of the container's own root.
fn own_folder(path: &Path, owner: u32) -> io::Result<File> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let folder = File::open(path)?;
    std::os::unix::fs::fchown(&folder, Some(owner), Some(owner))?;
    Ok(folder)
}

/// A copy of what is at `source`, with the container's ids. What cannot be mapped is taken as it
/// is, which never gives the container more: ids that are not its own are nobody's.
fn mapped(
    source: &Path,
    extent: CopyDepth,
    taken: u64,
    users: Option<BorrowedFd<'_>>,
    notes: &mut Vec<String>,
) -> io::Result<Tree> {
    let tree = Tree::copy(source, extent)?;
    tree.restrict(taken)?;
    if let Some(users) = users
        && !tree.map_ids(users)?
    {
        let path = source.display();
        notes.push(format!("{path}: its file system cannot map ids; files belong to nobody"));
    }
    Ok(tree)
}

/// Puts a host folder or file where the container sees it. The place is found without following
/// any link, since the layers may be somebody else's.
fn place(
    root: &File,
    bind: &Bind,
    users: Option<BorrowedFd<'_>>,
    owner: u32,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    if ["/dev", "/proc", "/sys"].iter().any(|ours| bind.target.starts_with(ours)) {
        return Err(io::Error::other("the kernel's file systems are mounted there"));
    }
    let taken = match bind.access {
        Access::ReadOnly => READ_ONLY | NO_SUID | NO_DEVICES,
        Access::ReadWrite => NO_SUID | NO_DEVICES,
    };
    let tree = mapped(&bind.source, CopyDepth::WithAllBelow, taken, users, notes)?;
    // Asked of the copy: the source may have become something else meanwhile.
    let is_folder = File::from(tree.as_fd().try_clone_to_owned()?).metadata()?.is_dir();
    let target = make_place(root, &bind.target, is_folder, owner)?;
    tree.attach(target.as_fd())
}

/// Finds the place below the root, or makes it, such that it belongs to the container's root.
fn make_place(root: &File, target: &Path, is_folder: bool, owner: u32) -> io::Result<OwnedFd> {
    let mut parts: Vec<&Path> = Vec::new();
    for part in target.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => parts.push(Path::new(name)),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::other("the target must be a plain absolute path"));
            }
        }
    }
    let Some((last, folders)) = parts.split_last() else {
        return Err(io::Error::other("the target must not be the root"));
    };
    let mut at = root.as_fd().try_clone_to_owned()?;
    for name in folders {
        at = folder_below(at.as_fd(), name, owner)?;
    }
    if is_folder {
        return folder_below(at.as_fd(), last, owner);
    }
    match sys::open_in_root(at.as_fd(), last, libc::O_PATH | libc::O_NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_NOFOLLOW;
            sys::create_in_root(at.as_fd(), last, flags)?;
            own(at.as_fd(), last, owner)?;
            sys::open_in_root(at.as_fd(), last, libc::O_PATH | libc::O_NOFOLLOW)
        }
        found => found,
    }
}

fn folder_below(at: BorrowedFd<'_>, name: &Path, owner: u32) -> io::Result<OwnedFd> {
    match sys::make_folder_at(at, name) {
        Ok(()) => own(at, name, owner)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    sys::open_in_root(at, name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
}

fn own(at: BorrowedFd<'_>, name: &Path, owner: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    Ok(fchownat(at, name, Some(user), Some(group), AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

/// In the container's namespaces, before its users are set: makes the root a mount of our own,
/// which alone may be pivoted to, and goes there.
pub(crate) fn enter(root: &Path) -> io::Result<()> {
    sys::mount(root, root, "", MS_BIND | MS_REC, b"")?;
    std::env::set_current_dir(root)
}

/// In the container's namespaces and as its root, in the new root: what the kernel provides, then
/// the pivot, then what must not be seen.
pub(crate) fn furnish() -> io::Result<()> {
    let quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    for name in ["proc", "sys", "dev"] {
        real_folder(name)?;
    }
    // While the host's own are still in sight: the kernel lets nobody see more than before.
    kernel_fs("proc", "proc", quiet, "")?;
    kernel_fs("sysfs", "sys", quiet | MS_RDONLY, "")?;
    // The devices in it are mounts of their own: one that is made in it opens nothing.
    kernel_fs("tmpfs", "dev", quiet, "mode=755,size=64k,nr_inodes=64")?;
    for name in DEVICES {
        let place = Path::new("dev").join(name);
        OpenOptions::new().create_new(true).write(true).mode(0o666).open(&place)?;
        sys::mount(&Path::new("/dev").join(name), &place, "", MS_BIND, b"")?;
    }
    for name in ["dev/pts", "dev/shm", "dev/mqueue"] {
        std::fs::DirBuilder::new().mode(0o755).create(name)?;
    }
    kernel_fs("devpts", "dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")?;
    kernel_fs("tmpfs", "dev/shm", quiet, "mode=1777,size=64m,nr_inodes=4096")?;
    kernel_fs("mqueue", "dev/mqueue", quiet, "")?;
    for (target, link) in [
        ("pts/ptmx", "dev/ptmx"),
        ("/proc/self/fd", "dev/fd"),
        ("/proc/self/fd/0", "dev/stdin"),
        ("/proc/self/fd/1", "dev/stdout"),
        ("/proc/self/fd/2", "dev/stderr"),
    ] {
        symlink(target, link)?;
    }
    for path in UNWRITABLE.iter().filter(|path| Path::new(path).exists()) {
        let path = Path::new(path);
        sys::mount(path, path, "", MS_BIND | MS_REC, b"")?;
        sys::mount(Path::new(""), path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | quiet, b"")?;
    }
    let mut empty = None;
    for path in MASKED {
        mask(Path::new(path), &mut empty)?;
    }
    sys::pivot_here()
}

/// A mount point must be a folder of the root itself, not a link of whoever made the layers.
fn real_folder(name: &str) -> io::Result<()> {
    match std::fs::symlink_metadata(name) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("/{name} of the root file system is no folder"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new().mode(0o755).create(name)
        }
        Err(error) => Err(error),
    }
}

fn kernel_fs(kind: &str, target: &str, flags: c_ulong, options: &str) -> io::Result<()> {
    sys::mount(Path::new(kind), Path::new(target), kind, flags, options.as_bytes())
}

/// Hides a file behind nothing, and a folder behind an empty one: all behind the same, since each
/// file system costs the kernel as much as twenty mounts.
fn mask(path: &Path, empty: &mut Option<PathBuf>) -> io::Result<()> {
    let flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    match (std::fs::symlink_metadata(path), &empty) {
        (Ok(found), Some(empty)) if found.is_dir() => sys::mount(empty, path, "", MS_BIND, b""),
        (Ok(found), None) if found.is_dir() => {
            sys::mount(Path::new("tmpfs"), path, "tmpfs", flags, b"size=0,nr_inodes=2")?;
            *empty = Some(path.to_owned());
            Ok(())
        }
        // Our own device, made above: what the layers have under that name is not looked at.
        (Ok(_), _) => sys::mount(Path::new("dev/null"), path, "", MS_BIND, b""),
        (Err(_), _) => Ok(()),
    }
}
