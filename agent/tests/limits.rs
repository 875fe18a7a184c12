//! What a container may use and whose files it sees, tried with real containers. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unreachable_pub, reason = "the fixture is a module of this test alone")]

#[path = "limits/cell.rs"]
mod cell;
mod stage;

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use std::path::PathBuf;
use std::process::{Command, Stdio};

use cell::{Cell, Mounted, PATIENCE, bind, host, process, shims_at, skip, until};
use volvox_agent::container::exit::End;
use volvox_agent::container::spec::Hierarchy;
use volvox_agent::container::spec::{Access, Limits, ProcessSpec};
use volvox_agent::image::rootfs::FileSystem;
use volvox_agent::kernel::cgroup::Cgroup;
use volvox_agent::runtime::image_mount::{self, ImageMountError};
use volvox_agent::runtime::shim::Shims;

// Whose files.

#[test]
fn an_id_on_disk_is_the_same_id_inside() {
    let Some(cell) = Cell::new("an_id_on_disk_is_the_same_id_inside") else { return };
    std::fs::write(cell.layer().join("etc/vcaps"), "from the layer\n").unwrap();
    std::os::unix::fs::chown(cell.layer().join("etc/vcaps"), Some(2_000), Some(2_000)).unwrap();
    let shared = cell.folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(shared.join("of-root"), "").unwrap();
    let mut spec = cell.spec("ids");
    spec.binds.push(bind(&shared, "/shared", Access::ReadWrite));
    spec.binds.push(bind(&shared, "/deep/er/place", Access::ReadOnly));
    spec.binds.push(bind(shared.join("of-root"), "/deep/file/name", Access::ReadOnly));
    let script = "
        stat -c '%u:%g %n' /deep /deep/er /deep/file
        stat -c '%u:%g %n' / /etc/passwd /etc/vcaps /home/vcap /shared/of-root
        echo more >> /etc/vcaps && cat /etc/vcaps && stat -c '%u:%g %n' /etc/vcaps
        touch /shared/by-vcap /home/vcap/new
        echo x >> /etc/passwd || echo of another
    ";
    let mut shim = cell.shims.create(&spec).unwrap();
    // The programs may come from a file system that cannot do it; ours can.
    let notes = shim.status().unwrap().notes;
    assert!(notes.iter().all(|note| note.starts_with("/usr: ")), "{notes:?}");
    shim.run(process(1, "vcap", script)).unwrap();
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(0));
    let log = cell.lines(&spec.id);
    for expected in [
        "0:0 /",
        "0:0 /etc/passwd",
        "2000:2000 /etc/vcaps",
        "2000:2000 /home/vcap",
        "0:0 /shared/of-root",
        "0:0 /deep",
        "0:0 /deep/er",
        "0:0 /deep/file",
        "from the layer",
        "more",
        "of another",
    ] {
        assert!(log.lines().any(|line| line == expected), "{expected}\n{log}");
    }
    // In a bind its files are what they are inside; in its own part they cannot be taken for
    // anybody else's.
    assert_eq!(std::fs::metadata(shared.join("by-vcap")).unwrap().uid(), 2_000);
    let upper = cell.shims.folder(&spec.id).join("upper");
    assert_eq!(std::fs::metadata(upper.join("etc/vcaps")).unwrap().uid(), spec.first_id + 2_000);
    assert_eq!(
        std::fs::metadata(upper.join("home/vcap/new")).unwrap().uid(),
        spec.first_id + 2_000
    );
    let layer = std::fs::read_to_string(cell.layer().join("etc/vcaps")).unwrap();
    assert_eq!(layer, "from the layer\n");
}

#[test]
fn the_upper_of_several_layers_is_seen() {
    let Some(cell) = Cell::new("the_upper_of_several_layers_is_seen") else { return };
    let mut spec = cell.spec("layers");
    // Names that would have to be escaped if they were given to the overlay as they are.
    for name in ["a:b,c", "d\\e"] {
        let layer = cell.folder.path().join(name);
        std::fs::create_dir_all(layer.join("etc")).unwrap();
        std::fs::write(layer.join("etc/name"), name).unwrap();
        std::fs::write(layer.join("etc").join(name), "").unwrap();
        spec.layers.insert(0, layer);
    }
    let (exit, log) = cell.script(&spec, "root", "cat /etc/name; echo; ls /etc | tr '\\n' ' '");
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert_eq!(log, "d\\e\na:b,c d\\e group name passwd ");
}

#[test]
fn a_read_only_bind_is_read_only_with_all_that_is_mounted_in_it() {
    let Some(mut cell) = Cell::new("a_read_only_bind_is_read_only") else { return };
    let shared = cell.folder.path().join("shared");
    let inner = shared.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    let other = cell.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    assert!(host("mount", &["--bind", other.to_str().unwrap(), inner.to_str().unwrap()]));
    cell.mounts.push(Mounted(inner.clone()));
    let mut spec = cell.spec("read-only");
    spec.binds.push(bind(&shared, "/ro", Access::ReadOnly));
    spec.binds.push(bind(&shared, "/rw", Access::ReadWrite));
    spec.binds.push(bind("/etc/hostname", "/etc/a-file", Access::ReadOnly));
    let script = "
        for place in /ro/new /ro/inner/new /etc/a-file; do
            echo x 2>/dev/null >> $place && echo ALLOWED $place
        done
        for place in /rw/new /rw/inner/new; do touch $place || echo refused $place; done
        while read -r _ _ _ _ place options _; do
            case $place in
                /ro*|/rw*|/usr|/etc/a-file) echo $place $options;;
            esac
        done < /proc/self/mountinfo
    ";
    let (exit, log) = cell.script(&spec, "root", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert!(!log.contains("ALLOWED") && !log.contains("refused"), "{log}");
    for place in ["/ro", "/ro/inner", "/rw", "/rw/inner", "/usr", "/etc/a-file"] {
        let line = log.lines().find(|line| line.split(' ').next() == Some(place)).unwrap();
        let kind = if place.starts_with("/rw") { "rw" } else { "ro" };
        assert!(line.starts_with(&format!("{place} {kind},nosuid,nodev")), "{line}");
    }
    assert_eq!(std::fs::metadata(inner.join("new")).unwrap().uid(), 0);
}

#[test]
fn a_file_system_without_id_maps_is_mounted_as_it_is_and_told_of() {
    let Some(cell) = Cell::new("a_file_system_without_id_maps_is_told_of") else { return };
    let mut spec = cell.spec("plain");
    spec.binds.push(bind("/proc/sys/kernel", "/kernel", Access::ReadWrite));
    let mut shim = cell.shims.create(&spec).unwrap();
    let notes = shim.status().unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("/proc/sys/kernel: ")), "{notes:?}");
    let script = "stat -c %u /kernel/panic; old=$(cat /kernel/panic); echo $old > /kernel/panic || echo refused";
    shim.run(process(1, "root", script)).unwrap();
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(0));
    let log = cell.lines(&spec.id);
    assert!(log.lines().any(|it| it == "65534") && log.lines().any(|it| it == "refused"), "{log}");
}

// Cgroups.

/// The trees that can be tried here: the one that containers use, and the unified one, which has
/// no controllers beside older ones and keeps from devices and kills all the same.
fn hierarchies() -> Vec<Hierarchy> {
    let mut all = vec![Hierarchy::detect().unwrap()];
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let unified = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then(|| Hierarchy::Unified(PathBuf::from(place)))
    });
    all.extend(unified.filter(|it| *it != all[0]));
    all
}

/// A shell of the host that joins a cgroup and then runs a script.
fn join(cgroup: &Cgroup, script: &str) -> Command {
    let mut text = String::new();
    for file in cgroup.join_files() {
        text += &format!("echo 0 > '{}' || exit 99\n", file.display());
    }
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(text + script).stdin(Stdio::null());
    command
}

#[test]
fn only_the_devices_that_programs_expect_can_be_opened() {
    let Some(cell) = Cell::new("only_expected_devices_can_be_opened") else { return };
    for (nth, hierarchy) in hierarchies().into_iter().enumerate() {
        let cgroup = Cgroup::new(hierarchy.clone(), &format!("{}-devices{nth}", cell.prefix));
        cgroup.create(&Limits::default()).unwrap();
        let script = "
            for name in null zero full random urandom ptmx; do
                (: < /dev/$name) 2>&1 || echo refused $name
            done
            for device in /dev/kmsg /dev/loop-control /dev/loop0 /dev/mem; do
                [ -e $device ] && (: < $device) 2>/dev/null && echo ALLOWED $device
            done
            mknod $1 b 7 0 2>/dev/null && echo ALLOWED mknod
            echo done
        ";
        let node = cell.folder.path().join("node");
        let output = join(&cgroup, script).arg("sh").arg(&node).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        cgroup.destroy().unwrap();
        hierarchy.remove_parent();
        assert_eq!(said, "done\n", "{hierarchy:?}");
    }
}

/// The agent's unit has a score that spares it and its shims when memory is short. Any other score than
/// 0 will do to show that containers do not have it from them; one above 0 needs no capability.
#[test]
fn a_container_does_not_have_the_oom_score_of_its_shim() {
    const OURS: &str = "300";
    let Some(cell) = Cell::new("a_container_does_not_have_the_oom_score_of_its_shim") else {
        return;
    };
    let own = "/proc/self/oom_score_adj";
    let before = std::fs::read_to_string(own).unwrap();
    std::fs::write(own, OURS).unwrap();
    let spec = cell.spec("oom");
    let mut shim = cell.shims.create(&spec).unwrap();
    std::fs::write(own, before.trim()).unwrap();
    // The first process, a program, and one that is run in the container later.
    let script = "cat /proc/1/oom_score_adj /proc/self/oom_score_adj";
    for (id, user) in [(1, "root"), (2, "vcap")] {
        shim.run(process(id, user, script)).unwrap();
        assert_eq!(shim.wait(id, PATIENCE).unwrap().unwrap().end, End::Status(0));
    }
    assert_eq!(cell.lines(&spec.id), "0\n0\n0\n0");
    let shims = std::fs::read_dir("/proc").unwrap().flatten().filter(|it| {
        let named = std::fs::read(it.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&named).contains(&spec.id)
    });
    let scores: Vec<String> = shims
        .map(|it| std::fs::read_to_string(it.path().join("oom_score_adj")).unwrap())
        .map(|it| it.trim().to_owned())
        .collect();
    // The container's first process has the shim's command line.
    assert!(scores.iter().any(|it| it == OURS), "the shim has lost its own: {scores:?}");
}

#[test]
fn destroying_a_cgroup_ends_everything_in_it_and_nothing_else() {
    let Some(cell) = Cell::new("destroying_a_cgroup_ends_everything_in_it") else { return };
    for (nth, hierarchy) in hierarchies().into_iter().enumerate() {
        let [doomed, spared] = ["doomed", "spared"].map(|name| {
            let cgroup = Cgroup::new(hierarchy.clone(), &format!("{}-{name}{nth}", cell.prefix));
            cgroup.create(&Limits::default()).unwrap();
            cgroup
        });
        let start = |cgroup: &Cgroup| {
            let mut child =
                join(cgroup, "echo in; exec sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
            let mut word = [0; 3];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
            child
        };
        let (mut one, mut other) = (start(&doomed), start(&spared));
        // It is the cgroup that is destroyed here; the shell is our child and stays a zombie,
        // which a folder does not mind, until it is waited for.
        doomed.destroy().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&one.wait().unwrap()), Some(9));
        assert!(other.try_wait().unwrap().is_none(), "{hierarchy:?}");
        spared.destroy().unwrap();
        other.wait().unwrap();
        doomed.destroy().unwrap();
        hierarchy.remove_parent();
    }
}

#[test]
fn only_a_process_that_lived_through_it_died_for_want_of_memory() {
    let Some(cell) = Cell::new("only_a_process_that_lived_through_it") else { return };
    let mut spec = cell.spec("oom");
    spec.limits.memory_bytes = 32 << 20;
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "exec tail /dev/zero")).unwrap();
    let exit = shim.wait(1, PATIENCE).unwrap().unwrap();
    assert_eq!((exit.end, exit.out_of_memory), (End::Signal(9), true));
    if matches!(spec.cgroup, Hierarchy::Unified(_)) {
        // There the kernel ends the container as a whole, so that nothing half-dead is left.
        until("the container is gone", || shim.status().unwrap().init == 0);
        return;
    }
    shim.run(process(2, "vcap", "kill -9 $$")).unwrap();
    let exit = shim.wait(2, PATIENCE).unwrap().unwrap();
    assert_eq!((exit.end, exit.out_of_memory), (End::Signal(9), false));
}

#[test]
fn file_systems_in_memory_are_bound_in_files_and_counted_as_memory() {
    let Some(cell) = Cell::new("file_systems_in_memory_are_bound") else { return };
    let script = "
        df --output=itotal /tmp /dev/shm /dev | tail -n 3 | tr -d ' '
        cd /dev/shm && seq 5000 | xargs touch 2>/dev/null; ls | wc -l
    ";
    let mut spec = cell.spec("inodes");
    let (exit, log) = cell.script(&spec, "vcap", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    // The folder itself is one of them.
    assert_eq!(log, "65536\n4096\n64\n4095");
    spec.limits.memory_bytes = 32 << 20;
    let (exit, _) = cell.script(&spec, "vcap", "exec head -c 64M /dev/zero > /tmp/x");
    assert_eq!((exit.end, exit.out_of_memory), (End::Signal(9), true));
}

// Disk.

#[test]
fn who_fills_the_disk_is_stopped() {
    let Some(cell) = Cell::new("who_fills_the_disk_is_stopped") else { return };
    let bytes = Limits { disk_bytes: 8 << 20, ..Limits::default() };
    let inodes = Limits { inodes: 100, ..Limits::default() };
    for (name, limits, script) in [
        ("bytes", bytes, "head -c 32M /dev/zero > x || exit 5; exec sleep 1000"),
        ("inodes", inodes, "seq 200 | xargs touch || exit 5; exec sleep 1000"),
    ] {
        let mut spec = cell.spec(name);
        spec.limits = limits;
        let (exit, log) = cell.script(&spec, "vcap", script);
        // Where the machine's file system has quotas the write fails, else the container is ended.
        let outcome = (exit.end, exit.out_of_disk);
        assert!(
            outcome == (End::Signal(9), true) || outcome == (End::Status(5), false),
            "{name}: {exit:?}\n{log}"
        );
    }
}

#[test]
fn with_project_quotas_a_write_beyond_the_limit_fails() {
    const NAME: &str = "with_project_quotas_a_write_beyond_the_limit_fails";
    let Some(mut cell) = Cell::new(NAME) else { return };
    let image = cell.folder.path().join("ext4");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let image = image.to_str().unwrap();
    if !host(
        "mke2fs",
        &["-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota", image],
    ) {
        return skip(NAME, "no mke2fs that makes project quotas");
    }
    let place = cell.folder.path().join("quota");
    std::fs::create_dir(&place).unwrap();
    if !host("mount", &["-o", "loop,prjquota", image, place.to_str().unwrap()]) {
        return skip(NAME, "the kernel mounts no ext4 with project quotas");
    }
    cell.mounts.push(Mounted(place.clone()));
    cell.shims = shims_at(&place);
    let mut spec = cell.spec("quota");
    spec.limits.disk_bytes = 8 << 20;
    spec.limits.inodes = 100;
    let script = "
        head -c 32M /dev/zero > x || echo refused bytes
        rm x; seq 200 | xargs touch 2>/dev/null || echo refused inodes
    ";
    let (exit, log) = cell.script(&spec, "vcap", script);
    assert_eq!((exit.end, exit.out_of_disk), (End::Status(0), false), "{log}");
    let mut said: Vec<&str> = log.lines().filter(|line| line.starts_with("refused")).collect();
    said.sort_unstable();
    assert_eq!(said, ["refused bytes", "refused inodes"], "{log}");
    // The next one with the same ids has no limit of its predecessor's.
    spec.limits = Limits::default();
    let (exit, log) =
        cell.script(&spec, "vcap", "head -c 32M /dev/zero > x && seq 200 | xargs touch");
    assert_eq!(exit.end, End::Status(0), "{log}");
}

// Privilege.

#[test]
fn a_privileged_container_has_the_hosts_root_and_little_else() {
    let Some(cell) = Cell::new("a_privileged_container_has_the_hosts_root") else { return };
    let shared = cell.folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut spec = cell.spec("privileged");
    spec.privileged = true;
    spec.binds.push(bind(&shared, "/shared", Access::ReadWrite));
    let script = "
        read -r first host _ < /proc/self/uid_map; echo mapped $first $host
        stat -c '%u %n' /etc/passwd /home/vcap
        touch /shared/by-root /by-root
        grep -E '^(CapPrm|CapBnd|CapInh|Seccomp|NoNewPrivs):' /proc/self/status | tr '\\t' ' '
        refused() { \"$@\" >/dev/null 2>&1 && echo \"ALLOWED $*\"; }
        refused mount -t tmpfs none /tmp
        refused mount -t cgroup -o memory none /tmp
        refused umount /proc
        refused unshare -m true
        refused sh -c 'mknod /dev/disk b 7 0 && head -c 1 /dev/disk'
        refused sh -c 'mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg'
        refused sh -c 'echo 1 > /proc/sys/kernel/panic'
        refused sh -c 'echo h > /proc/sysrq-trigger'
        refused sh -c 'cat /proc/keys | grep .'
        refused sh -c 'exec 3>>/proc/1/exe'
        refused ls /proc/1/root/
        refused dmesg
        refused hostname other
        echo done
    ";
    let (exit, log) = cell.script(&spec, "root", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert!(!log.contains("ALLOWED") && log.ends_with("done"), "{log}");
    for expected in [
        "mapped 0 0",
        "0 /etc/passwd",
        "2000 /home/vcap",
        "CapInh: 0000000000000000",
        "CapPrm: 00000000a80425fb",
        "CapBnd: 00000000a80425fb",
        "NoNewPrivs: 1",
        "Seccomp: 2",
    ] {
        assert!(log.lines().any(|line| line == expected), "{expected}\n{log}");
    }
    assert_eq!(std::fs::metadata(shared.join("by-root")).unwrap().uid(), 0);
}

#[test]
fn the_shims_program_cannot_be_written_to_from_where_it_runs() {
    let Some(mut cell) = Cell::new("the_shims_program_cannot_be_written_to") else { return };
    // A program of its own: the one that others run could not be written to anyway.
    let program = cell.folder.path().join("volvox-shim");
    std::fs::copy(env!("CARGO_BIN_EXE_volvox-shim"), &program).unwrap();
    cell.shims = Shims::new(&cell.folder.path().join("containers"), &program);
    let mut spec = cell.spec("exe");
    spec.privileged = true;
    let mut shim = cell.shims.create(&spec).unwrap();
    let init = shim.status().unwrap().init;
    assert_eq!(std::fs::read_to_string(format!("/proc/{init}/comm")).unwrap(), "volvox-shim\n");
    // What an attacker would get hold of, as the host's root and with every right.
    let held = std::fs::File::open(format!("/proc/{init}/exe")).unwrap();
    // A container whose program is the program that starts it.
    let hostile = cell.shims.folder(&spec.id).join("upper/hostile");
    std::fs::write(&hostile, "#!/proc/self/exe\n").unwrap();
    std::fs::set_permissions(&hostile, PermissionsExt::from_mode(0o755)).unwrap();
    shim.run(ProcessSpec { path: "/hostile".to_owned(), ..process(1, "root", "") }).unwrap();
    assert_ne!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(0));
    shim.destroy().unwrap();
    cell.shims.clear(&spec.id).unwrap();
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    let mut refused = ErrorKind::ExecutableFileBusy;
    until("nobody runs it", || {
        refused = std::fs::File::options().append(true).open(&again).unwrap_err().kind();
        refused != ErrorKind::ExecutableFileBusy
    });
    assert_eq!(refused, ErrorKind::ReadOnlyFilesystem);
    let before = std::fs::read(env!("CARGO_BIN_EXE_volvox-shim")).unwrap();
    assert!(std::fs::read(program).unwrap() == before, "the program has changed");
}

// Images.

#[test]
fn an_image_is_mounted_once_and_serves_as_a_layer() {
    const NAME: &str = "an_image_is_mounted_once_and_serves_as_a_layer";
    for kind in [FileSystem::Squashfs, FileSystem::Erofs] {
        let Some(mut cell) = Cell::new(NAME) else { return };
        let kernel = std::fs::read_to_string("/proc/filesystems").unwrap();
        if !kernel.lines().any(|line| line.trim() == kind.name()) {
            skip(NAME, &format!("the kernel has no {}", kind.name()));
            continue;
        }
        let [one, other] = ["one", "other"].map(|name| cell.folder.path().join(name));
        let layer = cell.layer();
        let mut all_made = true;
        for image in [&one, &other] {
            let [image, layer] = [image, &layer].map(|it| it.to_str().unwrap());
            all_made &= match kind {
                FileSystem::Squashfs => {
                    host("mksquashfs", &[layer, image, "-quiet", "-no-progress"])
                }
                FileSystem::Erofs => host("mkfs.erofs", &["--quiet", image, layer]),
            };
        }
        if !all_made {
            skip(NAME, &format!("no program that makes {}", kind.name()));
            continue;
        }
        let place = cell.folder.path().join("mounted");
        image_mount::mounted(&one, kind, &place).unwrap();
        cell.mounts.push(Mounted(place.clone()));
        let device = std::fs::metadata(&place).unwrap().dev();
        // As an agent would that has started again.
        image_mount::mounted(&one, kind, &place).unwrap();
        assert_eq!(std::fs::metadata(&place).unwrap().dev(), device);
        let taken = image_mount::mounted(&other, kind, &place).unwrap_err();
        assert!(matches!(taken, ImageMountError::Taken(_)), "{taken}");

        let mut spec = cell.spec(kind.name());
        spec.layers = vec![place.clone()];
        let mut shim = cell.shims.create(&spec).unwrap();
        // Squashfs can map ids since Linux 6.2.
        let notes = shim.status().unwrap().notes;
        let is_mapped = !notes.iter().any(|note| note.contains(&cell.prefix));
        let (owner, may_write) = if is_mapped { (2_000, "may write") } else { (65_534, "may not") };
        // A layer of a container that runs outlives its mount on the host.
        image_mount::unmount(&place).unwrap();
        image_mount::unmount(&place).unwrap();
        let script = "
            stat -c '%u %n' /home/vcap
            if touch new 2>/dev/null; then echo may write; else echo may not; fi
            grep -c vcap /etc/passwd
        ";
        shim.run(process(1, "vcap", script)).unwrap();
        let exit = shim.wait(1, PATIENCE).unwrap().unwrap();
        let log = cell.lines(&spec.id);
        assert_eq!(exit.end, End::Status(0), "{kind:?}: {log}");
        assert_eq!(log, format!("{owner} /home/vcap\n{may_write}\n1"), "{kind:?}");
        shim.destroy().unwrap();
        let number = device & 0xff | device >> 12 & !0xff;
        let backing = format!("/sys/dev/block/7:{number}/loop/backing_file");
        until("the loop device is free", || {
            std::fs::read_to_string(&backing).map_or(true, |it| !it.contains(&cell.prefix))
        });
    }
}

// The end.

#[test]
fn a_container_is_destroyed_while_its_processes_run() {
    let Some(cell) = Cell::new("a_container_is_destroyed_while_its_processes_run") else { return };
    let spec = cell.spec("busy");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "sleep 1000 & sleep 1000")).unwrap();
    shim.run(process(2, "root", "exec sleep 1000")).unwrap();
    shim.destroy().unwrap();
    cell.shims.clear(&spec.id).unwrap();
    assert!(!cell.shims.folder(&spec.id).exists());
}
