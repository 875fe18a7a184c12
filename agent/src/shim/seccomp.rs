//! System calls that no container needs and that have led out of one: refused. A program that
//! probes for them gets an error, not a death.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Refused whatever their arguments.
const REFUSED: [i64; 56] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_uselib,
    libc::SYS_vhangup,
    libc::SYS_ustat,
];

/// Every kind of namespace, as a flag of clone and unshare.
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWTIME,
];

/// Terminal calls that put words into somebody else's mouth.
const TERMINAL_CALLS: [u64; 2] = [0x5412, 0x541c];

/// The filters, compiled once for each container and put on each of its processes.
pub(crate) fn compile() -> io::Result<Vec<BpfProgram>> {
    let arch: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let has_flag = |flag: i32| {
        let flag = u64::from(flag.cast_unsigned());
        rule(0, SeccompCmpOp::MaskedEq(flag), flag)
    };
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        rules.insert(call, NAMESPACES.into_iter().map(has_flag).collect::<io::Result<_>>()?);
    }
    let calls = TERMINAL_CALLS.into_iter().map(|call| rule(1, SeccompCmpOp::Eq, call));
    rules.insert(libc::SYS_ioctl, calls.collect::<io::Result<_>>()?);
    // Its addresses are the hypervisor's and know no network namespace.
    let machines = rule(0, SeccompCmpOp::Eq, libc::AF_VSOCK.unsigned_abs().into())?;
    rules.insert(libc::SYS_socket, vec![machines]);
    // The flags of clone3 are behind a pointer where no filter can look. Told that there is no
    // such call, every C library falls back to clone.
    let unseen = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let mut filters = [(rules, libc::EPERM), (unseen, libc::ENOSYS)]
        .into_iter()
        .map(|(rules, errno)| {
            let refuse = SeccompAction::Errno(errno.cast_unsigned());
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
            filter.and_then(TryInto::try_into).map_err(io::Error::other)
        })
        .collect::<io::Result<Vec<_>>>()?;
    if arch == TargetArch::x86_64 {
        filters.push(no_second_numbers());
    }
    Ok(filters)
}

/// On this processor most calls have a second number, with this bit set (x32), which the filters
/// above do not know: there is no such call.
fn no_second_numbers() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let [load_number, jump_if_set, answer] = [0x20, 0x45, 0x06];
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(load_number, 0, 0, 0),
        step(jump_if_set, 0, 1, X32),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    condition.and_then(|it| SeccompRule::new(vec![it])).map_err(io::Error::other)
}

/// Puts the filters on this process, for good.
pub(crate) fn apply(filters: &[BpfProgram]) -> io::Result<()> {
    for filter in filters {
        seccompiler::apply_filter(filter).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_name_no_call_twice() {
        let expected = if cfg!(target_arch = "x86_64") { 3 } else { 2 };
        assert_eq!(compile().unwrap().len(), expected);
        let distinct: std::collections::BTreeSet<i64> = REFUSED.into_iter().collect();
        assert_eq!(distinct.len(), REFUSED.len());
    }
}
