//! Real containers, held by real shims: what runs, what it sees, what it may not do, and what is
//! left afterwards. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use volvox_agent::container::exit::{End, Exit};
use volvox_agent::container::spec::Hierarchy;
use volvox_agent::container::spec::{
    Access, Bind, ContainerSpec, Limits, LogLimits, LogLine, LogStream, OutputTarget, ProcessSpec,
    TerminalSize,
};
use volvox_agent::runtime::shim::{Shim, ShimError, Shims, Terminal, TerminalEvent};
use volvox_agent::shim::wire::{CAPTURE_BYTES, MADE_WITHIN_S, PROCESSES, RUNNING};

use stage::{can_run, pause, shell as process, small_root, texts};

const PATIENCE: Duration = Duration::from_secs(60);
const TERM: i32 = 15;

/// A cell's containers in a temporary folder. Whatever a test leaves is cleared and complained of.
struct Cell {
    folder: tempfile::TempDir,
    shims: Shims,
    prefix: String,
}

impl Cell {
    fn new(name: &str) -> Option<Self> {
        if !can_run(name) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        small_root(&layer);
        let shim = Path::new(env!("CARGO_BIN_EXE_volvox-shim"));
        let shims = Shims::new(&folder.path().join("containers"), shim);
        let unique = folder.path().file_name().unwrap().to_str().unwrap();
        let prefix = unique.trim_start_matches('.').to_owned();
        Some(Cell { folder, shims, prefix })
    }

    fn spec(&self, name: &str) -> ContainerSpec {
        ContainerSpec {
            id: format!("{}-{name}", self.prefix),
            layers: vec![self.folder.path().join("layer")],
            binds: vec![Bind {
                source: PathBuf::from("/usr"),
                target: PathBuf::from("/usr"),
                access: Access::ReadOnly,
            }],
            first_id: 100_000,
            ids: 65_536,
            privileged: false,
            cgroup: Hierarchy::detect().unwrap(),
            limits: Limits::default(),
            log: LogLimits::default(),
        }
    }

    /// Runs a script in a new container: how it ended, and the text of its log.
    fn script(&self, spec: &ContainerSpec, user: &str, script: &str) -> (Exit, String) {
        let mut shim = self.shims.create(spec).unwrap();
        shim.run(process(1, user, script)).unwrap();
        let exit = shim.wait(1, PATIENCE).unwrap().expect("the script ended");
        let log = self.lines(&spec.id);
        shim.destroy().unwrap();
        self.shims.clear(&spec.id).unwrap();
        (exit, log)
    }

    /// The texts in a container's log, without times and sources.
    fn lines(&self, id: &str) -> String {
        texts(&self.shims.log(id))
    }

    fn attach(&self, id: &str) -> Result<Shim, ShimError> {
        self.shims.attach(id)
    }
}

impl Cell {
    /// Whether a process of one of its shims is there.
    fn has_processes(&self) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.contains("volvox-shim") && line.contains(&self.prefix)
        })
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for id in self.shims.list().unwrap() {
            let destroyed = self.shims.attach(&id).and_then(Shim::destroy);
            self.shims.clear(&id).unwrap();
            let fine = matches!(destroyed, Ok(()) | Err(ShimError::Gone { .. }));
            assert!(fine || std::thread::panicking(), "{id}: {destroyed:?}");
        }
        self.shims.close();
        if std::thread::panicking() {
            return;
        }
        until("no shim is left", || !self.has_processes());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.prefix), "a mount is left behind");
        for tree in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            let Ok(ours) = std::fs::read_dir(tree.path().join("volvox")) else { continue };
            let left =
                ours.flatten().find(|it| it.file_name().to_string_lossy().contains(&self.prefix));
            assert!(left.is_none(), "a cgroup is left behind: {left:?}");
        }
    }
}

#[test]
fn a_process_runs_says_something_and_ends() {
    let Some(cell) = Cell::new("a_process_runs_says_something_and_ends") else { return };
    let script = "echo out; echo err >&2; printf 'no end'; exit 7";
    let (exit, log) = cell.script(&cell.spec("one"), "vcap", script);
    assert_eq!((exit.end, exit.out_of_memory), (End::Status(7), false));
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "no end", "out"]);
}

#[test]
fn a_container_is_a_world_of_its_own() {
    let Some(cell) = Cell::new("a_container_is_a_world_of_its_own") else { return };
    let script = "
        echo pid1=$(cat /proc/1/comm)
        echo processes=$(ls -d /proc/[0-9]* | wc -l)
        echo links=$(ls /sys/class/net)
        echo host=$(cat /proc/sys/kernel/hostname)
        echo user=$(id -u):$(id -g):$(id -G)
        echo home=$PWD
        read first host count < /proc/self/uid_map; echo mapped=$first $host $count
        echo fds=$(ls /proc/self/fd | tr '\\n' ' ')
        echo root=$(ls -A / | tr '\\n' ' ')
        grep -E '^(NoNewPrivs|Seccomp|CapInh|CapPrm|CapEff|CapAmb):' /proc/self/status | tr '\\t' ' '
        touch /tmp/x /home/vcap/y && echo may write
        echo cgroup=$(cut -d: -f3 /proc/self/cgroup | sort -u | tr '\\n' ' ')
    ";
    let spec = cell.spec("world");
    let (exit, log) = cell.script(&spec, "vcap", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    let says =
        |expected: &str| assert!(log.lines().any(|line| line == expected), "{expected}\n{log}");
    says("links=lo");
    says(&format!("host={}", spec.id));
    says("user=2000:2000:2000 77");
    says("home=/home/vcap");
    says("mapped=0 100000 65536");
    says("NoNewPrivs: 1");
    says("Seccomp: 2");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        says(&format!("{set}: 0000000000000000"));
    }
    says("may write");
    says("cgroup=/");
    says("root=bin dev etc home lib lib64 proc sbin sys tmp usr");
}

#[test]
fn the_containers_root_is_nobody_on_the_host_and_may_do_little() {
    let Some(cell) = Cell::new("the_containers_root_is_nobody_on_the_host") else { return };
    let script = "
        id -u
        grep CapBnd /proc/self/status | tr '\\t' ' '
        refused() { \"$@\" >/dev/null 2>&1 && echo \"ALLOWED $*\"; }
        refused mount -t tmpfs none /mnt
        refused mount -t cgroup -o memory none /tmp
        refused umount /proc
        refused unshare -U true
        refused unshare -n true
        refused nsenter -t 1 -m true
        refused mknod /dev/sda b 8 0
        refused sh -c 'echo 1 > /proc/sys/kernel/panic'
        refused sh -c 'echo b > /proc/sysrq-trigger'
        refused sh -c 'echo x > /usr/bin/true'
        refused dmesg
        refused hostname other
        refused chroot /proc/1/root true
        refused cat /proc/1/environ
        refused sh -c 'ls /sys/firmware | grep .'
        refused sh -c 'cat /proc/kcore | head -c 1 | grep .'
        refused sh -c 'cat /proc/keys | grep .'
        echo done
    ";
    let (exit, log) = cell.script(&cell.spec("root"), "root", script);
    assert_eq!(exit.end, End::Status(0), "{log}");
    assert!(!log.contains("ALLOWED"), "{log}");
    assert!(log.starts_with("0\nCapBnd: 00000000800405fb\n") && log.ends_with("done"), "{log}");
}

#[test]
fn what_cannot_be_run_is_refused_with_the_reason() {
    let Some(cell) = Cell::new("what_cannot_be_run_is_refused_with_the_reason") else { return };
    let spec = cell.spec("refusals");
    let mut shim = cell.shims.create(&spec).unwrap();
    let good = process(1, "vcap", "true");
    let cases = [
        (ProcessSpec { path: "/no/such".into(), ..good.clone() }, "run /no/such: "),
        (ProcessSpec { user: "stranger".into(), ..good.clone() }, "no user \"stranger\""),
        (ProcessSpec { dir: "/nowhere".into(), ..good.clone() }, "go to /nowhere: "),
        (ProcessSpec { path: "/etc/passwd".into(), ..good.clone() }, "run /etc/passwd: "),
    ];
    for (spec, expected) in cases {
        let refusal = shim.run(spec).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    }
    // A folder behind one of the shim's own descriptors must not be reached.
    for fd in 3..32 {
        let dir = format!("/proc/self/fd/{fd}");
        let id = 100 + fd;
        let outcome = shim.run(ProcessSpec { id, dir, ..process(id, "root", "pwd") });
        assert!(outcome.is_err(), "descriptor {fd} leads somewhere");
    }
    shim.run(good.clone()).unwrap();
    shim.wait(1, PATIENCE).unwrap().unwrap();
    assert!(shim.run(good).unwrap_err().to_string().contains("already"));
}

#[test]
fn signals_reach_a_process_and_what_it_started() {
    let Some(cell) = Cell::new("signals_reach_a_process_and_what_it_started") else { return };
    let spec = cell.spec("signals");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(
        1,
        "vcap",
        "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.01; done",
    ))
    .unwrap();
    until("the process is ready", || cell.lines(&spec.id).contains("ready"));
    shim.signal(1, TERM).unwrap();
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(3));
    shim.run(process(2, "vcap", "sleep 1000 & sleep 1000")).unwrap();
    shim.signal(2, 9).unwrap();
    assert_eq!(shim.wait(2, PATIENCE).unwrap().unwrap().end, End::Signal(9));
    assert!(shim.signal(2, 9).is_err(), "it is gone");
    let status = shim.status().unwrap();
    assert_eq!((status.running.len(), status.exited.len()), (0, 2));
}

#[test]
fn an_agent_that_comes_back_finds_everything() {
    let Some(cell) = Cell::new("an_agent_that_comes_back_finds_everything") else { return };
    let spec = cell.spec("back");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "echo first; exit 4")).unwrap();
    shim.run(process(
        2,
        "vcap",
        "while [ ! -e /tmp/go ]; do sleep 0.01; done; echo second; exit 5",
    ))
    .unwrap();
    // The agent is gone: nobody listens while the first one ends and the second one goes on.
    drop(shim);
    let mut shim = cell.attach(&spec.id).unwrap();
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(4));
    assert_eq!(shim.status().unwrap().running, [2]);
    shim.run(process(3, "vcap", "touch /tmp/go")).unwrap();
    assert_eq!(shim.wait(2, PATIENCE).unwrap().unwrap().end, End::Status(5));
    let recorded = cell.shims.recorded_exits(&spec.id).unwrap();
    assert_eq!(recorded[&1].end, End::Status(4));
    assert_eq!(recorded[&2].end, End::Status(5));
    assert_eq!(cell.lines(&spec.id), "first\nsecond");
}

#[test]
fn captured_output_comes_with_the_end_and_not_into_the_log() {
    let Some(cell) = Cell::new("captured_output_comes_with_the_end") else { return };
    let spec = cell.spec("capture");
    let mut shim = cell.shims.create(&spec).unwrap();
    let captured = |id, script: &str| ProcessSpec {
        output: OutputTarget::Capture,
        ..process(id, "vcap", script)
    };
    shim.run(captured(1, "echo out; echo err >&2; printf '\\377'; exit 2")).unwrap();
    let exit = shim.wait(1, PATIENCE).unwrap().unwrap();
    assert_eq!((exit.end, exit.output.as_str()), (End::Status(2), "out\nerr\n\u{fffd}"));
    assert!(!exit.out_of_disk);
    // Of much the end is kept.
    let script = "n=0; while [ $n -lt 20000 ]; do echo line $n; n=$((n+1)); done";
    shim.run(captured(2, script)).unwrap();
    let exit = shim.wait(2, PATIENCE).unwrap().unwrap();
    assert_eq!(exit.output.len(), CAPTURE_BYTES);
    assert!(exit.output.ends_with("line 19998\nline 19999\n"), "{}", exit.output);
    // What it started holds the pipe open, and nobody waits for that.
    shim.run(captured(3, "echo first; sleep 1000 & echo last")).unwrap();
    assert_eq!(shim.wait(3, PATIENCE).unwrap().unwrap().output, "first\nlast\n");
    let recorded = cell.shims.recorded_exits(&spec.id).unwrap();
    assert_eq!(recorded[&3].output, "first\nlast\n");
    assert_eq!(cell.lines(&spec.id), "");
}

#[test]
fn the_cells_own_lines_are_in_the_log_whatever_the_rate() {
    let Some(cell) = Cell::new("the_cells_own_lines_are_in_the_log") else { return };
    let mut spec = cell.spec("log");
    spec.log.bytes_per_second = Some(5);
    let mut shim = cell.shims.create(&spec).unwrap();
    let line = |text: &str| LogLine {
        source: "CELL".to_owned(),
        stream: LogStream::Err,
        text: text.to_owned(),
    };
    shim.run(process(1, "vcap", "echo more than that is dropped")).unwrap();
    shim.wait(1, PATIENCE).unwrap().unwrap();
    shim.log(line("Cell is told")).unwrap();
    shim.log(line("of two\nlines")).unwrap();
    let log = std::fs::read_to_string(cell.shims.log(&spec.id)).unwrap();
    let own: Vec<&str> =
        log.lines().filter_map(|it| it.split_once(" err CELL ")?.1.into()).collect();
    assert_eq!(own[1..], ["Cell is told", "of two", "lines"], "{log}");
    assert!(own[0].contains("rate limit"), "{log}");
    assert!(!log.contains("dropped"), "{log}");
}

#[test]
fn ends_are_kept_until_they_are_forgotten_and_not_without_bound() {
    let Some(cell) = Cell::new("ends_are_kept_until_they_are_forgotten") else { return };
    let spec = cell.spec("forget");
    let mut shim = cell.shims.create(&spec).unwrap();
    let quiet = |id, script: &str| ProcessSpec {
        output: OutputTarget::Discard,
        ..process(id, "vcap", script)
    };
    let [all, most]: [u32; 2] = [PROCESSES, RUNNING].map(|it| it.try_into().unwrap());
    let sleeping = all + 1;
    shim.run(quiet(sleeping, "sleep 1000")).unwrap();
    assert!(shim.forget(sleeping).unwrap_err().to_string().contains("is running"));
    for id in 1..all {
        shim.run(ProcessSpec { path: "/bin/true".to_owned(), args: vec![], ..quiet(id, "") })
            .unwrap();
        if id % 64 == 0 {
            shim.wait(id, PATIENCE).unwrap().unwrap();
        }
    }
    let refusal = shim.run(quiet(sleeping + 1, "true")).unwrap_err().to_string();
    assert!(refusal.contains("forget some"), "{refusal}");
    until("all have ended", || shim.status().unwrap().exited.len() == PROCESSES - 1);
    assert_eq!(cell.shims.recorded_exits(&spec.id).unwrap().len(), PROCESSES - 1);
    // Another agent takes over and acknowledges: there is room again, in memory and on disk.
    drop(shim);
    let mut shim = cell.attach(&spec.id).unwrap();
    for id in 1..all {
        shim.forget(id).unwrap();
    }
    shim.forget(77).unwrap();
    let status = shim.status().unwrap();
    assert_eq!((status.running, status.exited), (vec![sleeping], vec![]));
    assert!(cell.shims.recorded_exits(&spec.id).unwrap().is_empty());
    assert_eq!(std::fs::metadata(cell.shims.folder(&spec.id).join("exits")).unwrap().len(), 0);
    for id in 1..most {
        shim.run(ProcessSpec {
            path: "/bin/sleep".to_owned(),
            args: vec!["1000".to_owned()],
            ..process(id, "vcap", "")
        })
        .unwrap();
    }
    let refusal = shim.run(quiet(sleeping + 2, "true")).unwrap_err().to_string();
    assert!(refusal.contains("are running, the limit"), "{refusal}");
}

/// Reads what a terminal shows until it has shown `expected`, and gives all of it.
fn shows(terminal: &mut Terminal, expected: &str) -> String {
    let mut shown = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&shown).into_owned();
        if text.contains(expected) {
            return text;
        }
        match terminal.next(PATIENCE).unwrap() {
            Some(TerminalEvent::Output(bytes)) => shown.extend(bytes),
            other => panic!("{other:?} instead of {expected:?} after {text:?}"),
        }
    }
}

/// The end of a process, whatever it shows before.
fn ends(terminal: &mut Terminal) -> Exit {
    loop {
        match terminal.next(PATIENCE).unwrap() {
            Some(TerminalEvent::Output(_)) => {}
            Some(TerminalEvent::Exited(exit)) => return exit,
            None => panic!("it does not end"),
        }
    }
}

fn interactive(id: u32, script: &str) -> ProcessSpec {
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    ProcessSpec { terminal, env: vec!["PS1=> ".to_owned()], ..process(id, "vcap", script) }
}

#[test]
fn a_shell_with_a_terminal_is_typed_into_and_seen() {
    let Some(cell) = Cell::new("a_shell_with_a_terminal_is_typed_into_and_seen") else { return };
    let spec = cell.spec("shell");
    let mut shim = cell.shims.create(&spec).unwrap();
    let shell = ProcessSpec { args: vec!["-i".to_owned()], ..interactive(1, "") };
    let mut terminal = cell.shims.terminal(&spec.id, shell).unwrap();
    shows(&mut terminal, "> ");
    terminal.input(b"tty; stty size; echo $((6*7)); test -w $(tty) && echo mi''ne\n");
    let shown = shows(&mut terminal, "mine\r\n");
    for expected in ["/dev/pts/0\r\n", "24 80\r\n", "42\r\n"] {
        assert!(shown.contains(expected), "{shown:?}");
    }
    terminal.resize(TerminalSize { rows: 50, columns: 132 });
    terminal.input(b"stty size\n");
    shows(&mut terminal, "50 132\r\n");
    // The terminal is the session's: control-C reaches what runs in front, and not the shell.
    terminal.input(b"sh -c 'echo be\"\"gun; exec sleep 1000'\n");
    shows(&mut terminal, "begun\r\n");
    terminal.input(b"\x03");
    shows(&mut terminal, "> ");
    // Much goes through, both ways, and none is lost.
    terminal.input(b"stty -echo raw; echo rea''dy; head -c 300000 | cksum; stty echo -raw\n");
    shows(&mut terminal, "ready");
    let typed: Vec<u8> = (0..300_000_u32).map(|nth| b'a' + (nth % 23) as u8).collect();
    terminal.input(&typed);
    shows(&mut terminal, &format!("{} 300000", cksum(&typed)));
    terminal.input(b"n=0; while [ $n -lt 3000 ]; do echo $n so much is shown; n=$((n+1)); done\n");
    shows(&mut terminal, "2999 so much is shown\r\n");
    // Nobody else may type here, and nothing of it is in the log.
    assert!(shim.forget(1).is_err());
    assert_eq!(cell.lines(&spec.id), "");
    terminal.end_input();
    assert_eq!(ends(&mut terminal).end, End::Status(0));
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Status(0));
}

/// The sum that `cksum` gives.
fn cksum(bytes: &[u8]) -> String {
    let mut child = std::process::Command::new("cksum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn a_terminal_that_nobody_watches_is_hung_up_and_one_that_is_not_read_waits() {
    let Some(cell) = Cell::new("a_terminal_that_nobody_watches_is_hung_up") else { return };
    let spec = cell.spec("hangup");
    let mut shim = cell.shims.create(&spec).unwrap();
    let mut terminal =
        cell.shims.terminal(&spec.id, interactive(1, "echo begun; sleep 1000")).unwrap();
    shows(&mut terminal, "begun");
    drop(terminal);
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Signal(1));
    // One that shows without end, and nobody reads: the shim goes on serving, and its memory does
    // not grow with what is shown.
    let mut flood = cell.shims.terminal(&spec.id, interactive(2, "exec yes")).unwrap();
    shows(&mut flood, "y\r\ny\r\n");
    let holder = parent_of(shim.status().unwrap().init);
    for id in 3..50 {
        shim.run(process(id, "vcap", "true")).unwrap();
        shim.wait(id, PATIENCE).unwrap().unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{holder}/status")).unwrap();
    let resident = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 16 << 10, "the shim holds {kib} KiB");
    shim.signal(2, 9).unwrap();
    assert_eq!(ends(&mut flood).end, End::Signal(9));
}

#[test]
fn no_terminal_is_made_of_what_the_container_put_in_its_place() {
    let Some(cell) = Cell::new("no_terminal_is_made_of_what_the_container_put_in_its_place") else {
        return;
    };
    let spec = cell.spec("swap");
    let mut shim = cell.shims.create(&spec).unwrap();
    // Whatever the container's root can do to /dev leaves the terminal alone or without one.
    let script = "
        rm -f /dev/ptmx; ln -s /dev/null /dev/ptmx
        mv /dev/pts /dev/old 2>/dev/null && echo moved
        rm -f /dev/pts/ptmx 2>/dev/null && echo removed
        rm -f /dev/null 2>/dev/null && mkfifo /dev/null && echo replaced
        umount /dev/pts 2>/dev/null && echo unmounted
        rm -f /etc/passwd; mkfifo /etc/passwd || echo no pipe
        echo tried";
    shim.run(process(1, "root", script)).unwrap();
    shim.wait(1, PATIENCE).unwrap().unwrap();
    assert_eq!(cell.lines(&spec.id), "tried");
    let spec_of = |id| ProcessSpec { user: "2000".to_owned(), ..interactive(id, "tty") };
    let mut terminal = cell.shims.terminal(&spec.id, spec_of(2)).unwrap();
    shows(&mut terminal, "/dev/pts/0");
    assert_eq!(ends(&mut terminal).end, End::Status(0));
    // With another file system in its place, as only the host's root can put it, there is none.
    let init = shim.status().unwrap().init.to_string();
    let over = ["-t", &init, "-m", "mount", "-t", "tmpfs", "none", "/dev/pts"];
    assert!(std::process::Command::new("nsenter").args(over).status().unwrap().success());
    let fake = Path::new("/proc").join(&init).join("root").join("dev/pts/ptmx");
    let made = std::process::Command::new("mknod").arg(&fake).args(["c", "5", "2"]).status();
    assert!(made.unwrap().success());
    let refusal = cell.shims.terminal(&spec.id, spec_of(3)).unwrap_err().to_string();
    assert!(refusal.contains("make a terminal"), "{refusal}");
}

#[test]
fn a_killed_shim_takes_its_container_along_and_leaves_its_records() {
    let Some(cell) = Cell::new("a_killed_shim_takes_its_container_along") else { return };
    let spec = cell.spec("killed");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "exit 6")).unwrap();
    shim.wait(1, PATIENCE).unwrap().unwrap();
    shim.run(process(2, "vcap", "sleep 1000")).unwrap();
    let init = shim.status().unwrap().init;
    let holder = parent_of(init);
    kill(holder);
    until("init is gone", || !Path::new(&format!("/proc/{init}")).exists() || is_zombie(init));
    assert!(matches!(shim.status(), Err(ShimError::Gone { .. })));
    assert!(matches!(cell.attach(&spec.id), Err(ShimError::Gone { .. })));
    assert_eq!(cell.shims.recorded_exits(&spec.id).unwrap()[&1].end, End::Status(6));
    cell.shims.clear(&spec.id).unwrap();
    assert!(!cell.shims.folder(&spec.id).exists());
}

#[test]
fn a_killed_init_ends_everything_and_is_told() {
    let Some(cell) = Cell::new("a_killed_init_ends_everything_and_is_told") else { return };
    let spec = cell.spec("init");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "vcap", "sleep 1000")).unwrap();
    kill(shim.status().unwrap().init);
    assert_eq!(shim.wait(1, PATIENCE).unwrap().unwrap().end, End::Signal(9));
    until("the end of init is noticed", || shim.status().unwrap().init == 0);
    let refusal = shim.run(process(2, "vcap", "true")).unwrap_err().to_string();
    assert!(refusal.contains("the container is gone"), "{refusal}");
}

/// Waits for something to become true, not for ever.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "waited in vain: {what}");
        pause();
    }
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn kill(pid: i32) {
    assert!(pid > 1);
    let killed =
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn memory_and_processes_are_limited_and_an_end_for_want_of_memory_is_told() {
    let Some(cell) = Cell::new("memory_and_processes_are_limited") else { return };
    let mut spec = cell.spec("memory");
    spec.limits.memory_bytes = 32 << 20;
    let script = "exec tail /dev/zero";
    let (exit, log) = cell.script(&spec, "vcap", script);
    assert_eq!((exit.end, exit.out_of_memory), (End::Signal(9), true), "{log}");

    let mut spec = cell.spec("pids");
    spec.limits.pids = 8;
    let script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo all started";
    let (exit, log) = cell.script(&spec, "vcap", script);
    assert_ne!(exit.end, End::Status(0), "{log}");
    assert!(!log.contains("all started"), "{log}");
}

#[test]
fn a_container_that_cannot_be_made_leaves_nothing() {
    let Some(cell) = Cell::new("a_container_that_cannot_be_made_leaves_nothing") else { return };
    type Spoil = fn(&mut ContainerSpec);
    let cases: [(&str, Spoil, &str); 3] = [
        ("layer", |spec| spec.layers = vec![PathBuf::from("/no/such/layer")], "mount"),
        ("bind", |spec| spec.binds[0].source = PathBuf::from("/no/such/source"), "/no/such/source"),
        ("target", |spec| spec.binds[0].target = PathBuf::from("/../x"), "plain absolute path"),
    ];
    for (name, spoil, expected) in cases {
        let mut spec = cell.spec(name);
        spoil(&mut spec);
        let error = cell.shims.create(&spec).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!cell.shims.folder(&spec.id).exists(), "{name}");
    }
    for id in ["", "..", "a/b", "a b"] {
        let spec = ContainerSpec { id: id.to_owned(), ..cell.spec("x") };
        assert!(cell.shims.create(&spec).is_err(), "{id:?} was made");
    }
}

#[test]
fn links_in_a_layer_lead_nowhere() {
    let Some(cell) = Cell::new("links_in_a_layer_lead_nowhere") else { return };
    let outside = cell.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    for name in ["dev", "proc", "tmp", "usr"] {
        let layer = cell.folder.path().join(format!("hostile-{name}"));
        let good = cell.folder.path().join("layer");
        let copied = std::process::Command::new("cp").arg("-a").arg(&good).arg(&layer).status();
        assert!(copied.unwrap().success());
        std::fs::remove_dir(layer.join(name)).unwrap();
        std::os::unix::fs::symlink(&outside, layer.join(name)).unwrap();
        let mut spec = cell.spec(name);
        spec.layers = vec![layer];
        assert!(cell.shims.create(&spec).is_err(), "/{name} is a link to the outside");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "/{name}");
    }
}

#[test]
fn a_shim_that_hangs_while_it_starts_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody ever writes to it, so whoever reads it waits.
    nix::unistd::mkfifo(&folder.path().join("spec.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let shim = env!("CARGO_BIN_EXE_volvox-shim");
    let mut command = std::process::Command::new(shim);
    let output = command.arg(folder.path()).env(MADE_WITHIN_S, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.trim(), "volvox-shim: the container was not there after 1 s");
    // Nobody has its stderr open any more, or this would still wait: the one that hung is gone.
}

/// Its first process hangs, and has not come far: neither the one that holds it nor its cgroup could
/// have it die. It has the shim's stderr, too.
#[test]
fn a_container_that_hangs_while_it_is_made_is_given_up() {
    let name = "a_container_that_hangs_while_it_is_made_is_given_up";
    let Some(cell) = Cell::new(name) else { return };
    let trees = cell.folder.path().join("trees");
    let spec = ContainerSpec {
        cgroup: Hierarchy::Older(vec![("pids".to_owned(), trees.clone())]),
        ..cell.spec("hangs")
    };
    let cgroup = trees.join("volvox").join(&spec.id);
    std::fs::create_dir_all(&cgroup).unwrap();
    // Nobody ever reads it, so whoever writes to it, to join, waits.
    nix::unistd::mkfifo(&cgroup.join("tasks"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Fifteen times as long, rounded up to a second.
    let shims = cell.shims.clone().with_patience(Duration::from_millis(60));
    let reason = shims.create(&spec).unwrap_err().to_string();
    assert!(reason.ends_with("the container was not there after 1 s"), "{reason}");
    assert!(!shims.folder(&spec.id).exists(), "its folder is left");
    until("nothing of it runs", || !cell.has_processes());
}

#[test]
fn a_shim_may_have_more_time_than_the_clock_counts() {
    let folder = tempfile::tempdir().unwrap();
    let shim = env!("CARGO_BIN_EXE_volvox-shim");
    for (seconds, said) in [(u64::MAX.to_string(), "No such file"), ("soon".to_owned(), "usage")] {
        let mut command = std::process::Command::new(shim);
        let output = command.arg(folder.path()).env(MADE_WITHIN_S, seconds).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{text}");
    }
}
