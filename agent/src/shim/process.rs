//! Runs a process in the container: joins its namespaces, gives up everything it should not have,
//! and becomes the program.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use seccompiler::BpfProgram;

use super::container::{Container, forget_oom_score};
use super::output::Streams;
use super::user::{self, User};
use super::{pipe, seccomp, terminal};
use crate::container::spec::ProcessSpec;
use crate::kernel::sys::{self, Fork};

/// What even the container's root may do: what programs that start as root need to become
/// somebody else. Chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
/// net_bind_service, sys_chroot, setfcap.
const CAPABILITIES: u64 =
    1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 18 | 1 << 31;
/// What the root of a privileged container may do beside that, as Garden gives it to every container:
/// net_raw, mknod, audit_write. What Garden gives to privileged ones only (sys_admin and the like)
/// would undo seccomp's and the cgroup's work, and is not given.
const MORE_CAPABILITIES: u64 = 1 << 13 | 1 << 27 | 1 << 29;
/// Where a program without a path is looked for when its environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a process may take to become its program: milliseconds, or seconds when processors are
/// short and the container has the smallest share of them. Somebody in the container may stop it on
/// the way, and the shim does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// Open files of a process that asks for no number; it may ask the kernel for more by itself.
const DEFAULT_FILES: u64 = 1_024;
/// Of the container's own files no more than this is read.
const USER_FILE_BYTES: u64 = 1 << 20;

/// Starts a process with these streams and gives its pid, or says why it could not be. The caller's
/// children are born in the container's process namespace; they enter the others themselves.
pub(crate) fn spawn(
    container: &Container,
    spec: &ProcessSpec,
    filters: &[BpfProgram],
    streams: &Streams,
) -> io::Result<i32> {
    let (mut hear, mut say) = pipe()?;
    match sys::fork(0)? {
        Fork::Child => {
            drop(hear);
            let more = if container.is_privileged { MORE_CAPABILITIES } else { 0 };
            let error = match enter(container) {
                Ok(()) => become_program(spec, CAPABILITIES | more, filters, streams),
                Err(error) => io::Error::new(error.kind(), format!("enter the container: {error}")),
            };
            let _ = say.write_all(error.to_string().as_bytes());
            sys::exit_now(127)
        }
        Fork::Parent(pid, _) => {
            drop(say);
            if sys::poll(&[(hear.as_raw_fd(), libc::POLLIN)], Some(PATIENCE))?.is_empty() {
                // It is our child and not reaped, so the number is still its own.
                let _ = sys::hold_of(pid).and_then(|it| sys::signal(it.as_fd(), libc::SIGKILL));
                sys::wait_for(pid)?;
                return Err(io::Error::other("it was stopped before it could begin"));
            }
            let mut complaint = String::new();
            hear.read_to_string(&mut complaint)?;
            if complaint.is_empty() {
                return Ok(pid);
            }
            let _ = sys::wait_for(pid);
            Err(io::Error::other(complaint))
        }
    }
}

fn enter(container: &Container) -> io::Result<()> {
    // The container sees this process from its birth on, and must not look into it.
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    forget_oom_score("self")?;
    container.cgroup.join()?;
    sys::enter(container.pidfd.as_fd(), container.namespaces & !libc::CLONE_NEWPID)
}

/// Becomes the program. Returns only with the reason why not.
fn become_program(
    spec: &ProcessSpec,
    capabilities: u64,
    filters: &[BpfProgram],
    streams: &Streams,
) -> io::Error {
    match prepare(spec, capabilities, filters, streams) {
        Err(error) => error,
        Ok((candidates, arguments, environment)) => {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for path in candidates {
                let error = sys::exec(&path, &arguments, &environment);
                if error.kind() != io::ErrorKind::NotFound {
                    last = error;
                }
            }
            io::Error::new(last.kind(), format!("run {}: {last}", spec.path))
        }
    }
}

type Program = (Vec<CString>, Vec<CString>, Vec<CString>);

fn prepare(
    spec: &ProcessSpec,
    capabilities: u64,
    filters: &[BpfProgram],
    streams: &Streams,
) -> io::Result<Program> {
    let user = find_user(&spec.user)?;
    sys::begin_session()?;
    let three = match streams {
        Streams::Apart { stdin, stdout, stderr } => [stdin, stdout, stderr],
        Streams::Terminal(slave) => {
            terminal::take_over(slave.as_fd(), user.uid)?;
            [slave, slave, slave]
        }
    };
    for (number, stream) in (0..).zip(three) {
        sys::put_in_place(stream.as_fd(), number)?;
    }
    sys::default_signals();
    match spec.nofile {
        Some(limit) => sys::limit_files(limit)?,
        // Not the agent's own, which has been raised. Some programs count their files with `select`.
        None => sys::expect_files(DEFAULT_FILES)?,
    }
    for capability in (0..64).filter(|it| capabilities & (1 << it) == 0) {
        // The kernel does not know all 64: those it does not know cannot be had.
        let _ = sys::prctl(libc::PR_CAPBSET_DROP, capability);
    }
    sys::become_user(user.uid, user.gid, &user.groups)?;
    if user.uid == 0 {
        sys::set_capabilities(capabilities)?;
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    go_to(spec, &user)?;
    let program = program(spec, &user)?;
    seccomp::apply(filters)?;
    sys::close_on_exec_from(3)?;
    Ok(program)
}

fn find_user(wanted: &str) -> io::Result<User> {
    // A file that cannot be read, or is none, tells of nobody.
    let read = |path: &str| read_plain(Path::new(path)).unwrap_or_default();
    user::find(wanted, &read("/etc/passwd"), &read("/etc/group")).map_err(io::Error::other)
}

/// Reads a file of the container's. It may have put anything there: what is no plain file is not
/// waited for, and no link leads to what the shim has open.
fn read_plain(path: &Path) -> io::Result<String> {
    let root: OwnedFd = File::open("/")?.into();
    let file = File::from(sys::open_inside(root.as_fd(), path, libc::O_NONBLOCK)?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(USER_FILE_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Goes to the working folder as the user it runs as, and makes sure that it is inside.
fn go_to(spec: &ProcessSpec, user: &User) -> io::Result<()> {
    let wanted = if spec.dir.is_empty() { user.home.as_str() } else { spec.dir.as_str() };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("go to {wanted}: {error}"));
    match std::env::set_current_dir(wanted) {
        Ok(()) => {}
        // A home that is not there is no reason not to run; a folder that was asked for is.
        Err(_) if spec.dir.is_empty() => std::env::set_current_dir("/")?,
        Err(error) => return Err(named(error)),
    }
    let here = std::env::current_dir().map_err(named)?;
    if here.is_absolute() {
        Ok(())
    } else {
        Err(named(io::Error::other("it is not in the container")))
    }
}

fn program(spec: &ProcessSpec, user: &User) -> io::Result<Program> {
    let mut env = spec.env.clone();
    let has = |env: &[String], name: &str| env.iter().any(|it| it.starts_with(name));
    if !has(&env, "PATH=") {
        env.push(format!("PATH={DEFAULT_PATH}"));
    }
    if !has(&env, "HOME=") {
        env.push(format!("HOME={}", user.home));
    }
    let candidates: Vec<String> = if spec.path.contains('/') {
        vec![spec.path.clone()]
    } else {
        // The last one counts, as it does for the program itself.
        let paths = env.iter().rev().find_map(|it| it.strip_prefix("PATH=")).unwrap_or_default();
        paths.split(':').map(|folder| format!("{folder}/{}", spec.path)).collect()
    };
    let texts = |list: Vec<String>| -> io::Result<Vec<CString>> {
        list.into_iter().map(|text| Ok(CString::new(text)?)).collect()
    };
    let arguments = std::iter::once(spec.path.clone()).chain(spec.args.iter().cloned()).collect();
    Ok((texts(candidates)?, texts(arguments)?, texts(env)?))
}
