//! Root file systems that come as an image: mounted once, read-only, for all containers that have
//! it as a layer. Nothing is remembered here; what is mounted is asked of the kernel, so an agent
//! that starts again finds it. The loop device goes with the last mount.
#![expect(unsafe_code, reason = "loop devices; each block says why it is sound")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::image::rootfs::FileSystem;

/// Why an image is not mounted. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ImageMountError {
    /// Something else is mounted there; it has to be unmounted first.
    #[error("something else is mounted on {0}")]
    Taken(PathBuf),
    /// The kernel or the file system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What became of it.
        source: io::Error,
    },
}

fn doing(what: &str, path: &Path) -> impl FnOnce(io::Error) -> ImageMountError {
    let doing = format!("{what} {}", path.display());
    move |source| ImageMountError::Io { doing, source }
}

/// Has `image` mounted at the folder `mount_at`, which is made if it is missing. When it is mounted
/// there already, nothing happens.
pub fn mounted(image: &Path, kind: FileSystem, mount_at: &Path) -> Result<(), ImageMountError> {
    std::fs::create_dir_all(mount_at).map_err(doing("make", mount_at))?;
    // Two that want something mounted in the same folder take turns. The image cannot be locked
    // for that: the loop device would hold the lock for as long as it is there.
    let above = mount_at.join("..");
    let turn = File::open(&above).map_err(doing("open", &above))?;
    turn.lock().map_err(doing("lock", &above))?;
    let file = File::open(image).map_err(doing("open", image))?;
    if let Some(device) = device_at(mount_at).map_err(doing("look at", mount_at))? {
        let found = file.metadata().map_err(doing("look at", image))?;
        let is_ours = loop_file(device).is_ok_and(|it| it == (found.dev(), found.ino()));
        return if is_ours { Ok(()) } else { Err(ImageMountError::Taken(mount_at.to_owned())) };
    }
    // Held open until it is mounted: a loop device that nobody uses goes.
    let (_device, path) = loop_over(&file).map_err(doing("make a loop device over", image))?;
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    crate::kernel::sys::mount(&path, mount_at, kind.name(), flags, b"")
        .map_err(doing("mount", image))
}

/// Lets go of what is mounted at `mount_at`, if anything is. Containers that have it as a layer
/// keep it until they end.
pub fn unmount(mount_at: &Path) -> Result<(), ImageMountError> {
    match crate::kernel::sys::unmount(mount_at) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
            Err(doing("unmount", mount_at)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The device of the file system that is mounted on this folder, if one is.
fn device_at(folder: &Path) -> io::Result<Option<u64>> {
    let device = std::fs::metadata(folder)?.dev();
    let above = std::fs::metadata(folder.join(".."))?.dev();
    Ok((device != above).then_some(device))
}

/// The kernel's `struct loop_info64`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    /// Its own device number, offset and size limit; all zero is the whole file.
    place: [u64; 3],
    /// Its number, and two of a cipher that is no more.
    numbers: [u32; 3],
    flags: u32,
    names: [u8; 160],
    rest: [u64; 2],
}

const NO_INFO: Info = Info {
    device: 0,
    inode: 0,
    place: [0; 3],
    numbers: [0; 3],
    flags: 0,
    names: [0; 160],
    rest: [0; 2],
};

/// Device and inode of the file behind a loop device.
fn loop_file(device: u64) -> io::Result<(u64, u64)> {
    const GET_STATUS: libc::Ioctl = 0x4c05;
    const LOOP_MAJOR: u32 = 7;
    if libc::major(device) != LOOP_MAJOR {
        return Err(io::Error::other("not a loop device"));
    }
    let device = File::open(format!("/dev/loop{}", libc::minor(device)))?;
    let mut info = NO_INFO;
    // SAFETY: the call fills a structure of this size.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS, &raw mut info) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok((info.device, info.inode)) }
}

/// A loop device over this file, read-only, which goes when nobody uses it.
fn loop_over(file: &File) -> io::Result<(File, PathBuf)> {
    const GET_FREE: libc::Ioctl = 0x4c82;
    const CONFIGURE: libc::Ioctl = 0x4c0a;
    const READ_ONLY_AND_GOING: u32 = 1 | 4;
    const TRIES: usize = 100;
    /// The kernel's `struct loop_config`.
    #[repr(C)]
    struct LoopConfig {
        file: u32,
        block_size: u32,
        info: Info,
        reserved: [u64; 8],
    }
    let control = File::open("/dev/loop-control")?;
    let config = LoopConfig {
        file: file.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: Info { flags: READ_ONLY_AND_GOING, ..NO_INFO },
        reserved: [0; 8],
    };
    for _ in 0..TRIES {
        // SAFETY: no memory is involved.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::open(&path)?;
        // SAFETY: the call reads a structure of this size.
        if unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) } == 0 {
            return Ok((device, path));
        }
        let error = io::Error::last_os_error();
        // Somebody else was quicker: the next one, then.
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}
