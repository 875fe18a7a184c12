//! Removes a folder that a container has filled. The standard library holds a descriptor for each
//! level, so folders a few thousand deep would stay for ever; here depth costs nothing.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Removes a folder with all that is in it, following no link. One that is not there is fine.
/// Nobody else may be at work in it.
pub(crate) fn remove_all(folder: &Path) -> io::Result<()> {
    let root = match open(folder, FOLDER, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    // A folder below a folder is moved up to the root. So each is moved once and looked into once,
    // and nothing is ever reached by more than two names.
    let mut moved = 0_u64;
    loop {
        let folders = clear(&root)?;
        if folders.is_empty() {
            return std::fs::remove_dir(folder);
        }
        for name in folders {
            let inner = openat(&root, name.as_c_str(), FOLDER, Mode::empty())?;
            for deeper in clear(&inner)? {
                move_up(&inner, &deeper, &root, &mut moved)?;
            }
            unlinkat(&root, name.as_c_str(), UnlinkatFlags::RemoveDir)?;
        }
    }
}

/// Removes everything from a folder but the folders in it, and names those.
fn clear(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    // Opened again: a descriptor remembers how far it was read.
    let mut entries = Dir::openat(folder, ".", FOLDER, Mode::empty())?;
    for entry in entries.iter() {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(folder, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => folders.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(folders)
}

/// Gives a folder a name in the root that nothing there has.
fn move_up(from: &OwnedFd, name: &CString, root: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = format!(".removing-{moved}");
        match renameat(from, name.as_c_str(), root, free.as_str()) {
            Ok(()) => return Ok(()),
            // An empty folder of that name would be replaced, which is as well; a full one not.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::mkdirat;

    use super::*;

    #[test]
    fn whatever_is_in_a_folder_goes_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("doomed/a/b/c")).unwrap();
        // Names that ours could meet.
        std::fs::create_dir_all(at("doomed/.removing-1/full/fuller")).unwrap();
        std::fs::create_dir_all(at("doomed/a/.removing-2/x")).unwrap();
        std::fs::create_dir(at("kept")).unwrap();
        std::fs::write(at("kept/file"), "").unwrap();
        std::fs::write(at("doomed/a/b/file"), "").unwrap();
        symlink(at("kept"), at("doomed/a/link")).unwrap();
        symlink("..", at("doomed/up")).unwrap();
        remove_all(&at("doomed")).unwrap();
        assert!(!at("doomed").exists());
        assert!(at("kept/file").exists());
        remove_all(&at("doomed")).unwrap();
        symlink(at("kept"), at("link")).unwrap();
        assert!(remove_all(&at("link")).is_err(), "a link was followed");
        assert!(at("kept/file").exists());
    }

    #[test]
    fn depth_is_no_shelter() {
        const DEPTH: usize = 2_000;
        let place = tempfile::tempdir().unwrap();
        let doomed = place.path().join("doomed");
        std::fs::create_dir(&doomed).unwrap();
        let mut at = open(&doomed, FOLDER, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
        }
        drop(at);
        remove_all(&doomed).unwrap();
        assert!(!doomed.exists());
    }
}
