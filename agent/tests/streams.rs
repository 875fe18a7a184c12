//! Logs and terminals of real containers, asked for over a real mesh. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "executor/cell.rs"]
#[allow(dead_code, reason = "the tests of the executor use the rest")]
mod cell;
mod stage;

use std::sync::Arc;

use tokio::runtime::Runtime;
use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::runtime::shim::Shims;
use volvox_agent::streams;
use volvox_mesh::driver::{Mesh, MeshConfig};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::profile::Profile;
use volvox_mesh::request::{AskError, Router, RpcRefusal, StreamingRequest};
use volvox_mesh::tls::authority::{Authority, VALIDITY};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::NameConflict;
use volvox_mesh::transport::stream::{FrameReader, FrameWriter};
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::CellId;
use volvox_protocol::stream::{Frame, LogLine, LogStream, OpenTerminal, ReadLog, TerminalSize};
use volvox_protocol::time::Timestamp;

use cell::{Cell, PATIENCE, lrp, sh, until};

/// A cell that serves streams, and a coordinator and another cell that ask for them.
struct Site {
    runtime: Runtime,
    serving: Mesh,
    coordinator: Mesh,
    other: Mesh,
    // Last: containers are cleared after nobody asks any more.
    cell: Cell,
}

impl Site {
    fn new(name: &str) -> Option<Site> {
        let cell = Cell::new(name)?;
        let runtime = Runtime::new().unwrap();
        let shims = Shims::new(&cell.config.state.join("containers"), &cell.config.shim);
        let router = streams::register(Router::new(), cell.executor().clone(), shims);
        let folder = cell.folder.path();
        let now = system_clock()();
        let mut authority = Authority::open(now, &folder.join("authority"), VALIDITY).unwrap();
        let mut start = |kind, name: &str, seeds: Vec<String>, router| {
            let folder = folder.join(name);
            let member = MemberFolder::open(&folder).unwrap();
            let key = member.joining_key().unwrap();
            let id = CellId::new(name).unwrap();
            let issued =
                authority.appoint(now, kind, id, key.public(), NameConflict::Refuse).unwrap();
            let ca = authority.ca().clone();
            member.store(&Credentials::new(key, issued.certificate, ca).unwrap()).unwrap();
            let config = MeshConfig {
                folder,
                listen: ([127, 0, 0, 1], 0).into(),
                advertise: None,
                profile: Profile::lan(),
                seeds,
                enrolment: None,
            };
            runtime.block_on(Mesh::start(config, Arc::new(router))).unwrap()
        };
        let coordinator = start(MemberKind::Coordinator, "c", Vec::new(), Router::new());
        let at = vec![coordinator.listens_at().to_string()];
        let serving = start(MemberKind::Cell, "serving", at.clone(), router);
        let other = start(MemberKind::Cell, "other", at, Router::new());
        Some(Site { runtime, serving, coordinator, other, cell })
    }

    /// Opens a stream, once there is a link.
    fn open<R: StreamingRequest + 'static>(
        &self,
        by: &Mesh,
        request: &R,
    ) -> Result<(FrameReader, FrameWriter), AskError>
    where
        R::Reply: Send + 'static,
    {
        let to = self.serving.me().member;
        let asked = until("a link", || {
            let asked = self.runtime.block_on(by.converse(to, request, PATIENCE));
            (!matches!(asked, Err(AskError::NoLink))).then_some(asked)
        });
        asked.map(|(_, reader, writer)| (reader, writer))
    }

    fn next(&self, reader: &mut FrameReader) -> Option<Frame> {
        let next = async { tokio::time::timeout(PATIENCE, reader.next()).await };
        self.runtime.block_on(next).expect("a frame in time").unwrap()
    }

    fn send(&self, writer: &mut FrameWriter, frame: &Frame) {
        self.runtime.block_on(writer.send(frame)).unwrap();
    }

    /// Lines until `enough`, or until the log's end, and why that was.
    fn lines(
        &self,
        reader: &mut FrameReader,
        enough: impl Fn(&[LogLine]) -> bool,
    ) -> (Vec<LogLine>, String) {
        let mut lines = Vec::new();
        while !enough(&lines) {
            match self.next(reader) {
                Some(Frame::Lines(some)) => lines.extend(some),
                Some(Frame::StillHere) => {}
                Some(Frame::End(why) | Frame::Failed(why)) => return (lines, why),
                other => panic!("{other:?}"),
            }
        }
        (lines, String::new())
    }

    /// What is shown until this is in it.
    fn shows(&self, reader: &mut FrameReader, what: &str) -> String {
        let mut shown = String::new();
        while !shown.contains(what) {
            match self.next(reader) {
                Some(Frame::Output(bytes)) => shown += &String::from_utf8_lossy(&bytes),
                Some(Frame::StillHere) => {}
                other => panic!("{other:?} after {shown:?}"),
            }
        }
        shown
    }

    fn exit(&self, reader: &mut FrameReader) -> i32 {
        loop {
            match self.next(reader) {
                Some(Frame::Exit(status)) => {
                    assert_eq!(self.next(reader), None);
                    return status;
                }
                Some(Frame::Output(_) | Frame::StillHere) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn running(&self, name: &str, script: &str) -> ContainerGuid {
        let guid = self.cell.start_lrp(name, lrp(sh(script)));
        self.cell.reaches(&guid, ContainerState::Running);
        guid
    }
}

fn log(guid: &ContainerGuid) -> ReadLog {
    let container = guid.as_str().to_owned();
    ReadLog { container, follow: false, tail: None, since: Timestamp::ZERO }
}

fn terminal(guid: &ContainerGuid, script: &str) -> OpenTerminal {
    OpenTerminal {
        container: guid.as_str().to_owned(),
        path: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec!["PS1=> ".to_owned(), "TERM=dumb".to_owned()],
        dir: "/".to_owned(),
        user: "vcap".to_owned(),
        size: TerminalSize { rows: 24, columns: 80 },
    }
}

fn texts(lines: &[LogLine]) -> Vec<String> {
    let ours = lines.iter().filter(|line| line.source == "APP");
    ours.map(|line| String::from_utf8_lossy(&line.message).into_owned()).collect()
}

fn has(lines: &[LogLine], text: &str) -> bool {
    texts(lines).iter().any(|one| one == text)
}

#[test]
fn a_log_is_read_whole_from_its_end_since_a_time_and_as_it_comes() {
    let Some(site) = Site::new("a_log_is_read_whole_from_its_end_since_a_time_and_as_it_comes")
    else {
        return;
    };
    let script = "for n in 1 2 3 4 5; do echo line $n; done; echo bad >&2; \
                  until [ -e /tmp/go ]; do sleep 0.02; done; echo late; sleep 1000";
    let guid = site.running("log", script);
    let (mut reader, _writer) =
        site.open(&site.coordinator, &ReadLog { follow: true, ..log(&guid) }).unwrap();
    let (first, _) = site.lines(&mut reader, |lines| has(lines, "bad") && has(lines, "line 5"));
    let wanted = ["line 1", "line 2", "line 3", "line 4", "line 5"];
    let out = first.iter().filter(|line| line.stream == LogStream::Out).cloned();
    assert_eq!(texts(&out.collect::<Vec<_>>()), wanted);
    assert!(first.iter().any(|line| line.stream == LogStream::Err && line.message == b"bad"));
    // What is there ends when it is not followed.
    let (mut once, _writer) = site.open(&site.coordinator, &log(&guid)).unwrap();
    let (lines, why) = site.lines(&mut once, |_| false);
    assert_eq!((lines.len(), why.as_str()), (first.len(), "that is all so far"));
    let tail = ReadLog { tail: Some(2), ..log(&guid) };
    let (mut once, _writer) = site.open(&site.coordinator, &tail).unwrap();
    assert_eq!(site.lines(&mut once, |_| false).0, first[first.len() - 2..]);
    let since = ReadLog { since: first[2].at, ..log(&guid) };
    let (mut once, _writer) = site.open(&site.coordinator, &since).unwrap();
    assert_eq!(site.lines(&mut once, |_| false).0[..], first[2..]);
    // The one who follows hears what comes, and of the end.
    let (mut shell, _typed) =
        site.open(&site.coordinator, &terminal(&guid, "touch /tmp/go")).unwrap();
    assert_eq!(site.exit(&mut shell), 0);
    let (late, _) = site.lines(&mut reader, |lines| has(lines, "late"));
    assert_eq!(texts(&late), ["late"]);
    site.cell.executor().delete(guid).unwrap();
    assert_eq!(site.lines(&mut reader, |_| false).1, "the container is gone");
}

#[test]
fn a_terminal_is_typed_into_resized_signalled_and_ends_with_its_status() {
    let Some(site) = Site::new("a_terminal_is_typed_into_resized_signalled_and_ends") else {
        return;
    };
    let guid = site.running("shell", "sleep 1000");
    let interactive = OpenTerminal { args: vec!["-i".to_owned()], ..terminal(&guid, "") };
    let (mut reader, mut writer) = site.open(&site.coordinator, &interactive).unwrap();
    site.shows(&mut reader, "> ");
    site.send(&mut writer, &Frame::Input(b"stty size; id -un\n".to_vec()));
    let shown = site.shows(&mut reader, "vcap\r\n");
    assert!(shown.contains("24 80\r\n"), "{shown:?}");
    site.send(&mut writer, &Frame::Resize(TerminalSize { rows: 50, columns: 132 }));
    site.send(&mut writer, &Frame::Input(b"stty size\n".to_vec()));
    site.shows(&mut reader, "50 132\r\n");
    // Much, both ways.
    site.send(&mut writer, &Frame::Input(b"stty -echo raw; echo rea''dy; wc -c\n".to_vec()));
    site.shows(&mut reader, "ready");
    let frames = 40;
    for _ in 0..frames {
        site.send(&mut writer, &Frame::Input(vec![b'x'; 10_000]));
    }
    // `wc` ends by a signal that it does not handle, and the shell says so: all was taken by then.
    site.send(&mut writer, &Frame::Signal(9));
    assert_eq!(site.exit(&mut reader), 128 + 9);
    let (mut reader, _writer) = site.open(&site.coordinator, &terminal(&guid, "exit 7")).unwrap();
    assert_eq!(site.exit(&mut reader), 7);
}

#[test]
fn a_terminal_that_is_not_read_waits_and_one_that_is_left_is_hung_up_on() {
    let Some(site) = Site::new("a_terminal_that_is_not_read_waits_and_one_that_is_left") else {
        return;
    };
    let guid = site.running("yes", "sleep 1000");
    let (mut reader, mut writer) =
        site.open(&site.coordinator, &terminal(&guid, "exec yes")).unwrap();
    site.shows(&mut reader, "y\r\ny\r\n");
    // Nobody reads; who types is heard all the same. What is on its way is a few windows.
    let before = resident_kib();
    for _ in 0..20 {
        let (mut other, _writer) = site.open(&site.coordinator, &terminal(&guid, "true")).unwrap();
        assert_eq!(site.exit(&mut other), 0);
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more while nobody read");
    site.send(&mut writer, &Frame::Input(b"\x03".to_vec()));
    assert_eq!(site.exit(&mut reader), 128 + 2);
    let script = "trap 'echo hung up >&2; touch /tmp/hup; exit' HUP; echo begun; sleep 1000 & wait";
    let (mut reader, writer) = site.open(&site.coordinator, &terminal(&guid, script)).unwrap();
    site.shows(&mut reader, "begun");
    drop((reader, writer));
    let look = terminal(&guid, "until [ -e /tmp/hup ]; do sleep 0.02; done");
    let (mut reader, _writer) = site.open(&site.coordinator, &look).unwrap();
    assert_eq!(site.exit(&mut reader), 0);
}

#[test]
fn only_coordinators_ask_and_only_for_what_is_here() {
    let Some(site) = Site::new("only_coordinators_ask_and_only_for_what_is_here") else { return };
    let guid = site.running("mine", "sleep 1000");
    let refusal = |asked: Result<_, AskError>| match asked.err().unwrap() {
        AskError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    };
    // Cells have links to each other: they are in the same mesh.
    let asked = site.open(&site.other, &log(&guid));
    assert!(matches!(refusal(asked), RpcRefusal::NotAllowed(_)));
    let asked = site.open(&site.other, &terminal(&guid, "true"));
    assert!(matches!(refusal(asked), RpcRefusal::NotAllowed(_)));
    for (name, reason) in [("nobody", "there is no container"), ("../../etc", "no name of")] {
        let request = ReadLog { container: name.to_owned(), ..log(&guid) };
        let asked = refusal(site.open(&site.coordinator, &request)).to_string();
        assert!(asked.contains(reason), "{asked}");
    }
    let nameless = OpenTerminal { path: String::new(), ..terminal(&guid, "") };
    assert!(matches!(refusal(site.open(&site.coordinator, &nameless)), RpcRefusal::Malformed(_)));
    let stranger = OpenTerminal { user: "nosuchuser".to_owned(), ..terminal(&guid, "true") };
    let asked = refusal(site.open(&site.coordinator, &stranger)).to_string();
    assert!(asked.contains("nosuchuser"), "{asked}");
    // A container that goes takes its terminals with it.
    let (mut reader, _writer) =
        site.open(&site.coordinator, &terminal(&guid, "echo begun; sleep 1000")).unwrap();
    site.shows(&mut reader, "begun");
    site.cell.executor().delete(guid).unwrap();
    match site.next(&mut reader) {
        Some(Frame::Exit(_) | Frame::Failed(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// Memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
