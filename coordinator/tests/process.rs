//! The program itself: started, asked, killed, started again; and what it says to bad input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_volvox-coordinator");
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program, killed when dropped.
struct Running {
    child: Child,
    address: String,
    token: String,
    agent: ureq::Agent,
    log: Arc<Mutex<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration with ports that are free now, in a folder of its own.
fn configure(folder: &Path, lines: &str) -> PathBuf {
    let port = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let path = folder.join("coordinator.toml");
    let text = format!(
        "name = \"test\"\ndata_dir = {:?}\napi.listen = [\"127.0.0.1:{}\"]\n\
         mesh.listen = \"127.0.0.1:0\"\nlog.format = \"json\"\nshutdown.grace_s = 5\n{lines}",
        folder.join("data"),
        port(),
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Between two looks at another process.
const LOOK: Duration = Duration::from_millis(5);

fn start(config: &Path) -> Running {
    let text: toml::Table = std::fs::read_to_string(config).unwrap().parse().unwrap();
    let address = text["api"]["listen"][0].as_str().unwrap().to_owned();
    let data = PathBuf::from(text["data_dir"].as_str().unwrap());
    let mut child = Command::new(PROGRAM)
        .args(["run", "--config"])
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The log is read to its end, so that it never stands in the way.
    let log = Arc::new(Mutex::new(String::new()));
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let kept = Arc::clone(&log);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            *kept.lock().unwrap() += &format!("{line}\n");
        }
    });
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .proxy(None)
        .build()
        .new_agent();
    let until = Instant::now() + PATIENCE;
    loop {
        let ready = agent.get(format!("http://{address}/readyz")).call();
        if ready.is_ok_and(|answer| answer.status() == 200) {
            break;
        }
        let said = log.lock().unwrap().clone();
        assert!(child.try_wait().unwrap().is_none(), "it has ended:\n{said}");
        assert!(Instant::now() < until, "it is not ready:\n{said}");
        std::thread::sleep(LOOK);
    }
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap().trim().to_owned();
    Running { child, address, token, agent, log }
}

impl Running {
    /// Posts a body. None: there was no answer.
    fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let sent = self
            .agent
            .post(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {}", self.token))
            .content_type("application/json")
            .send(body.to_string().as_bytes());
        let mut answer = sent.ok()?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().ok()?;
        Some((answer.status().as_u16(), serde_json::from_str(&text).ok()?))
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

fn lrp(guid: &str) -> Value {
    json!({"desired_lrp": {
        "process_guid": guid, "domain": "apps", "instances": 2, "rootfs": "host:",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    }})
}

fn listed(running: &Running) -> Vec<String> {
    let (status, body) = running.post("/v1/desired_lrps/list.r3", &json!({})).unwrap();
    assert_eq!(status, 200);
    let all = body["desired_lrps"].as_array().unwrap();
    all.iter().map(|lrp| lrp["process_guid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nothing_that_was_answered_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let mut answered: Vec<String> = Vec::new();
    let mut last_event: Option<String> = None;
    for round in 0..4 {
        let running = start(&config);
        let known = listed(&running);
        for guid in &answered {
            assert!(known.contains(guid), "round {round}: {guid} was answered and is lost");
        }
        // A reader of another life is told to list again, never left without a word.
        if let Some(id) = last_event.take() {
            assert_eq!(first_event(&running, Some(&id)), "resync");
        }
        let done: Mutex<Vec<String>> = Mutex::default();
        let enough = AtomicBool::new(false);
        let reader = stream(&running, None);
        let reader = std::thread::spawn(move || {
            let lines = reader.map_while(Result::ok);
            lines.filter_map(|line| line.strip_prefix("id: ").map(str::to_owned)).last()
        });
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let (running, done, enough) = (&running, &done, &enough);
                scope.spawn(move || {
                    for nth in 0.. {
                        let guid = format!("p-{round}-{caller}-{nth}");
                        match running.post("/v1/desired_lrp/desire.r2", &lrp(&guid)) {
                            Some((200, _)) => done.lock().unwrap().push(guid),
                            Some(other) => panic!("{other:?}"),
                            None => return,
                        }
                        if done.lock().unwrap().len() > 150 {
                            enough.store(true, Ordering::Release);
                        }
                    }
                });
            }
            let until = Instant::now() + PATIENCE;
            while !enough.load(Ordering::Acquire) {
                assert!(Instant::now() < until, "too few were answered");
                std::thread::sleep(LOOK);
            }
            // In the middle of it.
            running.signal("-KILL");
        });
        answered.extend(done.into_inner().unwrap());
        last_event = reader.join().unwrap();
        assert!(last_event.is_some(), "the reader saw something before the end");
    }
    assert!(answered.len() > 600);
}

type Lines = std::io::Lines<BufReader<ureq::BodyReader<'static>>>;

/// The lines of a stream of events.
fn stream(running: &Running, last: Option<&str>) -> Lines {
    let mut request = running
        .agent
        .get(format!("http://{}/v1/events/lrp_instances.r1", running.address))
        .header("authorization", format!("Bearer {}", running.token));
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    BufReader::new(request.call().unwrap().into_body().into_reader()).lines()
}

/// The name of the first event of a stream.
fn first_event(running: &Running, last: Option<&str>) -> String {
    let mut lines = stream(running, last);
    lines.find_map(|line| line.unwrap().strip_prefix("event: ").map(str::to_owned)).unwrap()
}

#[test]
fn a_call_is_found_in_the_log_by_the_callers_own_number() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "log.level = \"info,volvox_coordinator::api=debug\"\n");
    let running = start(&config);
    let sent = running
        .agent
        .post(format!("http://{}/v1/desired_lrps/list.r3", running.address))
        .header("authorization", format!("Bearer {}", running.token))
        .header("x-vcap-request-id", "the-callers-own-number")
        .content_type("application/json")
        .send(b"{\"domain\": 3}");
    assert_eq!(sent.unwrap().status(), 400);
    let until = Instant::now() + PATIENCE;
    let line = loop {
        let said = running.log.lock().unwrap().clone();
        let found = said.lines().find(|line| line.contains("the-callers-own-number"));
        if let Some(line) = found {
            break serde_json::from_str::<Value>(line).unwrap();
        }
        assert!(Instant::now() < until, "it is not in the log:\n{said}");
        std::thread::sleep(LOOK);
    };
    assert_eq!((&line["fields"]["status"], &line["level"]), (&json!(400), &json!("DEBUG")));
    assert_eq!(line["span"]["route"], "DesiredLRPs");
}

#[test]
fn sigterm_finishes_what_is_under_way_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let mut running = start(&config);
    running.post("/v1/desired_lrp/desire.r2", &lrp("p")).unwrap();
    // A stream is open when the signal comes: it is told and ended.
    let stream = running
        .agent
        .get(format!("http://{}/v1/events/tasks.r1", running.address))
        .header("authorization", format!("Bearer {}", running.token))
        .call()
        .unwrap();
    let mut lines = BufReader::new(stream.into_body().into_reader()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), ": events of Volvox");
    running.signal("-TERM");
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(told.contains(&"event: closing".to_owned()), "{told:?}");
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = running.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(LOOK);
    };
    assert!(status.success(), "{status}");
    assert!(!folder.path().join("data/api.sock").exists(), "nothing is left behind");
    let running = start(&config);
    assert_eq!(listed(&running), ["p"]);
}

#[test]
fn systemd_is_told_of_readiness_health_and_the_end() {
    use std::os::unix::net::UnixDatagram;
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let socket = folder.path().join("notify");
    let notified = UnixDatagram::bind(&socket).unwrap();
    notified.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["run", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "300000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = notified.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    assert_eq!(next().trim(), "READY=1");
    assert_eq!(next().trim(), "WATCHDOG=1");
    assert_eq!(next().trim(), "WATCHDOG=1");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut told = next();
    while told.trim() == "WATCHDOG=1" {
        told = next();
    }
    assert_eq!(told.trim(), "STOPPING=1");
    assert!(child.wait().unwrap().success());
}

/// The program with these words, ended.
fn ended(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn complaint(words: &[&str]) -> String {
    let output = ended(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_second_one_in_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let running = start(&config);
    let second = configure(folder.path(), "");
    let said = complaint(&["run", "--config", second.to_str().unwrap()]);
    assert!(said.contains("in use"), "{said}");
    assert_eq!(running.post("/v1/ping", &json!({})).unwrap().0, 200, "the first goes on");
    // The socket is the first one's still.
    let data = folder.path().join("data");
    let listed = ended(&["member", "list", "--data-dir", data.to_str().unwrap()]);
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn metrics_say_when_the_last_backup_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&configure(folder.path(), ""));
    let told = || {
        let asked = running.agent.get(format!("http://{}/metrics", running.address));
        let asked = asked.header("authorization", format!("Bearer {}", running.token)).call();
        let text = asked.unwrap().body_mut().read_to_string().unwrap();
        let name = "volvox_board_backup_timestamp_seconds ";
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.parse::<u64>().unwrap()
    };
    assert_eq!(told(), 0);
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        since.as_secs()
    };
    let before = now();
    let data = folder.path().join("data");
    let made = ended(&["backup", "--data-dir", data.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    // The file's time is the disk's, which may be a moment behind.
    assert!((before - 1..=now()).contains(&told()), "{} and {}", told(), before);
}

/// A coordinator that is no member would take orders which no cell hears of.
#[test]
fn one_that_cannot_be_a_member_of_its_mesh_ends_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    drop(start(&config));
    let data = folder.path().join("data");
    let words = ["run", "--config", config.to_str().unwrap()];
    for (file, told) in [("member/member.pem", "member.pem"), ("authority", "authority")] {
        let (path, away) = (data.join(file), folder.path().join("away"));
        std::fs::rename(&path, &away).unwrap();
        std::fs::write(&path, "not what it was").unwrap();
        let said = complaint(&words);
        assert!(said.contains(told), "{file}: {said}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
    }
    // With both as they were it goes on as if nothing had been.
    let again = start(&config);
    assert_eq!(again.post("/v1/ping", &json!({})).unwrap().0, 200);
}

#[test]
fn bad_configurations_are_refused_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    for (text, expected) in [
        ("[api]\nlisen = []\n", "did you mean `listen`?"),
        ("[api.tls]\ncertificate = \"/nowhere\"\n", "api.tls.certificate needs api.tls.key too"),
        ("x = ", "configuration"),
    ] {
        std::fs::write(&path, text).unwrap();
        let said = complaint(&["run", "--config", path.to_str().unwrap()]);
        assert!(said.contains(expected), "{text}: {said}");
        let said = complaint(&["config", "--check", path.to_str().unwrap()]);
        assert!(said.contains(expected), "{text}: {said}");
    }
    let said = complaint(&["run", "--config", "/nowhere.toml"]);
    assert!(said.contains("/nowhere.toml"), "{said}");
    let sample = ended(&["config"]);
    std::fs::write(&path, sample.stdout).unwrap();
    assert!(ended(&["config", "--check", path.to_str().unwrap()]).status.success());
    // A port that somebody has.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = configure(folder.path(), "");
    let text = std::fs::read_to_string(&config).unwrap();
    let port = taken.local_addr().unwrap().port();
    let line = text.lines().find(|line| line.starts_with("api.listen")).unwrap();
    let text = text.replace(line, &format!("api.listen = [\"127.0.0.1:{port}\"]"));
    std::fs::write(&config, text).unwrap();
    let said = complaint(&["run", "--config", config.to_str().unwrap()]);
    assert!(said.contains("cannot listen on 127.0.0.1"), "{said}");
}

#[test]
fn tokens_are_made_listed_and_taken_back_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let running = start(&config);
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let made = ended(&[
        "token",
        "create",
        "--data-dir",
        data,
        "--name",
        "ci",
        "--role",
        "read",
        "--expires",
        "1h",
        "--json",
    ]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let ping = || {
        let answer = running
            .agent
            .get(format!("http://{}/v1/ping", running.address))
            .header("authorization", format!("Bearer {}", made["token"].as_str().unwrap()))
            .call();
        answer.unwrap().status().as_u16()
    };
    assert_eq!(ping(), 200);
    let listed = ended(&["token", "list", "--data-dir", data]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("read   valid    ci"), "{listed}");
    assert!(ended(&["token", "revoke", "--data-dir", data, "ci"]).status.success());
    let until = Instant::now() + PATIENCE;
    while ping() != 401 {
        assert!(Instant::now() < until, "a token that was taken back is good still");
    }
    let said = complaint(&["token", "revoke", "--data-dir", data, "nobody"]);
    assert!(said.contains("token list"), "{said}");
    let bad = ended(&["token", "create", "--name", "x", "--role", "root"]);
    assert!(String::from_utf8_lossy(&bad.stderr).contains("read, write or admin"));
}

#[test]
fn certificates_are_made_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("cfdot"));
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    let issue = |role: &str, name: &str| {
        ended(&[
            "cert",
            "issue",
            "--data-dir",
            data,
            "--role",
            role,
            "--name",
            name,
            "--out",
            out,
            "--json",
        ])
    };
    let made: Value = serde_json::from_slice(&issue("admin", "cfdot").stdout).unwrap();
    for file in ["ca", "cert", "key"] {
        use std::os::unix::fs::PermissionsExt as _;
        let path = made[file].as_str().unwrap();
        assert_eq!(path, format!("{out}/{file}.pem"));
        assert!(std::fs::read_to_string(path).unwrap().starts_with("-----BEGIN "), "{path}");
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path} is for its owner only");
    }
    let again = String::from_utf8_lossy(&issue("admin", "cfdot").stderr).into_owned();
    assert!(again.contains("ca.pem is there already") && again.contains("--force"), "{again}");
    assert!(!issue("root", "cfdot").status.success());
    let bad = String::from_utf8_lossy(&issue("cell", "a/b").stderr).into_owned();
    assert!(bad.contains("may only contain"), "{bad}");
}

#[test]
fn machines_are_let_in_and_out_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let said = complaint(&["join-token", "create", "--data-dir", data]);
    assert!(said.contains("no coordinator is running"), "{said}");
    let _running = start(&config);
    let line = ended(&["join-token", "create", "--data-dir", data, "--uses", "3"]);
    let line = String::from_utf8(line.stdout).unwrap();
    assert!(line.starts_with("volvox-join-v1."), "{line}");
    let listed = ended(&["join-token", "list", "--data-dir", data, "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["join_tokens"][0]["uses_left"], 3);
    let id = listed["join_tokens"][0]["id"].as_str().unwrap();
    assert!(ended(&["join-token", "revoke", "--data-dir", data, id]).status.success());
    let said = complaint(&["member", "revoke", "--data-dir", data, "nobody"]);
    assert!(!said.is_empty());
}

#[test]
fn a_backup_is_made_while_it_runs_and_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let copy = folder.path().join("copy.db");
    let copy = copy.to_str().unwrap();
    {
        let running = start(&config);
        running.post("/v1/desired_lrp/desire.r2", &lrp("before")).unwrap();
        assert!(ended(&["backup", "--data-dir", data, "--to", copy]).status.success());
        running.post("/v1/desired_lrp/desire.r2", &lrp("after")).unwrap();
        let refused = ended(&["restore", "--data-dir", data, "--from", copy]);
        assert!(!refused.status.success(), "not while it runs");
    }
    let restored = ended(&["restore", "--data-dir", data, "--from", copy]);
    assert!(restored.status.success(), "{restored:?}");
    let running = start(&config);
    assert_eq!(listed(&running), ["before"]);
}
