//! `logs` and `exec`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use volvox_tests::wait::{PATIENCE, until};

use crate::stage::{Begun, Stage, said};

/// A cell with two instances that have written three lines each.
fn stage() -> Stage {
    let stage = Stage::of_cells(&["a"]);
    let file = stage.app(2, 64, "");
    stage.done(&["apply", "-f", &file, "--wait", "--timeout", "1m"]);
    ["one", "bad two", "three"].iter().for_each(|line| stage.cell("a").streams().say(line));
    stage
}

#[test]
fn logs_are_for_people_and_programs() {
    let stage = stage();
    let one = stage.done(&["logs", "web", "1"]);
    assert_eq!(
        one.out,
        "00:00:01.000 web/1 APP one\n00:00:02.000 web/1 APP bad two\n00:00:03.000 web/1 APP three\n"
    );
    assert_eq!(stage.done(&["logs", "web", "--tail", "1"]).out.lines().count(), 2);
    let lines = stage.done(&["logs", "web", "0", "--json"]).lines();
    assert_eq!((lines.len(), &lines[1]["stream"]), (3, &serde_json::json!("err")));
    let guid = lines[0]["instance_guid"].as_str().unwrap();
    let by_guid = stage.done(&["logs", "web", "--instance", guid, "--json"]).lines();
    assert_eq!(by_guid, lines);
    // Long ago by the clock of these containers: nothing of it is from the last hour.
    assert_eq!(stage.done(&["logs", "web", "--since", "1h"]).out, "");
    let none = stage.volvox(&["logs", "nobody"]);
    assert_eq!((none.code, none.out.as_str()), (3, ""));
    assert!(none.err.contains("an instance of nobody could not be found"), "{none:?}");
    assert_eq!(stage.volvox(&["logs", "web", "9"]).code, 3);
    assert_eq!(stage.volvox(&["logs", "--task", "nobody"]).code, 3);
    assert_eq!(stage.volvox(&["logs"]).code, 2);
}

#[test]
fn who_follows_goes_on_after_the_coordinator_was_restarted() {
    let mut stage = stage();
    let mut begun = stage.begin(&["logs", "web", "0", "--follow", "--tail", "1"]);
    let lines = BufReader::new(begun.0.stdout.take().unwrap()).lines();
    let (heard, hearing) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines {
            drop(heard.send(line.unwrap()));
        }
    });
    let next = || hearing.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next(), "00:00:03.000 web/0 APP three");
    stage.cell("a").streams().say("four");
    assert_eq!(next(), "00:00:04.000 web/0 APP four");
    stage.stop();
    stage.cell("a").streams().say("five");
    stage.start();
    // Nothing twice, nothing left out.
    assert_eq!(next(), "00:00:05.000 web/0 APP five");
    stage.done(&["stop", "web", "--wait"]);
    until(|| begun.0.try_wait().unwrap().is_some(), || "it goes on without the app".to_owned());
    assert_eq!(begun.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_command_without_a_terminal_here_is_typed_into_and_its_status_passed_on() {
    let stage = stage();
    let typed = |text: &str, words: &[&str]| {
        let mut command = stage.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), out, String::from_utf8(output.stderr).unwrap())
    };
    let (code, out, err) = typed("hello\r\n", &["exec", "web", "1", "--", "sh", "-c", "x"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "> HELLO\n", ""));
    let asked = stage.cell("a").streams().asked().pop().unwrap();
    assert_eq!((asked.path.as_str(), asked.args.len(), asked.user.as_str()), ("sh", 2, "root"));
    assert_eq!(typed("exit 7", &["exec", "web", "--", "sh"]).0, Some(7));
    assert_eq!(typed("", &["exec", "nobody", "--", "sh"]).0, Some(3));
    let (code, _, err) = typed("", &["exec", "web", "--", "/bin/nothing"]);
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("there is no /bin/nothing"), "{err}");
    assert_eq!(stage.volvox(&["exec", "web"]).code, 2);
    assert_eq!(stage.volvox(&["exec", "web", "--env", "A", "--", "sh"]).code, 2);
    assert_eq!(stage.volvox(&["--json", "exec", "web", "--", "sh"]).code, 2);
    // The same over TCP.
    let mut command = crate::stage::program();
    let token = stage.data().join("admin.token");
    command.args(["--api", &format!("http://{}", stage.address()), "--token-file"]).arg(token);
    command.args(["exec", "web", "--", "sh"]);
    assert_eq!(said(command).code, 0);
}

#[test]
fn how_a_command_ended_is_heard_though_it_takes_nothing_any_more() {
    let stage = stage();
    let mut command = stage.command(&["exec", "web", "--", "/bin/deaf"]);
    let mut child = Begun(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut stdin = child.0.stdin.take().unwrap();
    let typed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&typed);
    let typing = std::thread::spawn(move || {
        // Until it has ended, and nobody is there to read it.
        while stdin.write_all(&[b'x'; 512]).is_ok() {
            count.fetch_add(512, Ordering::Relaxed);
        }
    });
    // More than a pipe holds: some of it has gone its way.
    until(
        || typed.load(Ordering::Relaxed) > 128 << 10 || typing.is_finished(),
        || format!("{typed:?} bytes were read"),
    );
    stage.cell("a").streams().let_go();
    assert_eq!(child.0.wait().unwrap().code(), Some(9));
    typing.join().unwrap();
}

#[test]
fn all_that_is_typed_at_once_arrives_at_once() {
    let stage = stage();
    let mut command = stage.command(&["exec", "web", "--", "sh"]);
    let mut child = Begun(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    // More than is read at a time, and no end of it.
    let mut typed = child.0.stdin.take().unwrap();
    typed.write_all(&[b'x'; 6_000]).unwrap();
    let mut shown = [0; 6_002];
    let mut out = child.0.stdout.take().unwrap();
    for at in 0..shown.len() {
        let mut ready = [PollFd::new(out.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(PATIENCE).unwrap();
        assert!(poll(&mut ready, limit).unwrap() > 0, "only {at} bytes are shown");
        out.read_exact(&mut shown[at..=at]).unwrap();
    }
    assert!(shown.starts_with(b"> X") && shown.ends_with(b"X"));
    drop(typed);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_is_raw_meanwhile_follows_its_size_and_is_put_back() {
    let stage = stage();
    let is_raw = |terminal: &OwnedFd| {
        let now = tcgetattr(terminal).unwrap();
        !now.local_flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    };
    for (last, code) in [(&b"exit 5"[..], Some(5)), (b"", Some(143))] {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = stage.command(&["exec", "web", "--", "sh"]);
        let mut child =
            Begun(command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap());
        let mut terminal = std::fs::File::from(pty.master.try_clone().unwrap());
        let mut shown = Vec::new();
        let mut shows = |terminal: &mut std::fs::File, what: &str| {
            while !String::from_utf8_lossy(&shown).contains(what) {
                let mut ready = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
                let limit = PollTimeout::try_from(PATIENCE).unwrap();
                assert!(poll(&mut ready, limit).unwrap() > 0, "{what:?} is not shown: {shown:?}");
                let mut some = [0; 256];
                let read = terminal.read(&mut some).unwrap();
                shown.extend_from_slice(&some[..read]);
            }
        };
        shows(&mut terminal, "> ");
        assert!(is_raw(&pty.slave));
        let asked = stage.cell("a").streams().asked().pop().unwrap();
        assert_eq!((asked.size.rows, asked.size.columns), (30, 90));
        // A control-C is a key like others.
        terminal.write_all(b"a\x03b").unwrap();
        shows(&mut terminal, "A\u{3}B");
        let resized =
            Command::new("stty").args(["rows", "40", "cols", "120"]).stdin(slave()).status();
        assert!(resized.unwrap().success());
        let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap());
        kill(pid, Signal::SIGWINCH).unwrap();
        shows(&mut terminal, "40x120");
        if last.is_empty() {
            kill(pid, Signal::SIGTERM).unwrap();
        } else {
            terminal.write_all(last).unwrap();
        }
        assert_eq!(child.0.wait().unwrap().code(), code);
        assert!(!is_raw(&pty.slave), "the terminal was left raw");
    }
    let streams = stage.cell("a").streams();
    until(|| streams.open() == 0, || format!("{} streams are left", streams.open()));
}
