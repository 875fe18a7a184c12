//! What strangers and clumsy clients can use up, and that others do not notice.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::stage::{PATIENCE, Stage, eventually};

fn raw(stage: &Stage, text: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(stage.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // Cut off is an end too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn half_open_connections_do_not_keep_others_out() {
    let stage = Stage::with("api.limits.strangers = 64\n");
    let mut half_open = Vec::new();
    for nth in 0..1_000 {
        half_open.push(raw(&stage, b"GET /v1/ping HTTP/1.1\r\nhost"));
        if nth % 50 == 0 {
            assert_eq!(stage.get("/v1/ping").status, 200, "after {nth}");
        }
    }
    assert_eq!(stage.get("/v1/ping").status, 200);
    let turned_out = eventually("strangers are turned out", || {
        let text = stage.get("/metrics").text;
        let line =
            text.lines().find(|l| l.starts_with("volvox_http_strangers_turned_out_total"))?;
        let count: u64 = line.rsplit(' ').next()?.parse().ok()?;
        (count >= 900).then_some(count)
    });
    assert!(turned_out <= 1_000);
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let stage = Stage::with("api.limits.header_s = 1\n");
    let answer = read(raw(&stage, b"GET /v1/ping HTTP/1.1\r\nx: "));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    // One that is too long, or has too many lines, too.
    let long = format!("GET /v1/ping HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
    assert!(read(raw(&stage, long.as_bytes())).starts_with("HTTP/1.1 431"));
    let many = format!("GET /v1/ping HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert!(read(raw(&stage, many.as_bytes())).starts_with("HTTP/1.1 431"));
}

#[test]
fn a_body_that_never_ends_is_given_up() {
    let stage = Stage::with("api.limits.body_s = 1\n");
    let head = format!(
        "POST /v1/domains/upsert HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n",
        stage.token
    );
    let slow = raw(&stage, format!("{head}content-length: 100\r\n\r\n{{").as_bytes());
    let chunked =
        raw(&stage, format!("{head}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n").as_bytes());
    for stream in [slow, chunked] {
        let mut stream = stream;
        let mut answer = [0_u8; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    // Chunks without end are counted, whatever they do not announce.
    let mut endless = raw(&stage, format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes());
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let mut answer = [0_u8; 12];
    for _ in 0..64 {
        if endless.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    endless.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn two_lengths_are_no_length() {
    let stage = Stage::new();
    let head = format!(
        "POST /v1/domains/upsert HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n",
        stage.token
    );
    for lengths in [
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: -1\r\n",
        "content-length: 5, 6\r\n",
    ] {
        let answer = read(raw(&stage, format!("{head}{lengths}\r\n{{}}").as_bytes()));
        assert!(answer.starts_with("HTTP/1.1 400"), "{lengths:?}: {answer}");
    }
    // Both a length and chunks: the chunks count, and nothing behind them is a request of its own.
    let both = format!(
        "{head}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
         2\r\n{{}}\r\n0\r\n\r\n"
    );
    let mut stream = raw(&stage, both.as_bytes());
    let mut answer = [0_u8; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

#[test]
fn who_calls_too_often_is_slowed() {
    let stage = Stage::with("api.limits.requests_per_second = 5\n");
    let write = format!("Bearer {}", stage.token("read"));
    let call = || stage.send("GET", "/v1/ping", None, &[("authorization", &write)]);
    let refused = eventually("a refusal", || {
        let answer = call();
        (answer.status == 429).then_some(answer)
    });
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.json()["error"]["type"], "TooManyRequests");
    eventually("it is let through again", || (call().status == 200).then_some(()));
}

#[test]
fn streams_are_counted() {
    let stage = Stage::with("events.streams = 2\n");
    let open = || {
        let text = format!(
            "GET /v1/events/tasks.r1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
            stage.token
        );
        let mut stream = raw(&stage, text.as_bytes());
        let mut status = [0_u8; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, String::from_utf8(status.to_vec()).unwrap())
    };
    let (first, told) = open();
    assert_eq!(told, "HTTP/1.1 200");
    let (_second, told) = open();
    assert_eq!(told, "HTTP/1.1 200");
    let (_third, told) = open();
    assert_eq!(told, "HTTP/1.1 503");
    drop(first);
    // Its place is free when the server has noticed.
    stage.done("/v1/tasks/desire.r2", crate::stage::task("t"));
    let mut nth = 0;
    eventually("a place for a stream", || {
        nth += 1;
        stage.post("/v1/tasks/desire.r2", crate::stage::task(&format!("t{nth}")));
        let (_stream, told) = open();
        (told == "HTTP/1.1 200").then_some(())
    });
}

#[test]
fn a_reader_that_takes_nothing_is_let_go() {
    let stage = Stage::with("api.limits.stall_s = 1\n");
    for nth in 0..20 {
        let lrp = crate::stage::lrp(&format!("p{nth}"), 2_000);
        stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp}));
    }
    // 40,000 instances are some 16 megabytes: more than sockets hold.
    let text = format!(
        "GET /v1/actual_lrps/list HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        stage.token
    );
    let mut stream = raw(&stage, text.as_bytes());
    let mut begin = [0_u8; 12];
    stream.read_exact(&mut begin).unwrap();
    let seated = || {
        let text = stage.get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with("volvox_http_connections "))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    // Our own client keeps a connection too.
    eventually("both are there", || (seated()? == 2).then_some(()));
    eventually("the stalled one is gone", || (seated()? <= 1).then_some(()));
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"]}\r\n0\r\n\r\n"), "cut off, and not whole: {ended:?}");
}
