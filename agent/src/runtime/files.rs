//! The agent's view into a container's root, while processes of the container may change it.
//!
//! The root is held open; every path is resolved by the kernel from there on, with the container's
//! root as `/` for links and for `..`, and not through the links of `/proc` that lead elsewhere. So
//! whatever is swapped under our hands, we stay inside. What is read must be a file: it is looked at
//! before it is opened, so that no pipe holds us and no device notices. File systems in which the
//! kernel shows itself are left out: the agent is the machine's root and sees there what the
//! container may not.
//!
//! The modes of files do not count: who writes a definition may name any user of the container, its
//! root too. Called by `transfer.rs`, on the executor's threads.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statfs::{self, FsType, fstatfs};
use nix::unistd::{Gid, Uid, fchown};

use crate::image::dir_handle::DirHandle;
use crate::shim::user::{self, User};

/// Bytes of the container's passwd and group files that are read, as the shim has it.
const USER_FILE_BYTES: u64 = 1 << 20;

/// File systems in which the kernel shows itself.
const OF_THE_KERNEL: [FsType; 9] = [
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::CGROUP_SUPER_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::SECURITYFS_MAGIC,
    statfs::BPF_FS_MAGIC,
    statfs::NSFS_MAGIC,
];

/// The user and group ids of a container, as the machine has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The one that is 0 in the container; 0 if it is privileged.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

impl Ids {
    /// An id of the container, on the machine.
    fn on_host(self, id: u32) -> Option<u32> {
        let is_ours = id < self.count;
        // `u32::MAX` means "leave it" to chown.
        self.first.checked_add(id).filter(|it| is_ours && *it != u32::MAX)
    }
}

/// A user of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerUser {
    /// The user on the machine.
    pub uid: u32,
    /// The group on the machine.
    pub gid: u32,
    /// The home, where relative paths begin.
    home: PathBuf,
}

/// Something in a container is not as it would have to be. Nothing has changed but folders that
/// were made on the way.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Nothing is there.
    #[error("{path}: there is no such file")]
    Missing {
        /// In the container.
        path: String,
    },
    /// It is there, and no file.
    #[error("{path}: not a regular file")]
    NotAFile {
        /// In the container.
        path: String,
    },
    /// It is in `/proc`, `/sys` or the like.
    #[error("{path}: not on a file system for files")]
    OfTheKernel {
        /// In the container.
        path: String,
    },
    /// There is no such user, or none that the container may have.
    #[error("{0}")]
    User(String),
    /// The process is not in a root of its own.
    #[error("process {0} is not in a container")]
    NotAContainer(i32),
    /// The kernel said no.
    #[error("{path}: {source}")]
    Io {
        /// In the container.
        path: String,
        /// What it said.
        source: io::Error,
    },
}

/// A container's root, held open.
#[derive(Debug)]
pub struct ContainerFiles {
    root: DirHandle,
    ids: Ids,
}

impl ContainerFiles {
    /// Opens the root of a container by its first process, as the shim names it. To be sure that the
    /// number was not given to another process in between, ask the shim again: it must still name
    /// the same.
    pub fn of_process(init: i32, ids: Ids) -> Result<ContainerFiles, FilesError> {
        let files = ContainerFiles::of_folder(Path::new(&format!("/proc/{init}/root")), ids)?;
        let identity = |folder: &DirHandle| -> nix::Result<_> {
            let stat = nix::sys::stat::fstat(folder)?;
            Ok((stat.st_dev, stat.st_ino))
        };
        let failed = |error: Errno| failed("/", error.into());
        let own = DirHandle::open(Path::new("/")).map_err(failed)?;
        if identity(&own).map_err(failed)? == identity(&files.root).map_err(failed)? {
            return Err(FilesError::NotAContainer(init));
        }
        Ok(files)
    }

    /// Takes a folder of the machine for a container's root.
    pub fn of_folder(root: &Path, ids: Ids) -> Result<ContainerFiles, FilesError> {
        let opened = DirHandle::open(root);
        let root = opened.map_err(|error| failed(&root.to_string_lossy(), error.into()))?;
        Ok(ContainerFiles { root, ids })
    }

    /// Finds a user by name or number, in the container's own files.
    pub fn user(&self, wanted: &str) -> Result<ContainerUser, FilesError> {
        let (passwd, group) = (self.user_file("/etc/passwd")?, self.user_file("/etc/group")?);
        let User { uid, gid, home, .. } =
            user::find(wanted, &passwd, &group).map_err(FilesError::User)?;
        let on_host = |id| {
            let none = || FilesError::User(format!("the container has no user or group {id}"));
            self.ids.on_host(id).ok_or_else(none)
        };
        Ok(ContainerUser { uid: on_host(uid)?, gid: on_host(gid)?, home: home.into() })
    }

    /// A folder of the container, for writing. What is missing of it is made, and is the user's. A
    /// relative path begins at the user's home.
    pub fn folder(&self, path: &str, user: &ContainerUser) -> Result<DirHandle, FilesError> {
        let full = user.home.join(path);
        let failed = |error: Errno| failed(path, error.into());
        // Folders are made in the last one that is there.
        let there = full.ancestors().find_map(|it| self.root.look_in_root(it).ok());
        if let Some(there) = &there {
            refuse_kernel(there.as_fd(), path)?;
        }
        let owner = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
        let folder = self.root.open_in_root(&full, |made| fchown(made, owner.0, owner.1));
        let folder = folder.map_err(failed)?;
        refuse_kernel(folder.as_fd(), path)?;
        Ok(folder)
    }

    /// A file of the container, for reading. A relative path begins at the user's home.
    pub fn file(&self, path: &str, user: &ContainerUser) -> Result<File, FilesError> {
        self.open(&user.home.join(path), path)
    }

    fn open(&self, full: &Path, path: &str) -> Result<File, FilesError> {
        let found = self.root.look_in_root(full).map_err(|error| match error {
            Errno::ENOENT | Errno::ENOTDIR => FilesError::Missing { path: path.to_owned() },
            error => failed(path, error.into()),
        })?;
        let failed = |error: io::Error| failed(path, error);
        let stat = nix::sys::stat::fstat(&found).map_err(|error| failed(error.into()))?;
        if !crate::image::dir_handle::is_kind(&stat, nix::sys::stat::SFlag::S_IFREG) {
            return Err(FilesError::NotAFile { path: path.to_owned() });
        }
        refuse_kernel(found.as_fd(), path)?;
        // The same file as was looked at, whatever has its name by now.
        let mut options = File::options();
        options.read(true).custom_flags(nix::libc::O_NONBLOCK);
        options.open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)
    }

    /// The text of a file that need not be there.
    fn user_file(&self, path: &str) -> Result<String, FilesError> {
        let file = match self.open(Path::new(path), path) {
            Ok(file) => file,
            Err(FilesError::Missing { .. }) => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        let read = file.take(USER_FILE_BYTES).read_to_end(&mut text);
        read.map_err(|error| failed(path, error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Bytes that can still be written on the file system of a folder. The agent is root, which a
/// quota does not hold: it has to ask.
pub fn free_bytes(folder: &DirHandle) -> io::Result<u64> {
    let stat = fstatfs(folder)?;
    let block = u64::try_from(stat.block_size()).unwrap_or_default();
    Ok(stat.blocks_available().saturating_mul(block))
}

fn refuse_kernel(fd: BorrowedFd<'_>, path: &str) -> Result<(), FilesError> {
    let stat = fstatfs(fd).map_err(|error| failed(path, error.into()))?;
    if OF_THE_KERNEL.contains(&stat.filesystem_type()) {
        return Err(FilesError::OfTheKernel { path: path.to_owned() });
    }
    Ok(())
}

fn failed(path: &str, source: io::Error) -> FilesError {
    FilesError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    const IDS: Ids = Ids { first: 100_000, count: 65_536 };
    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nvcap:x:2000:3000::/home/vcap:/bin/sh\n\
        far:x:65536:0::/:/bin/sh\nup:x:1:1::/..:/bin/sh\n";

    struct Home {
        folder: tempfile::TempDir,
        files: ContainerFiles,
    }

    impl Home {
        /// A root in a folder, and a secret beside it.
        fn new(ids: Ids) -> Home {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("root/etc")).unwrap();
            std::fs::write(folder.path().join("root/etc/passwd"), PASSWD).unwrap();
            std::fs::write(folder.path().join("secret"), "secret").unwrap();
            let files = ContainerFiles::of_folder(&folder.path().join("root"), ids).unwrap();
            Home { folder, files }
        }

        /// Ids that this process can give files to.
        fn own() -> Home {
            let (uid, gid) = (Uid::effective().as_raw(), Gid::effective().as_raw());
            let home = Home::new(Ids { first: 0, count: u32::MAX });
            let passwd = format!("me:x:{uid}:{gid}::/home/me:\n{PASSWD}");
            std::fs::write(home.at("etc/passwd"), passwd).unwrap();
            home
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().join("root").join(path)
        }

        fn read(&self, path: &str) -> Result<String, FilesError> {
            let user = self.files.user("root")?;
            let mut text = String::new();
            self.files.file(path, &user)?.read_to_string(&mut text).unwrap();
            Ok(text)
        }
    }

    #[test]
    fn users_have_the_containers_ids_on_the_machine() {
        let home = Home::new(IDS);
        for (wanted, uid, gid) in
            [("root", 100_000, 100_000), ("vcap", 102_000, 103_000), ("65535", 165_535, 165_535)]
        {
            let user = home.files.user(wanted).unwrap();
            assert_eq!((user.uid, user.gid), (uid, gid), "{wanted}");
        }
        for wanted in ["far", "65536", "4294967295", "nobody", "", "-1"] {
            let error = home.files.user(wanted).unwrap_err();
            assert!(matches!(error, FilesError::User(_)), "{wanted}: {error}");
        }
        let all = Home::new(Ids { first: 0, count: u32::MAX });
        assert_eq!(all.files.user("vcap").unwrap().uid, 2000);
        assert!(all.files.user("4294967295").is_err(), "chown would leave the owner");
        let last = Home::new(Ids { first: u32::MAX - 1, count: 65_536 });
        assert!(last.files.user("0").is_ok() && last.files.user("vcap").is_err());
    }

    #[test]
    fn user_files_may_be_missing_or_bad_and_are_never_the_machines() {
        let home = Home::new(IDS);
        std::fs::remove_file(home.at("etc/passwd")).unwrap();
        assert_eq!(home.files.user("7").unwrap().uid, 100_007);
        symlink("/etc/passwd", home.at("etc/passwd")).unwrap();
        assert!(home.files.user("root").is_err(), "a link to itself");
        std::fs::remove_file(home.at("etc/passwd")).unwrap();
        nix::unistd::mkfifo(&home.at("etc/passwd"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(home.files.user("root"), Err(FilesError::NotAFile { .. })));
    }

    #[test]
    fn files_are_read_inside_only() {
        let home = Home::new(IDS);
        std::fs::write(home.at("etc/motd"), "inside").unwrap();
        std::fs::create_dir_all(home.at("root")).unwrap();
        std::fs::write(home.at("root/mine"), "relative").unwrap();
        for (to, link) in [
            ("/etc/motd", "absolute"),
            ("../../../etc/motd", "up"),
            ("../../secret", "outside"),
            ("/proc/self/root/etc/passwd", "magic"),
            ("loop", "loop"),
        ] {
            symlink(to, home.at(link)).unwrap();
        }
        for path in ["/etc/motd", "//etc/./motd", "/absolute", "/up"] {
            assert_eq!(home.read(path).unwrap(), "inside", "{path}");
        }
        assert_eq!(home.read("mine").unwrap(), "relative");
        nix::unistd::mkfifo(&home.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(home.at("socket")).unwrap();
        for path in ["/pipe", "/socket", "/etc", "/"] {
            let error = home.read(path).unwrap_err();
            assert!(matches!(error, FilesError::NotAFile { .. }), "{path}: {error}");
        }
        drop(socket);
        for path in ["/outside", "/../secret", "/magic", "/loop", "/none", "/etc/motd/x", "/a\0b"] {
            let error = home.read(path).unwrap_err();
            assert!(matches!(error, FilesError::Missing { .. } | FilesError::Io { .. }), "{error}");
        }
    }

    #[test]
    fn folders_are_made_for_their_user_and_stay_inside() {
        let home = Home::own();
        let user = home.files.user("me").unwrap();
        home.files.folder("/a/b", &user).unwrap();
        home.files.folder(".", &user).unwrap();
        home.files.folder("deep/er", &user).unwrap();
        for path in ["a/b", "home/me/deep/er"] {
            let stat = std::fs::metadata(home.at(path)).unwrap();
            assert!(stat.is_dir() && (stat.uid(), stat.gid()) == (user.uid, user.gid));
        }
        std::fs::write(home.at("file"), "").unwrap();
        symlink("../..", home.at("up")).unwrap();
        home.files.folder("/up/new", &user).unwrap();
        assert!(home.at("new").is_dir() && !home.folder.path().join("new").exists());
        for path in ["/file", "/file/x", "/../x", "/a/../../x"] {
            assert!(home.files.folder(path, &user).is_err(), "{path}");
        }
        let climber = home.files.user("up").unwrap();
        assert!(home.files.folder("x", &climber).is_err(), "its home is above the root");
    }

    #[test]
    fn the_kernels_own_file_systems_are_left_out() {
        let files = ContainerFiles::of_folder(Path::new("/"), IDS).unwrap();
        let user = ContainerUser { uid: 0, gid: 0, home: "/".into() };
        for path in ["/proc/version", "/proc/1/environ"] {
            let error = files.file(path, &user).unwrap_err();
            assert!(matches!(error, FilesError::OfTheKernel { .. }), "{path}: {error}");
        }
        for path in ["/proc/new/folder", "/sys/new"] {
            let error = files.folder(path, &user).unwrap_err();
            assert!(matches!(error, FilesError::OfTheKernel { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn a_process_without_a_root_of_its_own_is_no_container() {
        let own = i32::try_from(std::process::id()).unwrap();
        let error = ContainerFiles::of_process(own, IDS).unwrap_err();
        assert!(matches!(error, FilesError::NotAContainer(_)), "{error}");
        assert!(ContainerFiles::of_process(i32::MAX, IDS).is_err());
    }
}
