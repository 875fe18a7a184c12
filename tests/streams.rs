//! Logs and terminals through a whole coordinator, from HTTP to cells over the real mesh. The containers
//! are simulated; what a cell does with real ones is tested with the agent.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volvox_coordinator::config::CoordinatorConfig;
use volvox_coordinator::run::{self, Coordinator};
use volvox_protocol::stream::{Frame, TerminalSize, UPGRADE};
use volvox_tests::fleet::rep::Deed;
use volvox_tests::fleet::{CellPlan, FakeCell};
use volvox_tests::wait::pause;

/// How long anything may take before it counts as not happening.
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    coordinator: Option<Coordinator>,
    at: SocketAddr,
    token: String,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let text = "name = \"test\"\n\
                    api.listen = [\"127.0.0.1:0\"]\n\
                    mesh.listen = \"127.0.0.1:0\"\n\
                    shutdown.grace_s = 2\n";
        let config = CoordinatorConfig::parse(text, Some(&folder.path().join("data"))).unwrap();
        let coordinator = runtime.block_on(run::start(config, None)).unwrap();
        let at = coordinator.addresses()[0];
        let token = std::fs::read_to_string(coordinator.admin_token()).unwrap().trim().to_owned();
        Site { folder, runtime, coordinator: Some(coordinator), at, token }
    }

    fn cell(&self, name: &str) -> FakeCell {
        let body = json!({"role": "cell", "uses": 1, "ttl_s": 600});
        let answer = self.done("/v1/join_tokens/create", &body);
        let line = answer["join_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        FakeCell::join(&line, &self.folder.path().join(name), CellPlan::named(name)).unwrap()
    }

    fn done(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut http = self.send("POST", path, &body.to_string(), &[]);
        (http.status, http.json())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let mut http = self.send("GET", path, "", &[]);
        (http.status, http.json())
    }

    fn send(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Http {
        self.send_as(&self.token, method, path, body, headers)
    }

    fn send_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Http {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: volvox\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        Http::read(stream)
    }

    fn terminal(&self, body: &Value) -> Http {
        let headers = [("Connection", "Upgrade"), ("Upgrade", UPGRADE)];
        self.send("POST", "/v1/actual_lrps/exec", &body.to_string(), &headers)
    }

    fn desire(&self, guid: &str, instances: u32) {
        self.done(
            "/v1/desired_lrp/desire.r2",
            &json!({"desired_lrp": {
                "process_guid": guid, "domain": "apps", "instances": instances, "rootfs": "host:",
                "memory_mb": 64, "disk_mb": 32,
                "action": {"run": {"path": "/bin/true", "user": "nobody"}},
            }}),
        );
    }

    /// Waits until so many run, and says which they are, by index.
    fn running(&self, guid: &str, count: usize) -> Vec<(u32, String)> {
        eventually("instances that run", || {
            let (_, answer) = self.get(&format!("/v1/actual_lrps/list?process_guid={guid}"));
            let all = answer["actual_lrps"].as_array().cloned().unwrap_or_default();
            let running = all.iter().filter(|lrp| lrp["state"] == "RUNNING");
            let mut found: Vec<(u32, String)> = running
                .map(|lrp| {
                    let index = u32::try_from(lrp["index"].as_u64().unwrap()).unwrap();
                    (index, lrp["instance_guid"].as_str().unwrap().to_owned())
                })
                .collect();
            found.sort();
            (found.len() == count).then_some(found)
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.runtime.block_on(coordinator.stop());
        }
    }
}

/// An answer that is being read.
struct Http {
    stream: BufReader<TcpStream>,
    status: u16,
    head: String,
    pending: Vec<u8>,
}

impl Http {
    fn read(stream: TcpStream) -> Http {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "it hung up: {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Http { stream, status, head: head.to_ascii_lowercase(), pending: Vec::new() }
    }

    /// The whole answer; nothing, if it has no length.
    fn json(&mut self) -> Value {
        let Some(length) = self.head.split("content-length: ").nth(1) else { return Value::Null };
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }

    /// The next line of a body that comes in pieces; none: it has ended.
    fn line(&mut self) -> Option<Value> {
        assert_eq!(self.status, 200, "{}", self.head);
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                // An empty line says that somebody is there.
                if line.len() > 1 {
                    return Some(serde_json::from_slice(&line).unwrap());
                }
                continue;
            }
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut piece = vec![0; size + 2];
            self.stream.read_exact(&mut piece).unwrap();
            if size == 0 {
                return None;
            }
            self.pending.extend_from_slice(&piece[..size]);
        }
    }

    fn lines(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.line()).collect()
    }

    /// Messages of lines until one is this.
    fn until(&mut self, message: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != message) {
            let line = self.line().unwrap_or_else(|| panic!("it ended after {heard:?}"));
            heard.push(line["message"].as_str().unwrap().to_owned());
        }
        heard
    }

    /// The next frame of an upgraded connection.
    fn frame(&mut self) -> Option<Frame> {
        assert_eq!(self.status, 101, "{}", self.head);
        loop {
            if let Some((frame, used)) = Frame::take(&self.pending).unwrap() {
                self.pending.drain(..used);
                if frame != Frame::StillHere {
                    return Some(frame);
                }
                continue;
            }
            let mut chunk = [0; 4_096];
            match self.stream.read(&mut chunk).unwrap() {
                0 => return None,
                read => self.pending.extend_from_slice(&chunk[..read]),
            }
        }
    }

    fn say(&mut self, frame: &Frame) {
        self.stream.get_mut().write_all(&frame.encode()).unwrap();
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        pause(Duration::from_millis(5));
    }
}

const LOGS: &str = "/v1/actual_lrps/logs";

fn messages(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["message"].as_str().unwrap()).collect()
}

#[test]
fn logs_come_from_every_instance_or_one_and_from_tasks() {
    let site = Site::new();
    let cells = [site.cell("cell-1"), site.cell("cell-2")];
    site.desire("web", 3);
    let running = site.running("web", 3);
    for cell in &cells {
        ["one", "bad two", "three"].iter().for_each(|line| cell.streams().say(line));
    }
    let lines = site.send("GET", &format!("{LOGS}?process_guid=web&index=1"), "", &[]).lines();
    assert_eq!(messages(&lines), ["one", "bad two", "three"]);
    let first = json!({"time": 1_000_000_000, "stream": "out", "source": "APP", "index": 1,
                       "instance_guid": running[1].1, "message": "one"});
    assert_eq!(lines[0], first);
    assert_eq!(lines[1]["stream"], "err");
    let all = site.send("GET", &format!("{LOGS}?process_guid=web"), "", &[]).lines();
    for (index, guid) in &running {
        let of = all.iter().filter(|line| line["index"] == *index).cloned().collect::<Vec<_>>();
        assert_eq!(messages(&of), ["one", "bad two", "three"]);
        assert!(of.iter().all(|line| line["instance_guid"] == **guid));
    }
    let one = format!("{LOGS}?process_guid=web&instance_guid={}", running[2].1);
    let some = |rest: &str| site.send("GET", &format!("{one}&{rest}"), "", &[]).lines();
    assert_eq!(messages(&some("tail=2")), ["bad two", "three"]);
    assert_eq!(messages(&some("since=3000000000")), ["three"]);
    assert_eq!(messages(&some("tail=0")), [""; 0]);
    // A task, by POST.
    site.done(
        "/v1/tasks/desire.r2",
        &json!({"task_guid": "job", "domain": "apps",
        "task_definition": {"rootfs": "host:", "memory_mb": 8,
            "action": {"run": {"path": "/bin/true", "user": "nobody"}}}}),
    );
    let body = json!({"task_guid": "job"}).to_string();
    let lines = eventually("a task with a log", || {
        let mut answer = site.send("POST", LOGS, &body, &[]);
        (answer.status == 200).then(|| answer.lines())
    });
    assert_eq!(messages(&lines), ["one", "bad two", "three"]);
    assert!(lines.iter().all(|line| line["instance_guid"] == "job"));
}

#[test]
fn who_is_not_there_is_told_apart() {
    let site = Site::new();
    let told = |path: &str| {
        let (status, answer) = site.get(&format!("{LOGS}{path}"));
        (status, answer["error"]["type"].as_str().unwrap_or_default().to_owned())
    };
    let not_found = (404, "ResourceNotFound".to_owned());
    assert_eq!(told("?process_guid=nobody"), not_found);
    assert_eq!(told("?task_guid=nobody"), not_found);
    assert_eq!(told("").0, 400);
    assert_eq!(told("?process_guid=a&task_guid=b").0, 400);
    // Without a cell it waits.
    site.desire("web", 1);
    assert_eq!(told("?process_guid=web"), (409, "NotOnCell".to_owned()));
    let cell = site.cell("cell-1");
    let guid = site.running("web", 1)[0].1.clone();
    assert_eq!(told("?process_guid=web&index=7"), not_found);
    assert_eq!(told("?process_guid=web&instance_guid=other"), not_found);
    assert_eq!(told(&format!("?process_guid=web&instance_guid={guid}")).0, 200);
    // A cell that has gone without a word is found missing, and then not reachable; what is read
    // from it breaks off and says so.
    cell.streams().say("begun");
    let mut followed = site.send("GET", &format!("{LOGS}?process_guid=web&follow=true"), "", &[]);
    followed.until("begun");
    let mut shell = site.terminal(&json!({"process_guid": "web", "command": ["sh"]}));
    assert_eq!(shell.frame(), Some(Frame::Output(b"> ".to_vec())));
    cell.kill();
    let line = followed.line().unwrap();
    assert_eq!(line["error"]["type"], "CellUnreachable", "{line}");
    assert!(line["message"].as_str().unwrap().contains("broke off"), "{line}");
    let Some(Frame::Failed(why)) = shell.frame() else { panic!("the terminal goes on") };
    assert!(why.contains("cell"), "{why}");
    assert_eq!(shell.frame(), None);
    let refused = eventually("no cell", || {
        let found = told("?process_guid=web");
        (found.0 != 200).then_some(found)
    });
    // Its instance is suspect or waits for another cell.
    let expected = [(503, "CellUnreachable".to_owned()), (409, "NotOnCell".to_owned())];
    assert!(expected.contains(&refused), "{refused:?}");
}

#[test]
fn who_follows_hears_what_comes_also_from_the_next_instance() {
    let site = Site::new();
    let cell = site.cell("cell-1");
    site.desire("web", 1);
    let guid = site.running("web", 1)[0].1.clone();
    let mut followed = site.send("GET", &format!("{LOGS}?process_guid=web&follow=true"), "", &[]);
    for n in 0..5 {
        cell.streams().say(&format!("line {n}"));
        followed.until(&format!("line {n}"));
    }
    cell.tell(Deed::Crash(guid.parse().unwrap()));
    let next = eventually("another instance", || {
        let next = site.running("web", 1)[0].1.clone();
        (next != guid).then_some(next)
    });
    // It has the log that all containers here have.
    loop {
        let line = followed.line().unwrap();
        if line["instance_guid"] == next {
            assert_eq!(line["message"], "line 0");
            break;
        }
    }
    // Its end is the end of all of it.
    site.done("/v1/desired_lrp/remove", &json!({"process_guid": "web"}));
    drop(followed);
    eventually("no stream", || (cell.streams().open() == 0).then_some(()));
}

#[test]
fn a_reader_that_does_not_read_slows_its_own_stream_alone() {
    let site = Site::new();
    let cell = site.cell("cell-1");
    site.desire("web", 2);
    site.running("web", 2);
    cell.streams().flood();
    let path = |index: u32| format!("{LOGS}?process_guid=web&index={index}&follow=true");
    let stuck = site.send("GET", &path(0), "", &[]);
    assert_eq!(stuck.status, 200);
    // What is on its way: windows of QUIC, queues, the buffers of TCP on this machine.
    const MOST: usize = 24 << 20;
    let mut reading = site.send("GET", &path(1), "", &[]);
    let mut read = 0;
    while read < 4 * MOST {
        read += reading.line().unwrap()["message"].as_str().unwrap().len();
    }
    let sent = cell.streams().sent();
    assert!(sent < read + 2 * MOST, "{sent} bytes were sent, {read} were read");
    // Others are served beside them.
    site.desire("beside", 1);
    site.running("beside", 1);
    drop((stuck, reading));
    eventually("no stream", || (cell.streams().open() == 0).then_some(()));
}

#[test]
fn a_terminal_goes_through_and_is_written_down() {
    let site = Site::new();
    let cell = site.cell("cell-1");
    site.desire("web", 1);
    let guid = site.running("web", 1)[0].1.clone();
    let body = json!({"process_guid": "web", "command": ["/bin/sh", "-c", "echo a b"],
                      "user": "vcap", "env": ["A=b"], "rows": 40, "columns": 100});
    let mut shell = site.terminal(&body);
    assert_eq!(shell.frame(), Some(Frame::Output(b"> ".to_vec())));
    let asked = cell.streams().asked().pop().unwrap();
    assert_eq!((asked.container.as_str(), asked.path.as_str()), (guid.as_str(), "/bin/sh"));
    assert_eq!((asked.args.len(), asked.user.as_str(), asked.env.len()), (2, "vcap", 1));
    assert_eq!(asked.size, TerminalSize { rows: 40, columns: 100 });
    shell.say(&Frame::Input(b"hello".to_vec()));
    assert_eq!(shell.frame(), Some(Frame::Output(b"HELLO".to_vec())));
    shell.say(&Frame::Resize(TerminalSize { rows: 5, columns: 6 }));
    assert_eq!(shell.frame(), Some(Frame::Output(b"5x6".to_vec())));
    shell.say(&Frame::Unknown(250));
    shell.say(&Frame::Input(b"exit 3\n".to_vec()));
    assert_eq!(shell.frame(), Some(Frame::Exit(3)));
    assert_eq!(shell.frame(), None);
    let by_guid = json!({"process_guid": "web", "instance_guid": guid, "command": ["sh"]});
    let mut shell = site.terminal(&by_guid);
    shell.frame();
    shell.say(&Frame::Signal(15));
    assert_eq!(shell.frame(), Some(Frame::Exit(143)));
    // Who says what is not for it to say, and who goes.
    let mut shell = site.terminal(&by_guid);
    shell.frame();
    shell.say(&Frame::Exit(0));
    assert!(matches!(shell.frame(), Some(Frame::Failed(_))));
    let mut shell = site.terminal(&by_guid);
    shell.frame();
    drop(shell);
    eventually("no stream", || (cell.streams().open() == 0).then_some(()));
    let audit = std::fs::read_to_string(site.folder.path().join("data/audit.log")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["route"] == "Exec").unwrap();
    assert_eq!(line["subject"], "web/0 as vcap: /bin/sh -c echo a b");
    assert_eq!(line["status"], 101);
}

#[test]
fn a_terminal_is_refused_before_the_connection_is_given_away() {
    let site = Site::new();
    let cell = site.cell("cell-1");
    site.desire("web", 1);
    site.running("web", 1);
    let told = |mut http: Http| {
        let kind = http.json()["error"]["type"].as_str().unwrap().to_owned();
        (http.status, kind)
    };
    let good = json!({"process_guid": "web", "command": ["sh"]});
    let plain = site.send("POST", "/v1/actual_lrps/exec", &good.to_string(), &[]);
    assert_eq!(told(plain), (426, "UpgradeRequired".to_owned()));
    for (body, status) in [
        (json!({"process_guid": "nobody", "command": ["sh"]}), 404),
        (json!({"process_guid": "web", "index": 9, "command": ["sh"]}), 404),
        (json!({"process_guid": "web", "command": []}), 400),
        (json!({"process_guid": "web", "command": ["sh"], "rows": 70_000}), 400),
        (json!({"process_guid": "web", "command": ["/bin/nothing"]}), 409),
    ] {
        assert_eq!(told(site.terminal(&body)).0, status, "{body}");
    }
    // Who may only look may read logs, and run nothing.
    let file = volvox_coordinator::api::access::TokenFile::of(&site.folder.path().join("data"));
    let now = volvox_mesh::tls::config::system_clock()();
    let reader = file.create(now, "reader", "read".parse().unwrap(), None).unwrap().0;
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", UPGRADE)];
    let body = good.to_string();
    let refused = eventually("the new token", || {
        let answer = site.send_as(&reader, "POST", "/v1/actual_lrps/exec", &body, &upgrade);
        (answer.status != 401).then_some(answer)
    });
    assert_eq!(told(refused), (403, "Forbidden".to_owned()));
    let path = format!("{LOGS}?process_guid=web");
    assert_eq!(site.send_as(&reader, "GET", &path, "", &[]).status, 200);
    assert_eq!(cell.streams().asked().len(), 1, "only the one with no program came to the cell");
}
