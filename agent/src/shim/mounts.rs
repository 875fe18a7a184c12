//! The container's view of the file system: an overlay over its layers, fresh kernel file
//! systems, a private /dev, and nothing of the host's that it should not see.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use libc::{
    MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, MS_SLAVE, c_ulong,
};

use super::sys;
use crate::runtime::spec::{Access, Bind, ContainerSpec};

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
const READ_ONLY: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];
/// The devices that every program may expect.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// On the host's side, as the host's root: makes the root file system below `folder`, in a mount
/// namespace that only the shim has, so that it goes when the shim and its container do.
pub(crate) fn prepare(spec: &ContainerSpec, folder: &Path) -> io::Result<PathBuf> {
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount(Path::new(""), Path::new("/"), "", MS_REC | MS_SLAVE, b"")?;
    let [root, upper, work] = ["root", "upper", "work"].map(|name| folder.join(name));
    for made in [&root, &upper, &work] {
        std::fs::create_dir_all(made)?;
    }
    let owner = if spec.privileged { 0 } else { spec.first_id };
    std::os::unix::fs::chown(&upper, Some(owner), Some(owner))?;
    std::fs::set_permissions(&upper, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;

    let mut options = b"lowerdir=".to_vec();
    for (nth, layer) in spec.layers.iter().enumerate() {
        if nth > 0 {
            options.push(b':');
        }
        escape(layer, &mut options);
    }
    for (name, path) in [("upperdir", &upper), ("workdir", &work)] {
        options.extend_from_slice(format!(",{name}=").as_bytes());
        escape(path, &mut options);
    }
    // What a container wrote goes with it, and it does not outlive the machine. So nothing of it has
    // to reach the disk: without this the kernel writes all of it there when the overlay goes.
    options.extend_from_slice(b",volatile");
    sys::mount(Path::new("overlay"), &root, "overlay", MS_NODEV, &options)?;
    for bind in &spec.binds {
        place(&root, bind)?;
    }
    Ok(root)
}

/// Overlay's options are parted by commas and its layers by colons.
fn escape(path: &Path, into: &mut Vec<u8>) {
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b',' | b':') {
            into.push(b'\\');
        }
        into.push(*byte);
    }
}

/// Puts a host folder or file where the container sees it. The place is found without following
/// any link, since the layers may be somebody else's.
fn place(root: &Path, bind: &Bind) -> io::Result<()> {
    let named = |error: io::Error| {
        let text = format!("bind {} to {}: {error}", bind.source.display(), bind.target.display());
        io::Error::new(error.kind(), text)
    };
    let root = File::open(root)?;
    let is_folder = std::fs::metadata(&bind.source).map_err(named)?.is_dir();
    let target = make_place(&root, &bind.target, is_folder).map_err(named)?;
    let target = PathBuf::from(format!("/proc/self/fd/{}", target.as_raw_fd()));
    sys::mount(&bind.source, &target, "", MS_BIND | MS_REC, b"").map_err(named)?;
    // The descriptor still leads below the new mount: find the place again to reach it.
    if bind.access == Access::ReadOnly {
        let again = sys::open_in_root(root.as_fd(), &bind.target, libc::O_PATH).map_err(named)?;
        let again = PathBuf::from(format!("/proc/self/fd/{}", again.as_raw_fd()));
        let flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV;
        sys::mount(Path::new(""), &again, "", flags, b"").map_err(named)?;
    }
    Ok(())
}

fn make_place(root: &File, target: &Path, is_folder: bool) -> io::Result<std::os::fd::OwnedFd> {
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
        at = folder_below(at, name)?;
    }
    if is_folder {
        return folder_below(at, last);
    }
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_NOFOLLOW;
    match sys::open_in_root(at.as_fd(), last, libc::O_PATH | libc::O_NOFOLLOW) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            sys::create_in_root(at.as_fd(), last, flags)?;
            sys::open_in_root(at.as_fd(), last, libc::O_PATH | libc::O_NOFOLLOW)
        }
        Err(error) => Err(error),
    }
}

fn folder_below(at: std::os::fd::OwnedFd, name: &Path) -> io::Result<std::os::fd::OwnedFd> {
    match sys::make_folder_at(at.as_fd(), name) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    sys::open_in_root(at.as_fd(), name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
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
    for name in ["proc", "sys", "dev", "tmp"] {
        real_folder(name)?;
    }
    // While the host's own are still in sight: the kernel lets nobody see more than before.
    kernel_fs("proc", "proc", quiet, "")?;
    kernel_fs("sysfs", "sys", quiet | MS_RDONLY, "")?;
    kernel_fs("tmpfs", "dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k")?;
    for name in DEVICES {
        let place = Path::new("dev").join(name);
        OpenOptions::new().create_new(true).write(true).mode(0o666).open(&place)?;
        sys::mount(&Path::new("/dev").join(name), &place, "", MS_BIND, b"")?;
    }
    for name in ["dev/pts", "dev/shm", "dev/mqueue"] {
        std::fs::DirBuilder::new().mode(0o755).create(name)?;
    }
    kernel_fs("devpts", "dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")?;
    kernel_fs("tmpfs", "dev/shm", quiet, "mode=1777,size=64m")?;
    kernel_fs("mqueue", "dev/mqueue", quiet, "")?;
    kernel_fs("tmpfs", "tmp", MS_NOSUID | MS_NODEV, "mode=1777")?;
    for (target, link) in [
        ("pts/ptmx", "dev/ptmx"),
        ("/proc/self/fd", "dev/fd"),
        ("/proc/self/fd/0", "dev/stdin"),
        ("/proc/self/fd/1", "dev/stdout"),
        ("/proc/self/fd/2", "dev/stderr"),
    ] {
        symlink(target, link)?;
    }
    for path in READ_ONLY.iter().filter(|path| Path::new(path).exists()) {
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
