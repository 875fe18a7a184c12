//! The reader against logs that the shim's own writer makes.

use std::io::Write as _;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::container::spec::LogLimits;
use crate::container::spec::LogStream as Stream;
use crate::shim::logs::Log;

fn writer(folder: &Path, file_bytes: u64, files: u32) -> Log {
    let limits = LogLimits { file_bytes, files, bytes_per_second: None };
    Log::new(folder, limits, Timestamp::ZERO)
}

fn write(log: &mut Log, number: u64) {
    log.line(Timestamp::from_nanos(number + 1), Stream::Out, "APP", number.to_string().as_bytes());
}

fn numbers(lines: Vec<StoredLogLine>) -> Vec<u64> {
    let number = |line: StoredLogLine| String::from_utf8(line.text).unwrap().parse().unwrap();
    lines.into_iter().map(number).collect()
}

fn open(folder: &Path) -> LogReader {
    LogReader::open(folder, Position::default()).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8),
    Read,
    /// The reader starts again from where it had noted to be.
    Resume,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0..20_u8).prop_map(Step::Write), Just(Step::Read), Just(Step::Resume)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens, no line comes twice or out of order, none is missing without being told of,
    /// and none that is still there is missing.
    #[test]
    fn lines_come_once_and_in_order(
        steps in prop::collection::vec(step(), 1..60),
        files in 1..4_u32,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut log = writer(folder.path(), 100, files);
        let mut reader = open(folder.path());
        let (mut written, mut gaps, mut seen) = (0, 0, Vec::new());
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Write(count) => for _ in 0..count {
                    write(&mut log, written);
                    written += 1;
                },
                Step::Read => seen.extend(numbers(reader.read_more().unwrap())),
                Step::Resume => {
                    gaps += reader.gaps();
                    let noted = serde_json::to_string(&reader.position()).unwrap();
                    let noted = serde_json::from_str(&noted).unwrap();
                    reader = LogReader::open(folder.path(), noted).unwrap();
                }
            }
        }
        gaps += reader.gaps();
        prop_assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        prop_assert_eq!(seen.last().copied(), u64::checked_sub(written, 1));
        let kept = numbers(open(folder.path()).read_more().unwrap());
        prop_assert!(kept.iter().all(|it| seen.contains(it)), "{kept:?} are there, not {seen:?}");
        let first = seen.first().copied().unwrap_or_default();
        if gaps == 0 {
            prop_assert_eq!(seen, (first..written).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_reader_that_keeps_up_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = writer(folder.path(), 100, 2);
    let mut reader = open(folder.path());
    assert_eq!(reader.read_more().unwrap(), [], "nothing was written");
    let mut seen = Vec::new();
    for number in 0..200 {
        write(&mut log, number);
        if number % 4 == 0 {
            seen.extend(numbers(reader.read_more().unwrap()));
            reader = LogReader::open(folder.path(), reader.position()).unwrap();
        }
    }
    seen.extend(numbers(reader.read_more().unwrap()));
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert_eq!(reader.gaps(), 0);
    assert_eq!(reader.read_more().unwrap(), [], "all was given");
}

#[test]
fn nothing_is_lost_while_the_writer_writes() {
    const LINES: u64 = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let mut log = writer(folder.path(), 2_000, 1_000);
    let mut reader = open(folder.path());
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let writes = scope.spawn(move || (0..LINES).for_each(|number| write(&mut log, number)));
        loop {
            let is_over = writes.is_finished();
            match reader.read_more() {
                Ok(lines) if lines.is_empty() && is_over => break,
                Ok(lines) => seen.extend(numbers(lines)),
                // It turned over at each of our looks.
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ResourceBusy),
            }
        }
    });
    assert_eq!(seen, (0..LINES).collect::<Vec<_>>());
    assert_eq!(reader.gaps(), 0);
}

#[test]
fn a_line_is_given_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = File::create(folder.path().join("0.log")).unwrap();
    let mut reader = open(folder.path());
    for (bytes, texts) in [
        (&b"5 out APP one\n6 er"[..], &[&b"one"[..]][..]),
        (b"r APP t", &[]),
        (b"w o\n7 out APP \xff\xfe\n", &[b"tw o", b"\xff\xfe"]),
        (b"", &[]),
    ] {
        file.write_all(bytes).unwrap();
        let lines = reader.read_more().unwrap();
        assert_eq!(lines.iter().map(|it| it.text.as_slice()).collect::<Vec<_>>(), texts);
        if let Some(two) = lines.iter().find(|it| it.text == b"tw o") {
            assert_eq!((two.at, two.stream), (Timestamp::from_nanos(6), LogStream::Err));
            assert_eq!(two.source, "APP");
        }
    }
}

#[test]
fn more_than_fits_into_a_call_comes_with_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = writer(folder.path(), 8 << 20, 2);
    let text = "x".repeat(60_000);
    for number in 0..50 {
        log.line(Timestamp::from_nanos(number), Stream::Out, "APP", text.as_bytes());
    }
    let mut reader = open(folder.path());
    let mut calls = Vec::new();
    loop {
        let lines = reader.read_more().unwrap();
        if lines.is_empty() {
            break;
        }
        calls.push(lines);
    }
    assert!(calls.len() > 2 && calls.iter().all(|lines| lines.len() <= 17), "bounded");
    let times: Vec<u64> = calls.concat().iter().map(|line| line.at.as_nanos()).collect();
    assert_eq!(times, (0..50).collect::<Vec<_>>());
}

#[test]
fn what_is_no_log_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("secret"), "1 out APP secret\n").unwrap();
    symlink(at("secret"), at("3.log")).unwrap();
    nix::unistd::mkfifo(&at("2.log"), Mode::S_IRWXU).unwrap();
    std::fs::write(at("x.log"), "1 out APP other\n").unwrap();
    let garbage = [
        &b"\n\n \n1\n-1 out APP a\n+1 out APP a\n1 in APP a\n1 out APP\n\xff out APP a\n"[..],
        b"99999999999999999999 out APP a\n",
        &[b'x'; READ_BYTES + 5],
        b"\n8 out APP good\n",
    ];
    std::fs::write(at("1.log"), garbage.concat()).unwrap();
    std::fs::write(at("0.log"), "9 err  better\n").unwrap();
    let mut reader = open(folder.path());
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(reader.read_more().unwrap());
    }
    let shown: Vec<_> = seen.iter().map(|it| (it.source.as_str(), it.text.as_slice())).collect();
    assert_eq!(shown, [("APP", &b"good"[..]), ("", b"better")]);
    assert!(LogReader::open(&at("nowhere"), Position::default()).is_err());
}

#[test]
fn a_position_that_fits_nothing_begins_at_the_oldest_line_and_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = writer(folder.path(), 1_000, 2);
    (0..3).for_each(|number| write(&mut log, number));
    let mut reader = open(folder.path());
    reader.read_more().unwrap();
    let good = reader.position();
    for bad in [
        Position { inode: good.inode + 1, ..good },
        Position { begins: 77, ..good },
        Position { offset: good.offset + 100, ..good },
        Position { offset: good.offset - 1, ..good },
        Position { offset: 0, ..good },
        Position { offset: u64::MAX, ..good },
    ] {
        let mut reader = LogReader::open(folder.path(), bad).unwrap();
        assert_eq!(numbers(reader.read_more().unwrap()), [0, 1, 2], "{bad:?}");
        assert_eq!(reader.gaps(), 1);
    }
}
