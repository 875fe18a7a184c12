//! `volvox dev` with real programs and real containers: what it brings up, and that nothing of it is
//! left. Needs root.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use volvox_tests::site;
use volvox_tests::wait::until;

use crate::stage::{Said, program, said};

/// A small web server that says which instance it is.
const SERVER: &str = r#"
use IO::Socket::INET;
my $s = IO::Socket::INET->new(Listen => 16, LocalPort => 8080, ReuseAddr => 1) or die "$!";
while (my $c = $s->accept) { while (<$c>) { last if /^\r?\n$/ } print $c "HTTP/1.0 200 OK\r\n\r\n$ENV{INSTANCE_GUID}"; close $c; }
"#;

/// Whether it can be tried here; if not, that is said.
fn can_run(name: &str) -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        volvox_tests::skip(name, "containers need root");
    }
    is_root
}

fn app(folder: &Path, instances: u32) -> String {
    let path = folder.join("web.toml");
    let command = Value::String(SERVER.to_owned());
    let text = format!(
        "name = \"web\"\ninstances = {instances}\nrootfs = \"host:\"\nmemory = 64\nports = [8080]\n\
         command = [\"/usr/bin/perl\", \"-e\", {command}]\ncheck = {{ tcp = 8080 }}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn command(words: &[&str]) -> Command {
    let mut command = program();
    command.args(["dev", "--json", "--programs"]).arg(site::programs().unwrap()).args(words);
    command
}

/// One that runs. When dropped it is told to end and waited for.
struct Dev {
    process: Child,
    ready: Value,
}

impl Dev {
    fn begin(words: &[&str]) -> Child {
        let mut command = command(words);
        // As `sudo` says who called it.
        command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until it is ready.
    fn until_ready(mut process: Child) -> Dev {
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        let mut seen = Vec::new();
        let ready = loop {
            let Some(Ok(line)) = lines.next() else { break None };
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["part"] == "ready" {
                break Some(value);
            }
            seen.push(line);
        };
        drop(lines);
        let Some(ready) = ready else {
            let mut complaint = String::new();
            process.stderr.as_mut().unwrap().read_to_string(&mut complaint).unwrap();
            panic!("not ready: {seen:?}\n{complaint}");
        };
        Dev { process, ready }
    }

    fn start(words: &[&str]) -> Dev {
        Dev::until_ready(Dev::begin(words))
    }

    fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.text("folder").into()
    }

    /// Its folder of what a reboot may forget.
    fn slot(&self) -> PathBuf {
        Path::new(self.text("socket").strip_prefix("unix:").unwrap()).parent().unwrap().into()
    }

    /// How its bridges begin.
    fn bridges(&self) -> String {
        format!("volvoxd{}c", self.slot().file_name().unwrap().to_str().unwrap())
    }

    fn volvox(&self, words: &[&str]) -> Said {
        let mut command = program();
        command.args(["--api", self.text("socket")]).args(words);
        said(command)
    }

    fn instances(&self) -> Vec<Value> {
        let said = self.volvox(&["ps", "web", "--json"]);
        said.json()["instances"].as_array().unwrap().clone()
    }

    fn guids(&self) -> Vec<String> {
        let guid = |it: &Value| it["instance_guid"].as_str().unwrap_or_default().to_owned();
        let mut all: Vec<String> = self.instances().iter().map(guid).collect();
        all.sort();
        all
    }

    /// Waits until one instance runs that is none of these, and gives its guid. The board of an
    /// earlier life says for a moment what ran then.
    fn until_another_runs(&self, before: &[String]) -> Vec<String> {
        let mut guids = Vec::new();
        until(
            || {
                let all = self.instances();
                let guid = |it: &Value| it["instance_guid"].as_str().unwrap_or_default().to_owned();
                guids = all.iter().map(guid).collect();
                let is_new = guids.iter().all(|it| !before.contains(it));
                all.len() == 1 && site::is_running(&all[0]) && is_new
            },
            || format!("{:?}", self.instances()),
        );
        guids
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    /// Its children of this name, as the kernel keeps it.
    fn children(&self, name: &str) -> Vec<i32> {
        let ours = self.process.id().to_string();
        processes(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let Some((called, rest)) = stat.rsplit_once(") ") else { return false };
            called.ends_with(name) && rest.split(' ').nth(1) == Some(ours.as_str())
        })
    }

    /// Waits for its end.
    #[track_caller]
    fn until_ended(&mut self, code: i32) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.process.stdout.as_mut().unwrap().read_to_string(&mut out).unwrap();
        self.process.stderr.as_mut().unwrap().read_to_string(&mut err).unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{out}\n{err}");
        (out, err)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|it| it.is_none()) {
            self.signal(Signal::SIGINT);
            let _ended = self.process.wait();
        }
    }
}

fn processes(is_meant: impl Fn(i32) -> bool) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_meant(*pid)).collect()
}

/// Whether this is a process that holds a container.
fn holds(pid: i32, guid: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    line.contains("volvox-shim") && line.contains(guid)
}

/// What the kernel has of a cluster that has ended.
fn left(folder: &Path, slot: &Path, bridges: &str, guids: &[String]) -> Vec<String> {
    let mut left = Vec::new();
    let place = folder.to_str().unwrap();
    let named = |pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(place)
    };
    left.extend(processes(named).iter().map(|pid| format!("process {pid}")));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|it| it.contains(place)).map(str::to_owned));
    for name in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
        left.extend(name.file_name().into_string().ok().filter(|it| it.starts_with(bridges)));
    }
    let tables = volvox_agent::runtime::net::tables().unwrap();
    left.extend(tables.into_iter().filter(|it| it.contains(bridges)));
    let mut cgroups = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(parent) = cgroups.pop() {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let is_ours =
                entry.file_name().to_str().is_some_and(|name| guids.iter().any(|it| it == name));
            if is_ours {
                left.push(entry.path().display().to_string());
            } else if entry.file_type().is_ok_and(|it| it.is_dir()) {
                cgroups.push(entry.path());
            }
        }
    }
    // Another may have taken the number meanwhile.
    let entry = std::fs::read_to_string(slot.join("dev.toml")).unwrap_or_default();
    left.extend(entry.contains(place).then(|| slot.display().to_string()));
    left
}

#[test]
fn dev_brings_up_an_app_and_leaves_nothing() {
    if !can_run("dev_brings_up_an_app_and_leaves_nothing") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(&["--cells", "2", "--app", &app(files.path(), 2)]);
    let (folder, slot, bridges) = (dev.folder(), dev.slot(), dev.bridges());
    let instances = dev.instances();
    let mut cells: Vec<&str> = instances.iter().filter_map(|it| it["cell_id"].as_str()).collect();
    cells.sort_unstable();
    assert_eq!(cells, ["cell-1", "cell-2"]);
    for instance in &instances {
        assert_eq!(ask(instance), instance["instance_guid"].as_str().unwrap());
    }
    // Whoever called sudo may use it without.
    let token = slot.join("token");
    let meta = token.metadata().unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (65_534, 0o600));
    let mut by_token = program();
    by_token.args(["--api", dev.text("api"), "--token-file"]).arg(&token).arg("cells");
    assert_eq!(said(by_token).code, 0);
    // Without a word it is found, unless there are others to choose from.
    let mut found = program();
    found.arg("cells");
    let found = said(found);
    let is_named = found.err.contains(dev.text("socket").trim_start_matches("unix:"));
    let is_real = Path::new("/var/lib/volvox/coordinator/api.sock").exists();
    assert!(found.code == 0 || is_named || is_real, "{found:?}");
    let guids = dev.guids();
    assert!(!left(&folder, &slot, &bridges, &guids).is_empty());
    dev.signal(Signal::SIGINT);
    let (out, _) = dev.until_ended(0);
    assert!(out.contains("\"folder_removed\":true"), "{out}");
    assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
    assert!(!folder.exists());
}

/// What an instance answers at its port of this machine.
fn ask(instance: &Value) -> String {
    let port = instance["ports"][0]["host_port"].as_u64().unwrap();
    let address = format!("{}:{port}", instance["address"].as_str().unwrap());
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn two_devs_run_beside_each_other() {
    if !can_run("two_devs_run_beside_each_other") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let file = app(files.path(), 1);
    let begun = [(); 2].map(|()| Dev::begin(&["--app", &file]));
    let devs = begun.map(Dev::until_ready);
    for dev in &devs {
        let instances = dev.instances();
        assert_eq!(ask(&instances[0]), instances[0]["instance_guid"].as_str().unwrap());
    }
    for mut dev in devs {
        let (folder, slot, bridges, guids) = (dev.folder(), dev.slot(), dev.bridges(), dev.guids());
        dev.signal(Signal::SIGTERM);
        dev.until_ended(0);
        assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
    }
}

#[test]
fn a_given_folder_goes_on_after_an_end_and_after_a_kill() {
    if !can_run("a_given_folder_goes_on_after_an_end_and_after_a_kill") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("a folder");
    let given = folder.to_str().unwrap();
    let mut dev = Dev::start(&["--folder", given, "--app", &app(files.path(), 1)]);
    let refused = said(command(&["--folder", given]));
    assert_eq!(refused.code, 4, "{refused:?}");
    let (slot, bridges, guids) = (dev.slot(), dev.bridges(), dev.guids());
    dev.signal(Signal::SIGINT);
    dev.until_ended(0);
    assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
    assert!(folder.join("coordinator/board.db").exists());
    // What was desired is there again.
    let mut dev = Dev::start(&["--folder", given]);
    let guids = dev.until_another_runs(&guids);
    dev.process.kill().unwrap();
    dev.process.wait().unwrap();
    // Its programs go with it; its containers wait for the next one, which takes them over.
    until(|| dev.children("volvox-agent").is_empty(), || "the agent lives on".to_owned());
    let holders = processes(|pid| holds(pid, &guids[0]));
    assert!(!holders.is_empty());
    let mut dev = Dev::start(&["--folder", given]);
    assert_eq!(dev.until_another_runs(&[]), guids);
    assert_eq!(processes(|pid| holds(pid, &guids[0])), holders);
    dev.process.kill().unwrap();
    dev.process.wait().unwrap();
    // Ports depend on the number of cells: then all is made anew.
    let mut dev = Dev::start(&["--folder", given, "--cells", "2"]);
    let guids = dev.until_another_runs(&guids);
    let (slot, bridges) = (dev.slot(), dev.bridges());
    dev.signal(Signal::SIGHUP);
    dev.until_ended(0);
    assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
    // A folder with something else in it is not touched.
    let refused = said(command(&["--folder", files.path().to_str().unwrap()]));
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn what_a_killed_dev_left_can_be_removed() {
    if !can_run("what_a_killed_dev_left_can_be_removed") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(&["--app", &app(files.path(), 1)]);
    let (folder, slot, bridges, guids) = (dev.folder(), dev.slot(), dev.bridges(), dev.guids());
    dev.process.kill().unwrap();
    dev.process.wait().unwrap();
    let clean = ["--clean", "--folder", folder.to_str().unwrap()];
    let cleaned = said(command(&clean));
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    assert_eq!(cleaned.json()["cleaned"][0]["folder_removed"], true);
    assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
    assert!(!folder.exists());
    assert_eq!(said(command(&clean)).json()["cleaned"], Value::Array(Vec::new()));
}

#[test]
fn a_program_that_dies_is_named_and_all_is_removed() {
    if !can_run("a_program_that_dies_is_named_and_all_is_removed") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let file = app(files.path(), 1);
    for (name, told) in [("volvox-coordina", "the coordinator"), ("volvox-agent", "cell-1")] {
        let mut dev = Dev::start(&["--app", &file]);
        let (folder, slot, bridges, guids) = (dev.folder(), dev.slot(), dev.bridges(), dev.guids());
        let [victim] = dev.children(name)[..] else { panic!("one {name} is wanted") };
        kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        let (_, err) = dev.until_ended(1);
        let error: Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(told) && message.contains("INFO"), "{message}");
        assert_eq!(left(&folder, &slot, &bridges, &guids), Vec::<String>::new());
        assert!(!folder.exists());
    }
}

#[test]
fn an_ordinary_user_is_told_that_root_is_needed() {
    let mut command = command(&[]);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534);
    }
    match command.output() {
        Ok(output) => {
            assert_eq!(output.status.code(), Some(4));
            assert!(String::from_utf8_lossy(&output.stderr).contains("need root"));
        }
        // The folder of this test may be for root alone.
        Err(error) => volvox_tests::skip("an_ordinary_user_is_told", &error.to_string()),
    }
}
