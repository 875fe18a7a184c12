//! What a container may do to its own kernel objects and to its shim: rights, kernel files, the
//! host's sockets, and how much of everything.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use volvox_agent::container::exit::End;
use volvox_agent::container::spec::{ContainerSpec, LogLimits, ProcessSpec};
use volvox_agent::runtime::shim::ShimError;

use super::cell::{Cell, PATIENCE, members, probe, process, until};

/// The capabilities of a container's root, as the kernel prints them: chown, dac_override, fowner,
/// fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap.
const BOUNDING: &str = "00000000800405fb";
const NOTHING: &str = "0000000000000000";

#[test]
fn rights_are_exactly_the_list_and_the_first_process_has_none() {
    let Some(cell) = Cell::new("rights_are_exactly_the_list") else { return };
    let spec = cell.spec("rights");
    let mut shim = cell.shims.create(&spec).unwrap();
    let script =
        "sed -n 's/^\\(Cap[A-Z][a-z]*\\|NoNewPrivs\\|Seccomp\\):\\t/\\1=/p' /proc/$1/status";
    let look = |pid: &str| script.replace("$1", pid);
    let cases = [
        ("root", look("self"), [NOTHING, BOUNDING, BOUNDING, BOUNDING, NOTHING]),
        ("vcap", look("self"), [NOTHING, NOTHING, NOTHING, BOUNDING, NOTHING]),
        ("root", look("1"), [NOTHING; 5]),
    ];
    let mut expected = Vec::new();
    for (id, (user, script, sets)) in (1..).zip(cases) {
        shim.run(process(id, user, &script)).unwrap();
        shim.wait(id, PATIENCE).unwrap().unwrap();
        let names = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        expected.extend(names.iter().zip(sets).map(|(name, set)| format!("{name}={set}")));
        expected.extend(["NoNewPrivs=1".to_owned(), "Seccomp=2".to_owned()]);
    }
    let log = cell.lines(&spec.id);
    let said: Vec<&str> = log.lines().collect();
    assert_eq!(said, expected, "root, vcap, the first process");
    cell.end(shim);
}

#[test]
fn kernel_files_cannot_be_written_and_secrets_not_read() {
    let Some(cell) = Cell::new("kernel_files_cannot_be_written") else { return };
    let script = "
        for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger \
            /proc/sys/vm/overcommit_memory /proc/sys/net/ipv4/ip_forward /proc/irq/default_smp_affinity \
            /proc/1/oom_score_adj /proc/1/mem /proc/1/uid_map /sys/kernel/uevent_helper \
            /sys/power/state /sys/block/*/queue/nr_requests /sys/class/net/lo/mtu \
            /proc/bus/pci/*/* /sys/module/*/parameters/*; do
            [ -e \"$file\" ] && (echo 1 > \"$file\") 2>/dev/null && echo WRITTEN $file
        done
        for file in /proc/1/environ /proc/1/mem /proc/1/maps /proc/1/cwd/ /proc/1/root/ /proc/1/exe \
            /proc/kcore /proc/kmsg /proc/keys /proc/timer_list /proc/sched_debug /dev/mem /dev/kmsg \
            /dev/sd* /dev/vd* /dev/nvme* /dev/loop* /dev/kvm /dev/fuse /dev/net/tun; do
            [ -n \"$(head -c 1 $file 2>/dev/null | tr '\\0' x)\" ] && echo READ $file
        done
        for folder in /sys/firmware /proc/scsi /proc/acpi /proc/asound /sys/fs/cgroup; do
            [ -n \"$(ls -A $folder 2>/dev/null)\" ] && echo LISTED $folder
        done
        for kind in b c; do mknod /tmp/disk$kind $kind 8 0 2>/dev/null && echo MADE $kind; done
        mount -t cgroup -o memory none /tmp 2>/dev/null && echo MOUNTED v1
        mount -t cgroup2 none /tmp 2>/dev/null && echo MOUNTED v2
        hostname other 2>/dev/null && echo RENAMED
        kill -9 1 2>/dev/null; [ -e /proc/1/stat ] || echo KILLED
        grep -E ' (proc|sysfs|cgroup2?) ' /proc/self/mountinfo | wc -l
        find / -xdev -name cgroup.procs 2>/dev/null
        echo done
    ";
    for user in ["root", "vcap"] {
        let (exit, log) = cell.script(&cell.spec(user), user, script);
        assert_eq!(exit.end, End::Status(0), "{log}");
        assert!(log.ends_with("done"), "{log}");
        for bad in
            ["WRITTEN", "READ", "LISTED", "MADE", "MOUNTED", "RENAMED", "KILLED", "cgroup.procs"]
        {
            assert!(!log.contains(bad), "{user}: {log}");
        }
    }
}

#[test]
fn the_hosts_sockets_and_network_are_out_of_reach() {
    let Some(cell) = Cell::new("the_hosts_sockets_and_network_are_out_of_reach") else { return };
    let name = cell.spec("abstract").id;
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    assert!(std::os::unix::net::UnixStream::connect_addr(&address).is_ok(), "the host reaches it");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (exit, log) =
        cell.run(&cell.spec("sockets"), probe(1, "root", &format!("connect {name} {port}")));
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert!(log.contains("abstract=false") && log.contains("loopback=false"), "{log}");
    let script = "ip link add volvoxattack type dummy 2>/dev/null && echo ADDED
        ip link set lo up 2>/dev/null && echo UP
        ls /sys/class/net";
    let (_, log) = cell.script(&cell.spec("links"), "root", script);
    assert_eq!(log, "lo");
    assert!(!Path::new("/sys/class/net/volvoxattack").exists());
}

#[test]
fn a_log_cannot_be_reached_nor_overflow() {
    let Some(cell) = Cell::new("a_log_cannot_be_reached_nor_overflow") else { return };
    let log = LogLimits { file_bytes: 64 << 10, files: 2, bytes_per_second: None };
    let spec = ContainerSpec { log, ..cell.spec("flood") };
    let mut shim = cell.shims.create(&spec).unwrap();
    // A line without end, lines without number, and bytes that are no text.
    let flood = "head -c 3000000 /dev/zero; yes | head -n 300000; head -c 1000000 /dev/urandom";
    shim.run(process(1, "vcap", flood)).unwrap();
    let mut answers = 0;
    while shim.wait(1, std::time::Duration::ZERO).unwrap().is_none() {
        shim.status().unwrap();
        answers += 1;
    }
    assert!(answers > 0, "the shim answers while it is flooded");
    let folder = cell.shims.log(&spec.id).parent().unwrap().to_owned();
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    let bytes: u64 = files.iter().map(|it| it.metadata().unwrap().len()).sum();
    assert!(files.len() <= 2 && bytes <= 2 * (64 << 10), "{} files, {bytes} bytes", files.len());
    // Nothing below the cell's own folder is visible inside, so there is nothing to swap.
    let host = folder.to_str().unwrap();
    let script = format!(
        "ls -d {host} {host}/.. && echo REACHED; find / -xdev -name shim.sock -o -xdev -name 0.log"
    );
    shim.run(process(2, "root", &script)).unwrap();
    shim.wait(2, PATIENCE).unwrap().unwrap();
    let said = cell.lines(&spec.id);
    let is_ours = |line: &str| line.ends_with("/shim.sock") || line.ends_with("/0.log");
    assert!(!said.lines().any(|line| line == "REACHED" || is_ours(line)), "{said}");
    cell.end(shim);
}

#[test]
fn a_fork_bomb_leaves_the_shim_answering() {
    let Some(cell) = Cell::new("a_fork_bomb_leaves_the_shim_answering") else { return };
    let mut spec = cell.spec("bomb");
    spec.limits.pids = 64;
    spec.limits.memory_bytes = 256 << 20;
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(probe(1, "vcap", "bomb")).unwrap();
    until("the limit is reached", || members(&spec.id).len() >= 60);
    for _ in 0..50 {
        assert!(members(&spec.id).len() <= 64);
        shim.status().unwrap();
    }
    // Whether one more can be started is luck; the shim's answer is not.
    match shim.run(process(2, "vcap", "true")) {
        Ok(()) | Err(ShimError::Refused(_)) => {}
        Err(other) => panic!("{other}"),
    }
    cell.end(shim);
}

#[test]
fn memory_counts_what_is_put_into_memory_files() {
    let Some(cell) = Cell::new("memory_counts_what_is_put_into_memory_files") else { return };
    for folder in ["/tmp", "/dev/shm"] {
        let mut spec = cell.spec(&folder.replace('/', "-"));
        spec.limits.memory_bytes = 24 << 20;
        let script = format!(
            "head -c 60000000 /dev/zero > {folder}/big; [ $(stat -c %s {folder}/big) -lt 60000000 ]"
        );
        let (exit, log) = cell.script(&spec, "vcap", &script);
        let bounded = exit.out_of_memory || exit.end == End::Status(0);
        assert!(bounded, "60 MB fit into {folder} of a container of 24: {exit:?} {log}");
    }
}

#[test]
fn open_files_are_limited_for_good() {
    let Some(cell) = Cell::new("open_files_are_limited_for_good") else { return };
    for user in ["root", "vcap"] {
        let limited = ProcessSpec { nofile: Some(32), ..probe(1, user, "files") };
        let (exit, log) = cell.run(&cell.spec(user), limited);
        assert_eq!(exit.end, End::Status(0), "{log}");
        assert!(log.contains(&format!("ended={} raised=false", libc::EMFILE)), "{user}: {log}");
    }
}

#[test]
fn who_stops_everything_inside_does_not_stop_the_shim() {
    let Some(cell) = Cell::new("who_stops_everything_inside") else { return };
    let spec = cell.spec("stop");
    let mut shim = cell.shims.create(&spec).unwrap();
    // Stops every process it can see, as fast as it can: also one that is not a program yet.
    shim.run(process(1, "root", "echo ready; while :; do kill -STOP -1; done")).unwrap();
    until("it is at work", || cell.lines(&spec.id).contains("ready"));
    for id in 2..5 {
        match shim.run(process(id, "root", "true")) {
            Ok(()) | Err(ShimError::Refused(_)) => {}
            Err(other) => panic!("process {id}: {other}"),
        }
    }
    shim.status().unwrap();
    cell.end(shim);
}

#[test]
fn files_that_never_end_or_never_begin_do_not_stop_the_shim() {
    let Some(cell) = Cell::new("files_that_never_end_or_never_begin") else { return };
    let targets =
        ["fifo", "/dev/zero", "/proc/self/fd/5", "/proc/self/fd/6", "/proc/self/fd/7", "/dev/tty"];
    for (nth, target) in targets.into_iter().enumerate() {
        let spec = cell.hostile(&format!("passwd{nth}"), |layer| {
            let passwd = layer.join("etc/passwd");
            std::fs::remove_file(&passwd).unwrap();
            if target == "fifo" {
                nix::unistd::mkfifo(&passwd, nix::sys::stat::Mode::from_bits_truncate(0o644))
                    .unwrap();
            } else {
                std::os::unix::fs::symlink(target, &passwd).unwrap();
            }
        });
        let mut shim = cell.shims.create(&spec).unwrap();
        for (id, user) in [(1, "0"), (2, "root")] {
            match shim.run(process(id, user, "true")) {
                Ok(()) | Err(ShimError::Refused(_)) => {}
                Err(other) => panic!("/etc/passwd -> {target}, {user}: {other}"),
            }
        }
        cell.end(shim);
    }
}

#[test]
fn an_ended_process_cannot_be_signalled_and_no_stranger_is() {
    let Some(cell) = Cell::new("an_ended_process_cannot_be_signalled") else { return };
    let spec = cell.spec("ended");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "exit 0")).unwrap();
    shim.wait(1, PATIENCE).unwrap().unwrap();
    shim.run(process(2, "vcap", "sleep 1000")).unwrap();
    // The agent dies in between and another one takes over.
    drop(shim);
    let mut shim = cell.attach(&spec.id).unwrap();
    for id in [0, 1, 3, u32::MAX] {
        assert!(matches!(shim.signal(id, 9), Err(ShimError::Refused(_))), "{id}");
    }
    assert_eq!(shim.status().unwrap().running, [2]);
    let init = shim.status().unwrap().init;
    cell.end(shim);
    assert!(!Path::new(&format!("/proc/{init}")).exists(), "the first process is left");
}
