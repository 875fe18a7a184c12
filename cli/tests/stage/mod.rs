//! The program, and a coordinator that answers what it is told to: for snapshots that must not depend
//! on times and ids. What a real one answers is tested in `tests/cli.rs`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_volvox");

/// The program with these words, and nothing of ours in its environment.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// The program with these words, ended.
pub(crate) fn ended(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// What was said, and how it ended.
#[track_caller]
pub(crate) fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, stdout, "stderr: {complained}");
    assert_eq!(complained, stderr);
    assert_eq!(output.status.code(), Some(code));
}

type Answers = BTreeMap<String, (u16, String)>;

/// A coordinator that answers what it is told to, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(answers: &[(&str, u16, Value)]) -> Server {
        let all = answers
            .iter()
            .map(|(path, status, body)| ((*path).to_owned(), (*status, body.to_string())));
        let all: Answers = all.collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let (asking, ending) = (Arc::clone(&asked), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::Acquire) {
                    return;
                }
                let served = stream.and_then(|stream| serve(stream, &all, &asking));
                drop(served);
            }
        });
        Server { address, asked, ended, thread: Some(thread) }
    }

    /// Asks it by the program.
    pub(crate) fn ended(&self, words: &[&str]) -> Output {
        let api = format!("http://{}", self.address);
        let mut all = vec!["--api", &api, "--token", "t"];
        all.extend(words);
        ended(&all)
    }

    /// What was asked of it at a path.
    pub(crate) fn asked(&self, path: &str) -> Vec<Value> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(known, _)| known == path).map(|(_, body)| body.clone()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(
    stream: TcpStream,
    answers: &Answers,
    asked: &Mutex<Vec<(String, Value)>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, text) = answers.get(&path).cloned().unwrap_or_else(|| {
        (404, r#"{"error":{"type":"RouteNotFound","message":"there is no such route"}}"#.to_owned())
    });
    asked.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap_or(Value::Null)));
    let mut stream = reader.into_inner();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(head.as_bytes())
}
