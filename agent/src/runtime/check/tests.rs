//! Checks of listeners that behave, and of those that do not.

use std::net::TcpListener;
use std::sync::mpsc;

use super::*;

/// Long enough for a busy machine to answer.
const SURELY: Duration = Duration::from_secs(30);
/// For what never answers.
const SOON: Duration = Duration::from_millis(200);

/// A server: each connection's request goes to the test, and the handler says what to do then.
fn server(handler: impl Fn(&str, TcpStream) + Send + 'static) -> (u32, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (mut head, mut byte) = (String::new(), [0]);
            while !head.ends_with("\r\n\r\n") && (&stream).read(&mut byte).is_ok_and(|it| it == 1) {
                head.push(byte[0].into());
            }
            if sender.send(head.clone()).is_err() {
                return;
            }
            handler(&head, stream);
        }
    });
    (port.into(), requests)
}

/// Says this, then closes.
fn says(bytes: impl Into<Vec<u8>>) -> (u32, mpsc::Receiver<String>) {
    let bytes = bytes.into();
    server(move |_, mut stream| drop(stream.write_all(&bytes)))
}

fn http(port: u32, path: &str, timeout: Duration) -> CheckOutcome {
    let check_it = HttpCheck { port, path: path.into(), ..HttpCheck::default() };
    check(&Check::Http(check_it), Ipv4Addr::LOCALHOST, timeout, &Cancel::new())
}

fn tcp(port: u32, timeout: Duration, cancel: &Cancel) -> CheckOutcome {
    let check_it = volvox_protocol::definition::TcpCheck { port, ..Default::default() };
    check(&Check::Tcp(check_it), Ipv4Addr::LOCALHOST, timeout, cancel)
}

fn failed(text: String) -> CheckOutcome {
    CheckOutcome::Failed(text)
}

fn refused(path: &str, port: u32) -> CheckOutcome {
    failed(format!("failed to make HTTP request to '{path}' on port {port}: connection refused"))
}

fn timed_out(path: &str, port: u32) -> CheckOutcome {
    let request = format!("failed to make HTTP request to '{path}' on port {port}");
    failed(format!("{request}: timed out after 0.20 seconds"))
}

#[track_caller]
fn has_status(outcome: &CheckOutcome, status: u16) {
    let CheckOutcome::Failed(text) = outcome else { panic!("{outcome:?}") };
    assert!(text.contains(&format!(": received status code {status} in ")), "{text}");
}

/// A port that nobody listens on, for as long as the socket lives.
fn closed_port() -> (u32, std::os::fd::OwnedFd) {
    let none = SockFlag::empty();
    let bound = socket(AddressFamily::Inet, SockType::Stream, none, None).unwrap();
    let any = SockaddrIn::new(127, 0, 0, 1, 0);
    nix::sys::socket::bind(bound.as_raw_fd(), &any).unwrap();
    let name: SockaddrIn = nix::sys::socket::getsockname(bound.as_raw_fd()).unwrap();
    (name.port().into(), bound)
}

/// A port whose queue is full, so that nobody answers, for as long as the sockets live.
fn silent_port() -> (u32, Vec<std::os::fd::OwnedFd>) {
    let (port, listener) = closed_port();
    let backlog = nix::sys::socket::Backlog::new(0).unwrap();
    nix::sys::socket::listen(&listener, backlog).unwrap();
    let mut held = vec![listener];
    for _ in 0..4 {
        let flags = SockFlag::SOCK_NONBLOCK;
        let client = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
        let to = SockaddrIn::new(127, 0, 0, 1, u16::try_from(port).unwrap());
        let _ = connect(client.as_raw_fd(), &to);
        held.push(client);
    }
    (port, held)
}

#[test]
fn a_port_that_listens_passes_and_others_say_why_not() {
    let (open, _requests) = says("");
    assert_eq!(tcp(open, SURELY, &Cancel::new()), CheckOutcome::Passed);
    let (closed, _bound) = closed_port();
    let text = format!("failed to make TCP connection to 127.0.0.1:{closed}: connection refused");
    assert_eq!(tcp(closed, SURELY, &Cancel::new()), failed(text));
    assert_eq!(http(closed, "/x", SURELY), refused("/x", closed));
    for port in [65_536, u32::MAX] {
        let outcome = tcp(port, SURELY, &Cancel::new());
        assert_eq!(outcome, CheckOutcome::CouldNotRun(format!("there is no port {port}")));
    }
}

#[test]
fn a_port_that_does_not_answer_times_out_or_is_cancelled() {
    let (port, _held) = silent_port();
    let text =
        format!("failed to make TCP connection to 127.0.0.1:{port}: timed out after 0.20 seconds");
    assert_eq!(tcp(port, SOON, &Cancel::new()), failed(text));
    assert_eq!(http(port, "/", SOON), timed_out("/", port));
    let cancelled = CheckOutcome::CouldNotRun("cancelled".into());
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| tcp(port, Duration::from_secs(3600), &cancel));
        cancel.cancel();
        assert_eq!(waits.join().unwrap(), cancelled);
    });
    assert_eq!(tcp(port, SURELY, &cancel), cancelled, "it was cancelled before");
}

#[test]
fn a_cancel_ends_the_wait_for_an_answer() {
    let (reader, hung) = mpsc::channel();
    let (port, requests) = server(move |_, stream| drop(reader.send(stream)));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let check_it = HttpCheck { port, ..HttpCheck::default() };
            let hour = Duration::from_secs(3600);
            check(&Check::Http(check_it), Ipv4Addr::LOCALHOST, hour, &cancel)
        });
        requests.recv().unwrap();
        cancel.cancel();
        assert_eq!(waits.join().unwrap(), CheckOutcome::CouldNotRun("cancelled".into()));
    });
    // The connection is closed although the cancel still lives.
    let mut stream = hung.recv().unwrap();
    stream.set_read_timeout(Some(SURELY)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn only_200_passes() {
    for (answer, status) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.0 200\n\n", None),
        ("HTTP/1.1 200 OK\r\n\r\nrest of a body", None),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            None,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Some(204)),
        ("HTTP/1.1 404 Not Found\r\n\r\n", Some(404)),
        ("HTTP/1.1 503 Busy\r\nlocation: /x\r\n\r\n", Some(503)),
        ("HTTP/1.1 302 Found\r\n\r\n", Some(302)),
        ("HTTP/1.1 302 Found\r\nlocation:\r\n\r\n", Some(302)),
        ("HTTP/1.1 101 Switching\r\n\r\n", Some(101)),
        ("HTTP/1.1 999 Odd\r\n\r\n", Some(999)),
    ] {
        let (port, _requests) = says(answer);
        let outcome = http(port, "/", SURELY);
        match status {
            None => assert_eq!(outcome, CheckOutcome::Passed, "{answer:?}"),
            Some(status) => has_status(&outcome, status),
        }
    }
}

#[test]
fn what_is_no_answer_counts_as_refused() {
    for answer in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nhalf: a he",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 020 OK\r\n\r\n",
        b"HTTP/1.1  \r\n\r\n",
        b"HTTP/1.12 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\0\xff\n\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (port, _requests) = says(answer);
        assert_eq!(http(port, "/p", SURELY), refused("/p", port), "{}", answer.escape_ascii());
    }
}

#[test]
fn answers_without_end_are_left() {
    // Faster than anybody can read: the bytes are bounded.
    for (start, again) in [
        ("HTTP/1.1 200 ", "O"),
        ("HTTP/1.1 200 OK\r\n", "header: value\r\n"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
    ] {
        let (port, _requests) = server(move |_, mut stream| {
            let flood = again.repeat(1_000);
            let mut sent = stream.write_all(start.as_bytes());
            while sent.is_ok() {
                sent = stream.write_all(flood.as_bytes());
            }
        });
        assert_eq!(http(port, "/", SURELY), refused("/", port), "{start:?} {again:?}");
    }
    // One byte now and then: the time is bounded.
    let (port, _requests) = server(|_, mut stream| {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nslow: ");
        while sent.is_ok() {
            // Nothing comes; the wait for it is the pause.
            let pause = stream.read(&mut [0]);
            sent = if matches!(pause, Ok(0)) { return } else { stream.write_all(b"x") };
        }
    });
    assert_eq!(http(port, "/", SOON), timed_out("/", port));
}

#[test]
fn the_request_is_diegos_and_cannot_be_forged() {
    let (port, requests) = says("HTTP/1.1 200 OK\r\n\r\n");
    for (path, line) in [
        ("", "GET / HTTP/1.1"),
        ("/", "GET / HTTP/1.1"),
        ("/a?b=c&d", "GET /a?b=c&d HTTP/1.1"),
        ("healthz#top", "GET /healthz HTTP/1.1"),
        ("/ä b", "GET /%C3%A4%20b HTTP/1.1"),
        (
            "/x HTTP/1.1\r\nEvil: yes\r\n\r\n",
            "GET /x%20HTTP/1.1%0D%0AEvil:%20yes%0D%0A%0D%0A HTTP/1.1",
        ),
    ] {
        assert_eq!(http(port, path, SURELY), CheckOutcome::Passed);
        let request = requests.recv().unwrap();
        let lines: Vec<_> = request.trim_end().split("\r\n").collect();
        assert_eq!(lines[0], line);
        let host = format!("Host: 127.0.0.1:{port}");
        for header in [&host, "User-Agent: diego-healthcheck", "X-Forwarded-Proto: https"] {
            assert_eq!(lines.iter().filter(|it| *it == &header).count(), 1, "{header}: {request}");
        }
        assert_eq!(lines.len(), 6, "{request}");
    }
}

#[test]
fn redirects_are_followed_to_the_same_place_only() {
    let redirect = |location: &'static str| {
        server(move |head, mut stream| {
            let port = stream.local_addr().unwrap().port();
            let location = location.replace("PORT", &port.to_string());
            let answer = if head.starts_with("GET /old/page?q ") {
                format!("HTTP/1.1 302 Found\r\nLOCATION:  {location}  \r\n\r\n")
            } else {
                "HTTP/1.1 200 OK\r\n\r\n".to_owned()
            };
            drop(stream.write_all(answer.as_bytes()));
        })
    };
    for (location, target) in [
        ("/new", "/new"),
        ("new", "/old/new"),
        ("?r", "/old/page?r"),
        ("http://127.0.0.1:PORT/new#x", "/new"),
        ("HTTP://127.0.0.1:PORT?r", "/?r"),
        ("//127.0.0.1:PORT", "/"),
        ("/to://there", "/to://there"),
    ] {
        let (port, requests) = redirect(location);
        assert_eq!(http(port, "/old/page?q", SURELY), CheckOutcome::Passed, "{location}");
        requests.recv().unwrap();
        let line = requests.recv().unwrap();
        assert!(line.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{location}: {line}");
    }
    for elsewhere in [
        "https://127.0.0.1:PORT/",
        "http://127.0.0.1/",
        "http://127.0.0.1:1/",
        "http://127.0.0.2:PORT/",
        "http://localhost:PORT/",
        "http://169.254.169.254/latest",
        "http://127.0.0.1:PORT@169.254.169.254/",
        "http://a@127.0.0.1:PORT/",
        "//169.254.169.254/",
        "http:/new",
        "file:///etc/passwd",
        "javascript:1",
    ] {
        let (port, requests) = redirect(elsewhere);
        has_status(&http(port, "/old/page?q", SURELY), 302);
        requests.recv().unwrap();
        assert!(requests.try_recv().is_err(), "{elsewhere}: asked again");
    }
}

#[test]
fn redirects_that_never_end_are_left() {
    let (port, requests) = says("HTTP/1.1 307 Again\r\nlocation: /\r\n\r\n");
    assert_eq!(http(port, "/", SURELY), refused("/", port));
    assert_eq!(requests.try_iter().count(), REDIRECTS + 1);
}
