//! What a container may use and whose files it sees, tried with real containers. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unreachable_pub, reason = "the fixture is a module of this test alone")]

#[path = "limits/cell.rs"]
mod cell;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use std::path::PathBuf;
use std::process::{Command, Stdio};

use cell::{Cell, FIRST_ID, Mounted, PATIENCE, bind, host, process, shims_at, skip};
use volvox_agent::runtime::cgroup::{Cgroup, Hierarchy};
use volvox_agent::runtime::spec::{Access, End, Limits};

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
    let script = "
        stat -c '%u:%g %n' / /etc/passwd /etc/vcaps /home/vcap /usr/bin/env /shared/of-root
        echo more >> /etc/vcaps && cat /etc/vcaps && stat -c '%u:%g %n' /etc/vcaps
        touch /shared/by-vcap /home/vcap/new
        echo x >> /etc/passwd || echo of another
    ";
    let mut shim = cell.shims.create(&spec).unwrap();
    assert_eq!(shim.status().unwrap().notes, [""; 0]);
    shim.run(process(1, "vcap", script)).unwrap();
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(0));
    let log = cell.lines(&spec.id);
    for expected in [
        "0:0 /",
        "0:0 /etc/passwd",
        "2000:2000 /etc/vcaps",
        "2000:2000 /home/vcap",
        "0:0 /usr/bin/env",
        "0:0 /shared/of-root",
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
    assert_eq!(std::fs::metadata(upper.join("etc/vcaps")).unwrap().uid(), FIRST_ID + 2_000);
    assert_eq!(std::fs::metadata(upper.join("home/vcap/new")).unwrap().uid(), FIRST_ID + 2_000);
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
    assert!(host("mount", &["-t", "tmpfs", "tmpfs", inner.to_str().unwrap()]));
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
    assert!(notes.len() == 1 && notes[0].contains("/proc/sys/kernel"), "{notes:?}");
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
        assert_eq!(said, "done\n", "{hierarchy:?}");
    }
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
