//! Members that are processes: the test program runs itself again, with its orders in the
//! environment and on stdin, and what it sees on stdout, a line of JSON each.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

mod inside;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::tls::authority::{Authority, AuthorityError, VALIDITY};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::{NameConflict, TokenOrder};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

pub use inside::run_if_asked;

use crate::stage::wait;

/// Where a process finds its orders. Without it, it is an ordinary run of the tests.
const ORDERS: &str = "VOLVOX_TEST_MEMBER";

/// What a member process needs to begin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    pub folder: PathBuf,
    pub listen: SocketAddr,
    pub profile: String,
    pub seeds: Vec<String>,
    /// A cell joins with it first, unless it has its certificate.
    pub token: Option<String>,
    /// A coordinator's.
    pub authority: Option<PathBuf>,
}

/// A cluster in a temporary folder: one coordinator with its authority, and a token for all cells.
pub struct Cluster {
    pub folder: tempfile::TempDir,
    pub coordinator: SocketAddr,
    token: String,
}

impl Cluster {
    /// `coordinator`: where it will be.
    pub fn new(coordinator: SocketAddr) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let now = system_clock()();
        let path = folder.path().join("authority");
        let mut authority = open_authority(now, &path);
        appoint(&mut authority, now, MemberKind::Coordinator, &folder.path().join("c-1"));
        let order = TokenOrder {
            kind: MemberKind::Cell,
            cell: None,
            clash: NameConflict::Refuse,
            uses: 32,
            lifetime: Duration::from_secs(3_600),
            label: "test".to_owned(),
        };
        let token = authority.create_token(now, vec![coordinator.to_string()], order).unwrap();
        Cluster { folder, coordinator, token: token.line() }
    }

    /// Makes somebody a member without a word on the network; before the coordinator starts.
    pub fn appoint(&self, kind: MemberKind, name: &str, now: Timestamp) -> Credentials {
        let path = self.path("authority");
        let mut authority = open_authority(now, &path);
        appoint(&mut authority, now, kind, &self.path(name))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn coordinator(&self, listen: SocketAddr) -> Orders {
        Orders {
            seeds: Vec::new(),
            token: None,
            authority: Some(self.path("authority")),
            ..self.cell("c-1", listen)
        }
    }

    pub fn cell(&self, name: &str, listen: SocketAddr) -> Orders {
        Orders {
            name: name.to_owned(),
            folder: self.path(name),
            listen,
            profile: "lan".to_owned(),
            seeds: vec![self.coordinator.to_string()],
            token: Some(self.token.clone()),
            authority: None,
        }
    }
}

/// The last part of the folder's path is the name.
fn appoint(
    authority: &mut Authority,
    now: Timestamp,
    kind: MemberKind,
    folder: &Path,
) -> Credentials {
    let name = CellId::new(folder.file_name().unwrap().to_str().unwrap()).unwrap();
    let folder = MemberFolder::open(folder).unwrap();
    let key = folder.joining_key().unwrap();
    let issued = authority.appoint(now, kind, name, key.public(), NameConflict::Refuse).unwrap();
    let credentials = Credentials::new(key, issued.certificate, authority.ca().clone()).unwrap();
    folder.store(&credentials).unwrap();
    credentials
}

#[derive(Default)]
struct Heard {
    answers: BTreeMap<u64, Value>,
    events: Vec<Value>,
    panics: Vec<String>,
    ended: bool,
}

/// A member that runs as a process. It is killed when this is dropped.
pub struct Member {
    pub name: String,
    child: Child,
    stdin: ChildStdin,
    heard: Arc<Mutex<Heard>>,
    asked: std::cell::Cell<u64>,
}

impl Member {
    /// Starts it in the namespaces of this thread.
    pub fn spawn(orders: &Orders) -> Member {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "member_process", "--nocapture", "--test-threads=1"])
            .env(ORDERS, serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let stdout = child.stdout.take().unwrap();
        let shelf = heard.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test harness has its own lines between.
                let Ok(Value::Object(line)) = serde_json::from_str(&line) else { continue };
                let mut heard = shelf.lock().unwrap();
                match (line.get("answer"), line.get("panic")) {
                    (_, Some(words)) => heard.panics.push(words.to_string()),
                    (Some(answer), _) => {
                        let id = line["id"].as_u64().unwrap();
                        heard.answers.insert(id, answer.clone());
                    }
                    _ => heard.events.push(Value::Object(line)),
                }
            }
            shelf.lock().unwrap().ended = true;
        });
        let stdin = child.stdin.take().unwrap();
        Member { name: orders.name.clone(), child, stdin, heard, asked: 0.into() }
    }

    /// Starts it and waits until it listens.
    pub fn start(orders: &Orders) -> Member {
        let member = Member::spawn(orders);
        member.begins();
        member
    }

    /// Waits until it listens, and returns where.
    pub fn begins(&self) -> SocketAddr {
        let first = self.first();
        assert_eq!(first["event"], "ready", "{}: {first}", self.name);
        first["address"].as_str().unwrap().parse().unwrap()
    }

    /// The first thing that it says: that it is ready, or why not.
    pub fn first(&self) -> Value {
        wait(|| !self.events().is_empty() || self.ended(), || format!("{} is silent", self.name));
        self.events().first().cloned().unwrap_or_else(|| json!({"event": "silent"}))
    }

    pub fn ended(&self) -> bool {
        self.heard.lock().unwrap().ended
    }

    pub fn events(&self) -> Vec<Value> {
        self.heard.lock().unwrap().events.clone()
    }

    /// MemberSelector it found missing, in order, by name.
    pub fn found_missing(&self) -> Vec<String> {
        let events = self.events();
        let missing = events.iter().filter(|event| event["event"] == "missing");
        missing.map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn panics(&self) -> Vec<String> {
        self.heard.lock().unwrap().panics.clone()
    }

    /// Gives an order and waits for the answer.
    pub fn order(&self, order: Value) -> Value {
        let id = self.asked.get() + 1;
        self.asked.set(id);
        let line = json!({"id": id, "order": order});
        writeln!(&self.stdin, "{line}").unwrap();
        let answer = || self.heard.lock().unwrap().answers.get(&id).cloned();
        wait(|| answer().is_some(), || format!("{} does not answer {line}", self.name));
        answer().unwrap()
    }

    pub fn state(&self) -> Value {
        self.order(json!("state"))
    }

    /// The names of those that are present here, in order.
    pub fn present(&self) -> Vec<String> {
        let state = self.state();
        let members = state["members"].as_array().unwrap().iter();
        let present = members.filter(|member| member["standing"] == "Present");
        let mut names: Vec<_> =
            present.map(|member| member["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// One member as this one sees it.
    pub fn view(&self, name: &str) -> Value {
        let state = self.state();
        let members = state["members"].as_array().unwrap();
        members.iter().find(|member| member["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Waits until exactly these are present.
    pub fn wait_for(&self, names: &[&str]) {
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        wait(
            || self.present() == wanted,
            || format!("{} sees {:#}, not {wanted:?}", self.name, self.state()),
        );
    }

    pub fn publish(&self, free_mb: u32) {
        self.order(json!({ "load": free_mb }));
    }

    /// Waits until it has this load of a cell.
    pub fn wait_for_load(&self, of: &str, free_mb: u32) {
        wait(
            || self.view(of)["load"] == free_mb,
            || format!("{} knows of {of}: {:#}", self.name, self.state()),
        );
    }

    /// Asks another for twice a number, until it answers.
    pub fn wait_for_answer_of(&self, other: &str) {
        let last = std::cell::RefCell::new(Value::Null);
        wait(
            || {
                *last.borrow_mut() = self.order(json!({ "ask": other }));
                *last.borrow() == 42
            },
            || format!("{} asks {other}, and gets {}", self.name, last.borrow()),
        );
    }

    /// How often the transport or the core refused or dropped something, by reason.
    pub fn count(&self, reason: &str) -> u64 {
        let state = self.state();
        let of = |part: &str| state[part][reason].as_u64();
        of("counters").or(of("refused")).unwrap_or_else(|| panic!("{reason} in {state:#}"))
    }

    /// Its memory that is in RAM, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Already ended: then there is nobody to kill.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
        let panics = self.panics();
        if !std::thread::panicking() {
            assert!(panics.is_empty(), "{} panicked: {panics:?}", self.name);
        }
    }
}

/// The port of everybody who has an address of its own.
pub const PORT: u16 = 7_000;

/// Whether it is there, by name.
pub fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}

/// Opens the authority. Another test of this program may be starting a process just now, which has our
/// lock for the moment between fork and exec: so it is tried again.
pub fn open_authority(now: Timestamp, path: &Path) -> Authority {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match Authority::open(now, path, VALIDITY) {
            Err(AuthorityError::InUse(_)) if Instant::now() < end => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}
