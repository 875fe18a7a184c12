//! Ways from a root file system, a process or a name to the host: descriptors, links, mounts, ids.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use volvox_agent::container::exit::End;
use volvox_agent::container::spec::{Access, Bind, ContainerSpec, ProcessSpec};

use super::cell::{Cell, FIRST_ID, members, probe, process, until};

/// Something mounted for a test; it goes when this does.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path) -> Mounted {
        std::fs::create_dir_all(at).unwrap();
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        Mounted(at.to_owned())
    }

    fn shared(self) -> Mounted {
        let none = None::<&str>;
        mount(none, &self.0, none, MsFlags::MS_SHARED, none).unwrap();
        self
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn volume(source: &Path, target: &str) -> Bind {
    Bind { source: source.to_owned(), target: PathBuf::from(target), access: Access::ReadWrite }
}

#[test]
fn the_shim_cannot_be_overwritten_through_proc() {
    let Some(cell) = Cell::new("the_shim_cannot_be_overwritten_through_proc") else { return };
    let shim_file = Path::new(env!("CARGO_BIN_EXE_volvox-shim"));
    let before = std::fs::read(shim_file).unwrap();
    let spec = cell.hostile("exe", |layer| {
        let trap = layer.join("trap");
        std::fs::write(&trap, "#!/proc/self/exe\n").unwrap();
        std::fs::set_permissions(&trap, PermissionsExt::from_mode(0o755)).unwrap();
    });
    let mut shim = cell.shims.create(&spec).unwrap();
    // Somebody inside tries for the program of every process that comes by.
    let tries = "echo ready; while [ ! -e /tmp/end ]; do
        for exe in /proc/[0-9]*/exe; do
            case $(readlink $exe) in *volvox-shim*) echo SEEN $exe;; esac
            ( echo x >> $exe ) 2>/dev/null && echo WRITTEN $exe
        done
    done";
    shim.run(process(1, "root", tries)).unwrap();
    until("the thief is ready", || cell.lines(&spec.id).contains("ready"));
    for (id, path) in (2..40).zip(["/proc/self/exe", "/trap"].into_iter().cycle()) {
        // What it says does not matter: it is our own program, inside, with the rights of a guest.
        let _ =
            shim.run(ProcessSpec { path: path.into(), args: vec![], ..process(id, "root", "") });
    }
    shim.run(process(50, "root", "touch /tmp/end")).unwrap();
    shim.wait(1, super::cell::PATIENCE).unwrap().unwrap();
    assert!(!cell.lines(&spec.id).contains("WRITTEN"), "{}", cell.lines(&spec.id));
    assert!(std::fs::read(shim_file).unwrap() == before, "the shim on the host has changed");
    cell.end(shim);
}

#[test]
fn no_descriptor_of_the_host_is_a_way_out() {
    let Some(cell) = Cell::new("no_descriptor_of_the_host_is_a_way_out") else { return };
    // An agent that is careless: a folder of the host, open, inherited by whatever it starts.
    let root = std::fs::File::open("/").unwrap();
    let leaked = nix::fcntl::fcntl(&root, nix::fcntl::FcntlArg::F_DUPFD(40)).unwrap();
    let spec = cell.hostile("fds", |layer| {
        for fd in 3..64 {
            symlink(format!("/proc/self/fd/{fd}"), layer.join(format!("link{fd}"))).unwrap();
        }
    });
    let mut shim = cell.shims.create(&spec).unwrap();
    nix::unistd::close(leaked).unwrap();
    let mut next = 0;
    let mut outcome = |spec: ProcessSpec| {
        next += 1;
        shim.run(ProcessSpec { id: next, ..spec }).is_ok()
    };
    for fd in 3..64 {
        for dir in [format!("/proc/self/fd/{fd}"), format!("/link{fd}")] {
            assert!(!outcome(ProcessSpec { dir, ..process(0, "root", "pwd") }), "cwd at {fd}");
        }
        for path in [format!("/proc/self/fd/{fd}/usr/bin/env"), format!("/link{fd}/usr/bin/env")] {
            assert!(!outcome(ProcessSpec { path, ..process(0, "root", "") }), "program at {fd}");
        }
    }
    let look =
        "pwd -P; ls -l /proc/self/fd | grep -v pipe: | grep -v null | sed 's/.*-> //'; echo end
        for fd in /proc/self/fd/*; do echo ${fd##*/}; done; ls /proc/1/fd /proc/1/cwd /proc/1/root";
    shim.run(ProcessSpec { dir: "/tmp".into(), ..process(900, "root", look) }).unwrap();
    shim.wait(900, super::cell::PATIENCE).unwrap().unwrap();
    let log = cell.lines(&spec.id);
    assert!(log.contains("/tmp"), "{log}");
    let seen: Vec<&str> = log.lines().filter(|it| it.parse::<u32>().is_ok()).collect();
    // The shell that lists has the folder open, as the fourth.
    assert!(seen.iter().all(|it| ["0", "1", "2", "3"].contains(it)), "{log}");
    assert_eq!(log.matches("Permission denied").count(), 3, "init is closed to all: {log}");
    cell.end(shim);
}

#[test]
fn a_root_file_system_with_links_for_folders_is_refused() {
    let Some(cell) = Cell::new("a_root_file_system_with_links_for_folders") else { return };
    let outside = cell.outside();
    let mut nth = 0;
    for name in ["dev", "proc", "sys", "tmp"] {
        for target in ["/nowhere", outside.to_str().unwrap(), "../../outside", "home", "/", "."] {
            nth += 1;
            let spec = cell.hostile(&format!("l{nth}"), |layer| {
                std::fs::remove_dir(layer.join(name)).unwrap();
                symlink(target, layer.join(name)).unwrap();
            });
            let error = cell.shims.create(&spec).unwrap_err().to_string();
            assert!(error.contains("is no folder"), "/{name} -> {target}: {error}");
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "/{name} -> {target}");
        }
    }
}

#[test]
fn what_the_image_has_below_dev_does_not_count() {
    let Some(cell) = Cell::new("what_the_image_has_below_dev_does_not_count") else { return };
    let spec = cell.hostile("dev", |layer| {
        symlink("/proc/sys/kernel/core_pattern", layer.join("dev/null")).unwrap();
        for name in ["dev/pts", "dev/shm", "dev/mqueue", "dev/console", "dev/ptmx"] {
            symlink("/etc", layer.join(name)).unwrap();
        }
    });
    let script = "
        for file in /dev/null /proc/kcore /proc/keys /proc/timer_list; do
            [ -e $file ] && echo $file $(stat -c '%t:%T' $file) $(head -c 1 $file | wc -c)
        done
        for file in /dev/pts /dev/shm; do echo $file $(stat -f -c %T $file); done
        echo x > /dev/null
        ls /dev | sort | tr '\\n' ' '
    ";
    let (exit, log) = cell.script(&spec, "root", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    for file in ["/dev/null", "/proc/kcore", "/proc/keys"] {
        let masked = log.lines().any(|it| it == format!("{file} 1:3 0"));
        assert!(masked || !Path::new(file).exists(), "{file}: {log}");
    }
    assert!(log.contains("/dev/pts devpts") && log.contains("/dev/shm tmpfs"), "{log}");
    let devices = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero";
    assert!(log.contains(devices), "{log}");
}

#[test]
fn a_bind_never_lands_behind_a_link() {
    let Some(cell) = Cell::new("a_bind_never_lands_behind_a_link") else { return };
    let outside = cell.outside();
    let source = cell.folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "").unwrap();
    let links = [outside.to_str().unwrap(), "../../outside", "/etc", "nowhere"];
    for (nth, link) in links.into_iter().enumerate() {
        for (kind, bound) in [("folder", source.clone()), ("file", source.join("file"))] {
            let mut spec = cell.hostile(&format!("{kind}{nth}"), |layer| {
                symlink(link, layer.join("link")).unwrap();
            });
            spec.binds.push(volume(&bound, "/link/below"));
            assert!(cell.shims.create(&spec).is_err(), "{kind} below {link}");
            // At the link itself it is refused, or covers the link: both are inside.
            spec.binds.last_mut().unwrap().target = PathBuf::from("/link");
            if let Ok(shim) = cell.shims.create(&spec) {
                cell.end(shim);
            }
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{kind} at {link}");
        }
    }
    assert_eq!(std::fs::read_dir(&source).unwrap().count(), 1);
}

#[test]
fn a_bind_below_a_volume_does_not_lose_a_race_against_links() {
    const ROUNDS: u32 = 40;
    let Some(cell) = Cell::new("a_bind_below_a_volume_does_not_lose_a_race") else { return };
    let outside = cell.outside();
    let shared = cell.folder.path().join("shared");
    let source = cell.folder.path().join("source");
    std::fs::create_dir_all(shared.join("a")).unwrap();
    std::fs::create_dir(&source).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another container with the same volume, as fast as it can: folder, link, folder, link.
        scope.spawn(|| {
            symlink(&outside, shared.join("b")).unwrap();
            let name =
                |part: &str| std::ffi::CString::new(shared.join(part).to_str().unwrap()).unwrap();
            while !over.load(Ordering::Relaxed) {
                exchange(&name("a"), &name("b"));
            }
        });
        for round in 0..ROUNDS {
            let mut spec = cell.spec(&format!("race{round}"));
            spec.binds.push(volume(&shared, "/vol"));
            spec.binds.push(volume(&source, "/vol/a/in/here"));
            // It may be refused or made; it may not have followed the link.
            if let Ok(shim) = cell.shims.create(&spec) {
                cell.end(shim);
            }
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "round {round}");
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn exchange(one: &std::ffi::CStr, other: &std::ffi::CStr) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
}

#[test]
fn a_volume_brings_no_devices_and_read_only_holds_below() {
    let Some(cell) = Cell::new("a_volume_brings_no_devices_and_read_only_holds") else { return };
    let writable = cell.folder.path().join("writable");
    let fixed = cell.folder.path().join("fixed");
    let _below = Mounted::tmpfs(&fixed.join("below"));
    for folder in [&writable, &fixed, &fixed.join("below")] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    }
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let device = writable.join("zero");
    mknod(&device, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 5)).unwrap();
    std::fs::set_permissions(&device, PermissionsExt::from_mode(0o666)).unwrap();
    let mut spec = cell.spec("volume");
    spec.binds.push(volume(&writable, "/writable"));
    let read_only = Bind { access: Access::ReadOnly, ..volume(&fixed, "/fixed") };
    spec.binds.push(read_only);
    let script = "
        touch /writable/mine && echo written
        head -c 1 /writable/zero >/dev/null && echo DEVICE OPENED
        touch /fixed/x && echo WRITTEN
        touch /fixed/below/x && echo WRITTEN BELOW
        grep ' /writable ' /proc/self/mountinfo | cut -d' ' -f6
        true
    ";
    let (exit, log) = cell.script(&spec, "root", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert!(log.contains("written"), "the volume may be written to: {log}");
    for bad in ["DEVICE OPENED", "WRITTEN"] {
        assert!(!log.contains(bad), "{log}");
    }
    assert!(log.contains("nosuid,nodev"), "{log}");
}

#[test]
fn mounts_do_not_spread_either_way() {
    let Some(cell) = Cell::new("mounts_do_not_spread_either_way") else { return };
    let shared = cell.folder.path().join("shared");
    let _mounted = Mounted::tmpfs(&shared).shared();
    std::fs::create_dir(shared.join("below")).unwrap();
    let mut spec = cell.spec("spread");
    spec.binds.push(volume(&shared, "/vol"));
    let mut shim = cell.shims.create(&spec).unwrap();
    {
        let _later = Mounted::tmpfs(&shared.join("below"));
        std::fs::write(shared.join("below/secret"), "").unwrap();
        let script = "ls /vol/below; grep -c ' /vol/below ' /proc/self/mountinfo
            grep ' /vol ' /proc/self/mountinfo | grep -c -e shared: -e master:";
        shim.run(process(1, "root", script)).unwrap();
        shim.wait(1, super::cell::PATIENCE).unwrap().unwrap();
    }
    assert_eq!(cell.lines(&spec.id), "0\n0", "a later mount of the host is seen inside");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&spec.id), "the container's mounts are seen outside");
    cell.end(shim);
}

/// Whatever this test hands to `clear` leads to something of its own. A name that leads elsewhere
/// would, were it not refused, take the machine along that runs the test.
#[test]
fn names_that_are_paths_reach_nothing() {
    let Some(cell) = Cell::new("names_that_are_paths_reach_nothing") else { return };
    let mut neighbour = Neighbour::new(&cell);
    let victim = cell.folder.path().join("victim");
    std::fs::create_dir_all(victim.join("data")).unwrap();
    let up = format!("../{}", neighbour.name);
    for id in [up.as_str(), "../victim", victim.to_str().unwrap()] {
        let spec = ContainerSpec { id: id.to_owned(), ..cell.spec("x") };
        assert!(cell.shims.create(&spec).is_err(), "{id:?} was made");
        assert!(cell.shims.attach(id).is_err(), "{id:?} was reached");
        assert!(cell.shims.clear(id).is_err(), "{id:?} was cleared");
    }
    assert!(neighbour.lives(), "the neighbour was killed or has lost its cgroup");
    assert!(victim.join("data").exists());
    let long = "x".repeat(64);
    for id in ["", ".", "..", "/", "a/b", "-x", "a b", "a\0b", "a\n", "a.b", ".a", "\u{e4}", &long]
    {
        let spec = ContainerSpec { id: id.to_owned(), ..cell.spec("x") };
        assert!(cell.shims.create(&spec).is_err(), "{id:?} was made");
    }
}

/// Somebody in cgroups beside ours: whom a wrong name would kill.
struct Neighbour {
    name: String,
    process: std::process::Child,
    cgroups: Vec<PathBuf>,
}

impl Neighbour {
    fn new(cell: &Cell) -> Neighbour {
        let name = cell.spec("neighbour").id;
        let shim = cell.shims.create(&cell.spec("place")).unwrap();
        let ours = super::cell::cgroups().into_iter().filter(|it| it.ends_with(shim.id()));
        let cgroups: Vec<PathBuf> =
            ours.map(|it| it.parent().unwrap().parent().unwrap().join(&name)).collect();
        cell.end(shim);
        assert!(!cgroups.is_empty());
        let piped = std::process::Stdio::piped();
        let process = std::process::Command::new("cat").stdin(piped).spawn().unwrap();
        for cgroup in &cgroups {
            std::fs::create_dir(cgroup).unwrap();
            std::fs::write(cgroup.join("cgroup.procs"), process.id().to_string()).unwrap();
        }
        Neighbour { name, process, cgroups }
    }

    fn lives(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none() && self.cgroups.iter().all(|it| it.exists())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for cgroup in &self.cgroups {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

#[test]
fn who_a_process_runs_as_is_never_the_hosts_root() {
    let Some(cell) = Cell::new("who_a_process_runs_as_is_never_the_hosts_root") else { return };
    let spec = cell.hostile("users", |layer| {
        let passwd = "root:x:0:0::/:/bin/sh\nminus:x:4294967295:0::/:/bin/sh\n\
            group:x:2000:4294967295::/:/bin/sh\nfar:x:65536:0::/:/bin/sh\n\
            last:x:65535:65535::/:/bin/sh\nbig:x:4294967296:0::/:/bin/sh\nneg:x:-1:-1::/:/bin/sh\n\
            member:x:3000:3000::/:/bin/sh\n";
        std::fs::write(layer.join("etc/passwd"), passwd).unwrap();
        std::fs::write(layer.join("etc/group"), "odd:x:4294967295:member\n").unwrap();
    });
    let mut shim = cell.shims.create(&spec).unwrap();
    let refused = [
        "minus",
        "group",
        "far",
        "big",
        "neg",
        "4294967295",
        "65536",
        "-1",
        "",
        " ",
        "0x0",
        "root\0",
        "root\n",
        "0:0",
        "root:root",
        "+0",
        "nobody",
        "../root",
        "ROOT",
    ];
    for (id, user) in (1..).zip(refused) {
        let outcome = shim.run(process(id, user, "sleep 1000"));
        // One that runs all the same is looked at from the host: whose is it?
        let uids: Vec<u32> = members(&spec.id)
            .into_iter()
            .map(|pid| std::fs::metadata(format!("/proc/{pid}")).map_or(FIRST_ID, |it| it.uid()))
            .collect();
        assert!(outcome.is_err(), "{user:?} runs, as one of {uids:?} on the host");
    }
    for (id, (user, uid)) in
        (100..).zip([("root", 0), ("last", 65_535), ("0", 0), ("77", 77), ("member", 3_000)])
    {
        shim.run(probe(id, user, "ids")).unwrap();
        shim.wait(id, super::cell::PATIENCE).unwrap().unwrap();
        let expected = format!("Uid: {uid} {uid} {uid} {uid}");
        assert!(cell.lines(&spec.id).contains(&expected), "{user}: {}", cell.lines(&spec.id));
    }
    cell.end(shim);
}

#[test]
fn every_process_on_the_host_is_in_the_containers_range() {
    let Some(cell) = Cell::new("every_process_on_the_host_is_in_the_range") else { return };
    let spec = cell.spec("range");
    let mut shim = cell.shims.create(&spec).unwrap();
    for (id, user) in [(1, "root"), (2, "vcap"), (3, "4711")] {
        shim.run(process(id, user, "sleep 1000 & sleep 1000")).unwrap();
    }
    until("all six run", || members(&spec.id).len() >= 7);
    let range = u64::from(FIRST_ID)..u64::from(FIRST_ID + spec.ids);
    for pid in members(&spec.id) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ids = status.lines().filter(|it| it.starts_with("Uid:") || it.starts_with("Gid:"));
        let ids: Vec<u64> = ids
            .flat_map(|it| it.split_whitespace().skip(1).map(|id| id.parse().unwrap()))
            .collect();
        assert_eq!(ids.len(), 8);
        assert!(ids.iter().all(|id| range.contains(id)), "{pid}: {ids:?}");
    }
    cell.end(shim);
}

#[test]
fn a_setuid_program_gains_nothing_and_strangers_files_are_not_writable() {
    let Some(cell) = Cell::new("a_setuid_program_gains_nothing") else { return };
    let spec = cell.hostile("setuid", |layer| {
        let program = layer.join("setuid");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
        let strange = layer.join("strange");
        std::fs::write(&strange, "").unwrap();
        // An id of the host that no container has, however the layers are mapped.
        std::os::unix::fs::chown(&strange, Some(2_000_000_000), Some(2_000_000_000)).unwrap();
        std::fs::set_permissions(&strange, PermissionsExt::from_mode(0o644)).unwrap();
    });
    let raised = ProcessSpec { path: "/setuid".into(), ..probe(1, "vcap", "ids") };
    let (exit, log) = cell.run(&spec, raised);
    assert_eq!(exit.end, End::Status(0), "{log}");
    for line in ["Uid: 2000 2000 2000 2000", "Gid: 2000 2000 2000 2000"] {
        assert!(log.contains(line), "{log}");
    }
    assert!(log.contains("CapEff: 0000000000000000"), "{log}");
    let (_, log) = cell.script(
        &spec,
        "root",
        "echo x > /strange && echo WRITTEN; chown 0 /strange && echo TAKEN",
    );
    assert!(!log.contains("WRITTEN") && !log.contains("TAKEN"), "{log}");
}
