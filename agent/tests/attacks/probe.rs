//! System calls from inside. A container sees this very test program at `/probe` and runs it with
//! the name of one test; what that test then does is said by a variable. Without the variable it is
//! the control: outside, the same calls are not refused.
#![expect(
    unsafe_code,
    reason = "raw system calls, made to be refused; each block says why it is sound"
)]

use std::io;

use super::cell::{self, Cell, probe};
use crate::stage::is_root;
use volvox_agent::container::exit::End;

/// The variable that says what to do.
pub(crate) const WHAT: &str = "VOLVOX_ATTACK";

/// A pointer that no program has: a call that gets as far as its arguments fails there.
const NOWHERE: libc::c_long = -4096;
const NO_FD: libc::c_long = -1;
const NO_PID: libc::c_long = i32::MAX as libc::c_long;
const ALL: libc::c_long = -1;

type Call = (&'static str, libc::c_long, [libc::c_long; 5]);

/// Calls that no container may make, with arguments that do no harm where they are allowed.
const REFUSED: [Call; 55] = [
    ("acct", libc::SYS_acct, [NOWHERE, 0, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("adjtimex", libc::SYS_adjtimex, [NOWHERE, 0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [ALL, 0, 0, 0, 0]),
    ("clock_adjtime", libc::SYS_clock_adjtime, [ALL, NOWHERE, 0, 0, 0]),
    ("clock_settime", libc::SYS_clock_settime, [ALL, NOWHERE, 0, 0, 0]),
    ("clone newcgroup", libc::SYS_clone, [libc::CLONE_NEWCGROUP as i64 | BAD_CLONE, 0, 0, 0, 0]),
    ("clone newns", libc::SYS_clone, [libc::CLONE_NEWNS as i64 | BAD_CLONE, 0, 0, 0, 0]),
    ("clone newuser", libc::SYS_clone, [libc::CLONE_NEWUSER as i64 | BAD_CLONE, 0, 0, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [NOWHERE, 0, 0, 0, 0]),
    ("fanotify_init", libc::SYS_fanotify_init, [ALL, 0, 0, 0, 0]),
    ("finit_module", libc::SYS_finit_module, [NO_FD, NOWHERE, 0, 0, 0]),
    ("fsconfig", libc::SYS_fsconfig, [NO_FD, ALL, 0, 0, 0]),
    ("fsmount", libc::SYS_fsmount, [NO_FD, 0, 0, 0, 0]),
    ("fsopen", libc::SYS_fsopen, [NOWHERE, 0, 0, 0, 0]),
    ("fspick", libc::SYS_fspick, [NO_FD, NOWHERE, 0, 0, 0]),
    ("init_module", libc::SYS_init_module, [NOWHERE, 0, NOWHERE, 0, 0]),
    ("io_uring_enter", libc::SYS_io_uring_enter, [NO_FD, 0, 0, 0, 0]),
    ("io_uring_register", libc::SYS_io_uring_register, [NO_FD, ALL, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, NOWHERE, 0, 0, 0]),
    ("ioperm", libc::SYS_ioperm, [ALL, 1, 0, 0, 0]),
    ("iopl", libc::SYS_iopl, [4, 0, 0, 0, 0]),
    ("kcmp", libc::SYS_kcmp, [NO_PID, NO_PID, 0, 0, 0]),
    ("kexec_file_load", libc::SYS_kexec_file_load, [NO_FD, NO_FD, 0, 0, ALL]),
    ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, ALL, 0]),
    ("keyctl", libc::SYS_keyctl, [ALL, 0, 0, 0, 0]),
    ("mbind", libc::SYS_mbind, [0, 0, ALL, 0, 0]),
    ("migrate_pages", libc::SYS_migrate_pages, [NO_PID, 0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [NO_FD, NOWHERE, 0, 0, 0]),
    ("move_mount", libc::SYS_move_mount, [NO_FD, NOWHERE, NO_FD, NOWHERE, 0]),
    ("move_pages", libc::SYS_move_pages, [NO_PID, 0, 0, 0, 0]),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, [NO_FD, NOWHERE, NOWHERE, 0, 0]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [NO_FD, NOWHERE, 0, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [NO_FD, NOWHERE, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [NOWHERE, 0, 0, 0, 0]),
    ("pivot_root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("process_vm_readv", libc::SYS_process_vm_readv, [NO_PID, NOWHERE, 1, NOWHERE, 1]),
    ("process_vm_writev", libc::SYS_process_vm_writev, [NO_PID, NOWHERE, 1, NOWHERE, 1]),
    ("ptrace", libc::SYS_ptrace, [0x4206, NO_PID, 0, 0, 0]),
    ("quotactl", libc::SYS_quotactl, [ALL, 0, 0, 0, 0]),
    ("quotactl_fd", libc::SYS_quotactl_fd, [NO_FD, 0, 0, 0, 0]),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [NOWHERE, 0, 0, 0, 0]),
    ("set_mempolicy", libc::SYS_set_mempolicy, [ALL, 0, 0, 0, 0]),
    ("setdomainname", libc::SYS_setdomainname, [NOWHERE, ALL, 0, 0, 0]),
    ("sethostname", libc::SYS_sethostname, [NOWHERE, ALL, 0, 0, 0]),
    ("setns", libc::SYS_setns, [NO_FD, 0, 0, 0, 0]),
    ("swapoff", libc::SYS_swapoff, [NOWHERE, 0, 0, 0, 0]),
    ("swapon", libc::SYS_swapon, [NOWHERE, 0, 0, 0, 0]),
    ("syslog", libc::SYS_syslog, [ALL, 0, 0, 0, 0]),
    ("umount2", libc::SYS_umount2, [NOWHERE, 0, 0, 0, 0]),
    ("unshare newcgroup", libc::SYS_unshare, [libc::CLONE_NEWCGROUP as i64 | 1, 0, 0, 0, 0]),
    ("unshare newuser", libc::SYS_unshare, [libc::CLONE_NEWUSER as i64 | 1, 0, 0, 0, 0]),
    ("userfaultfd", libc::SYS_userfaultfd, [ALL, 0, 0, 0, 0]),
];
/// Sharing signal handlers without sharing memory: no kernel clones that.
const BAD_CLONE: libc::c_long = libc::CLONE_SIGHAND as libc::c_long;

/// What the kernel says to a call: 0, or the number of an error.
fn errno(number: libc::c_long, arguments: [libc::c_long; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the pointers among the arguments lead nowhere, so no memory of ours is touched; the
    // flags to clone contradict each other, so no second process comes of it.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0) };
    if result < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn socket(family: i32, kind: i32) -> i32 {
    // SAFETY: no memory is involved. The descriptor goes with this short process.
    let result = unsafe { libc::socket(family, kind, 0) };
    if result < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// Terminal input put into somebody's mouth, and a console's clipboard; on no descriptor at all, so
/// that only a filter can say EPERM. The kernel looks at 32 bits of the number.
fn terminal_calls() -> [(&'static str, i32); 3] {
    [("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541c), ("TIOCSTI with high bits", 0x1_0000_5412)]
        .map(|(name, number)| (name, errno(libc::SYS_ioctl, [NO_FD, number, 0, 0, 0])))
}

/// In the container: does what the variable says, and prints what came of it.
#[expect(clippy::print_stdout, reason = "the test outside reads it in the log")]
fn attack(what: &str) {
    match what {
        "calls" => {
            for (name, number, arguments) in REFUSED {
                println!("{name}={}", errno(number, arguments));
            }
            for (name, result) in terminal_calls() {
                println!("{name}={result}");
            }
            println!("clone3={}", errno(libc::SYS_clone3, [NOWHERE, 0, 0, 0, 0]));
            println!("vsock={}", socket(libc::AF_VSOCK, libc::SOCK_STREAM));
        }
        // Numbers of the x32 interface: the same calls by another name.
        #[cfg(target_arch = "x86_64")]
        "x32" => {
            const X32: libc::c_long = 0x4000_0000;
            println!("getpid={}", errno(X32 | libc::SYS_getpid, [0; 5]));
            println!("umount2={}", errno(X32 | libc::SYS_umount2, [NOWHERE, 0, 0, 0, 0]));
        }
        // The calls of 32-bit programs have other numbers: 20 is getpid there, and writev here.
        #[cfg(target_arch = "x86_64")]
        "i386" => {
            let result: i64;
            // SAFETY: getpid takes nothing and touches nothing.
            unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => result) };
            println!("getpid={result}");
        }
        "ids" => {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let wanted = ["Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:"];
            for line in status.lines().filter(|it| wanted.iter().any(|name| it.starts_with(name))) {
                println!("{}", line.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        "bomb" => loop {
            // SAFETY: every copy does the same and nothing else, and takes no lock of another.
            unsafe { libc::fork() };
        },
        "files" => {
            let mut open = Vec::new();
            let error = loop {
                match std::fs::File::open("/dev/null") {
                    Ok(file) => open.push(file),
                    Err(error) => break error,
                }
            };
            let higher = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            // SAFETY: the limit lives through the call.
            let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const higher) };
            drop(open.split_off(1));
            println!("ended={} raised={}", error.raw_os_error().unwrap(), raised == 0);
        }
        abstract_name if abstract_name.starts_with("connect ") => {
            use std::os::linux::net::SocketAddrExt as _;
            use std::os::unix::net::{SocketAddr, UnixStream};
            let mut words = abstract_name.split(' ').skip(1);
            let name = SocketAddr::from_abstract_name(words.next().unwrap()).unwrap();
            println!("abstract={}", UnixStream::connect_addr(&name).is_ok());
            let port: u16 = words.next().unwrap().parse().unwrap();
            println!("loopback={}", std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        other => panic!("no attack is called {other:?}"),
    }
}

#[test]
fn the_probe_is_free_outside() {
    if let Ok(what) = std::env::var(WHAT) {
        return attack(&what);
    }
    if !is_root() {
        return cell::skip("the_probe_is_free_outside", "only root is refused nothing");
    }
    // A host may have its own reasons to refuse a few of them, but not the ones that matter most.
    let matter = ["mount", "umount2", "setns", "unshare newuser", "clone newuser", "keyctl", "bpf"];
    for (name, number, arguments) in REFUSED.iter().filter(|(name, ..)| matter.contains(name)) {
        let outside = errno(*number, *arguments);
        assert!(![0, libc::EPERM].contains(&outside), "{name} outside: {outside}");
    }
    for (name, result) in terminal_calls() {
        assert_eq!(result, libc::EBADF, "{name} outside");
    }
    assert_ne!(errno(libc::SYS_clone3, [NOWHERE, 0, 0, 0, 0]), libc::ENOSYS);
}

#[test]
fn every_dangerous_call_is_refused_to_everybody() {
    let Some(cell) = Cell::new("every_dangerous_call_is_refused_to_everybody") else { return };
    for user in ["root", "vcap"] {
        let (exit, log) = cell.run(&cell.spec(user), probe(1, user, "calls"));
        assert_eq!(exit.end, End::Status(0), "{log}");
        let says = |line: &str| assert!(log.lines().any(|it| it == line), "{user}: {line}\n{log}");
        let terminal = terminal_calls().map(|(name, _)| name);
        for name in REFUSED.iter().map(|(name, ..)| *name).chain(terminal).chain(["vsock"]) {
            says(&format!("{name}={}", libc::EPERM));
        }
        says(&format!("clone3={}", libc::ENOSYS));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn other_numbers_for_the_same_calls_lead_nowhere() {
    let Some(cell) = Cell::new("other_numbers_for_the_same_calls_lead_nowhere") else { return };
    let (exit, log) = cell.run(&cell.spec("x32"), probe(1, "root", "x32"));
    assert_eq!(exit.end, End::Status(0), "{log}");
    // Where the kernel has x32, getpid would say 0 and umount2 EFAULT were they not refused.
    for name in ["getpid", "umount2"] {
        assert!(log.contains(&format!("{name}={}", libc::ENOSYS)), "{log}");
    }
    let (exit, log) = cell.run(&cell.spec("i386"), probe(1, "root", "i386"));
    assert!(matches!(exit.end, End::Signal(libc::SIGSYS | libc::SIGSEGV)), "{exit:?} {log}");
}
