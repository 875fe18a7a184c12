//! The system calls that the standard library does not have, each behind a safe function.
#![expect(unsafe_code, reason = "system calls; each block says why it is sound")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

/// The namespaces that a container's first process is born into. Those of mounts and of cgroups it
/// enters by itself, when its root is mounted and its cgroup is joined.
pub(crate) const NAMESPACES: i32 =
    libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
/// The namespaces that it enters by itself.
pub(crate) const LATER_NAMESPACES: i32 = libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;

/// Turns the kernel's -1 into the error it stands for.
pub(crate) fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's pid and a handle on it.
    Parent(i32, OwnedFd),
}

/// Forks with these clone flags. Only a process with one thread may call this: the child goes on
/// as if nothing had happened.
pub(crate) fn fork(flags: i32) -> io::Result<Fork> {
    let mut pidfd: RawFd = -1;
    let mut arguments = [0_u64; 11];
    arguments[0] = (i64::from(flags) as u64) | libc::CLONE_PIDFD as u64;
    arguments[1] = &raw mut pidfd as u64;
    // A child that is given to our parent must not name a signal of its own.
    arguments[4] = if flags & libc::CLONE_PARENT != 0 { 0 } else { libc::SIGCHLD as u64 };
    // SAFETY: the arguments have the size that is named and live through the call; without
    // CLONE_VM the child has its own copy of our memory, and there is one thread only.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments))
    })?;
    if pid == 0 {
        return Ok(Fork::Child);
    }
    // SAFETY: the kernel has just opened it for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent(i32::try_from(pid).unwrap_or(i32::MAX), pidfd))
}

/// Enters the namespaces of the process behind `pidfd`.
pub(crate) fn enter(pidfd: BorrowedFd<'_>, namespaces: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setns(pidfd.as_raw_fd(), namespaces) }.into()).map(drop)
}

/// Leaves some namespaces for new ones.
pub(crate) fn unshare(namespaces: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// `mount(2)`. Empty texts stand for nothing.
pub(crate) fn mount(
    source: &Path,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    data: &[u8],
) -> io::Result<()> {
    let (source, target) = (c_path(source)?, c_path(target)?);
    let kind = CString::new(kind)?;
    let data = CString::new(data)?;
    let or_null = |text: &CStr| if text.is_empty() { ptr::null() } else { text.as_ptr() };
    // SAFETY: all texts end with a zero and live through the call.
    let result = unsafe {
        libc::mount(or_null(&source), target.as_ptr(), or_null(&kind), flags, or_null(&data).cast())
    };
    check(result.into()).map(drop).map_err(|error| {
        let what = if kind.is_empty() { &source } else { &kind };
        let text = format!("mount {what:?} on {target:?}: {error}");
        io::Error::new(error.kind(), text)
    })
}

/// Makes the current folder the root, and lets go of everything that was above it.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: constant texts.
    unsafe {
        check(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()))?;
        check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
        check(libc::chdir(c"/".as_ptr()).into())?;
    }
    Ok(())
}

/// `prctl(2)` with numbers only.
pub(crate) fn prctl(option: i32, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: none of the options that we use takes a pointer.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) }.into()).map(drop)
}

/// Has the kernel kill this process when the one that forked it is gone. `said` is a pipe that only that
/// one reads. Whoever becomes another user has to say this again.
pub(crate) fn die_with_reader(said: BorrowedFd<'_>) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    // It may have gone before. Its own number would not tell, which is 0 from within a namespace; but it
    // closes what it has open before its children are told of its death.
    match poll(&[(said.as_raw_fd(), 0)], Some(std::time::Duration::ZERO))?.is_empty() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::BrokenPipe, "who made this process is gone")),
    }
}

/// Sets the name by which this process is listed.
pub(crate) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: the text ends with a zero and lives through the call.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) }.into()).map(drop)
}

/// Becomes this user with these groups only. What is left of capabilities is the kernel's rule.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list has the length that is named. The raw calls change this thread only, which
    // is the only one.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Sets the effective and permitted capabilities to `allowed`, the inheritable ones to none.
pub(crate) fn set_capabilities(allowed: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let bytes = allowed.to_le_bytes();
    let [low, high] = [&bytes[..4], &bytes[4..]]
        .map(|half| half.iter().rev().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)));
    let data = [low, low, 0, high, high, 0];
    // SAFETY: version 3 takes a header of two words and two triples of words.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}

/// Marks every descriptor from `first` up to be closed by the next exec.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: no memory is involved.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    check(result).map(drop)
}

/// Puts `from` in the place of the descriptor `to`.
pub(crate) fn put_in_place(from: BorrowedFd<'_>, to: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved; whatever was at `to` is closed, as is meant.
    check(unsafe { libc::dup2(from.as_raw_fd(), to) }.into()).map(drop)
}

/// A handle on a process, by the number that it has now.
pub(crate) fn hold_of(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

/// Sends a signal through a handle that cannot name another process.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let nothing = ptr::null::<libc::siginfo_t>();
    // SAFETY: no signal information is given.
    check(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, nothing, 0)
    })
    .map(drop)
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(leader: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(-leader, signal) }.into()).map(drop)
}

/// A child that has ended, if one has: its pid and its wait status.
pub(crate) fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status lives through the call. __WALL: children that were given to us send no
    // signal of their own kind and would otherwise be passed over.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (pid > 0).then_some((pid, status))
}

/// Waits for one child to end.
pub(crate) fn wait_for(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the status lives through the call.
        let result = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        match check(result.into()) {
            Ok(_) => return Ok(status),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ends the process without running anything of ours: after a fork, nothing is ours to run.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Limits the open files of this process.
pub(crate) fn limit_files(limit: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the limit lives through the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }.into()).map(drop)
}

/// Limits the open files of this process to what the kernel lets it have, and to this number as long
/// as it does not ask for more.
pub(crate) fn expect_files(number: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through both calls.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit).into())?;
        limit.rlim_cur = number.min(limit.rlim_max);
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into()).map(drop)
    }
}

/// Begins a session: signals to the group reach what the process starts, and no terminal is ours.
pub(crate) fn begin_session() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setsid() }.into()).map(drop)
}

/// Sets the host name of this namespace.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the text has the length that is named.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// Replaces the program. Returns only if that fails.
pub(crate) fn exec(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: both lists end with a null, and all texts with a zero.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// A descriptor that becomes readable when a child ends, instead of a signal being delivered.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is made by sigemptyset before it is used, and lives through the calls.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()).into())?;
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd.into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Undoes what we, the standard library and whoever started the agent did to signals, before a
/// program of others runs: a shell that starts something behind it has it ignore control-C.
pub(crate) fn default_signals() {
    const SIGNALS: i32 = 64;
    // SAFETY: the set is made by sigemptyset before it is used.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
        for signal in 1..=SIGNALS {
            // Refused for those that cannot be handled, which therefore are not.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Opens a path below `root` without following any link.
pub(crate) fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    const RESOLVE_NO_SYMLINKS: u64 = 0x04;
    open_resolved(root, path, flags, RESOLVE_NO_SYMLINKS)
}

/// Opens a path below `root`. Links count as if `root` were the root; the kernel's own, which lead
/// to what some process has open, are not followed.
pub(crate) fn open_inside(root: BorrowedFd<'_>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    open_resolved(root, path, flags, 0)
}

fn open_resolved(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: i32,
    resolve: u64,
) -> io::Result<OwnedFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
    const RESOLVE_IN_ROOT: u64 = 0x10;
    let path = c_path(path)?;
    let resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve;
    let how = [(flags | libc::O_CLOEXEC) as u64, 0, resolve];
    // SAFETY: path and how live through the call, how has the size that is named.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            how.as_ptr(),
            size_of_val(&how),
        )
    })?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

/// Makes a folder below an open one.
pub(crate) fn make_folder_at(folder: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let name = c_path(name)?;
    // SAFETY: the name lives through the call.
    check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o755) }.into()).map(drop)
}

/// A text for the kernel.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Makes a file below an open folder, never through a link.
pub(crate) fn create_in_root(folder: BorrowedFd<'_>, name: &Path, flags: i32) -> io::Result<()> {
    let name = c_path(name)?;
    // SAFETY: the name lives through the call.
    let fd = unsafe {
        libc::openat(
            folder.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_EXCL | libc::O_CLOEXEC,
            0o644,
        )
    };
    let fd = check(fd.into())?;
    // SAFETY: the kernel has just opened it for us; it is closed at once.
    drop(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) });
    Ok(())
}

/// Waits until a child has ended. One that ended before the call counts, so none is missed.
pub(crate) fn wait_for_child_signal() {
    let mut signal = 0;
    // SAFETY: the set is made by sigemptyset before it is used, and both live through the calls.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
        libc::sigwait(set.as_ptr(), &raw mut signal);
    }
}

/// Closes every descriptor from `first` up. Nothing that owns one may be used after this.
pub(crate) fn close_from(first: u32) {
    // SAFETY: no memory is involved; the callers own none of them, or use none again.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// Waits until one of these is ready, and says which are. No patience means for ever.
pub(crate) fn poll(
    waiting: &[(RawFd, i16)],
    patience: Option<std::time::Duration>,
) -> io::Result<Vec<RawFd>> {
    let milliseconds = patience.map_or(-1, |it| i32::try_from(it.as_millis()).unwrap_or(i32::MAX));
    let mut list: Vec<libc::pollfd> = waiting
        .iter()
        .map(|(fd, events)| libc::pollfd { fd: *fd, events: *events, revents: 0 })
        .collect();
    // SAFETY: the list has the length that is named and lives through the call.
    let result = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
    match check(result.into()) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    Ok(list.into_iter().filter(|it| it.revents != 0).map(|it| it.fd).collect())
}

/// Has reads return at once when there is nothing to read.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }.into()).map(drop)
}

/// Lets go of what is mounted here and below.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: the text lives through the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }.into()).map(drop)
}
