//! Dependencies from a folder, and from a server that never answers.

use std::net::TcpListener;
use std::sync::Arc;

use super::*;
use crate::image::testing::{Tar, archive, gzip};
use crate::runtime::transfer::TransferConfig;
use crate::runtime::transfer::tests::Cell;

fn dependency(name: &str, from: &str, to: &str) -> CachedDependency {
    CachedDependency {
        name: name.into(),
        from: from.into(),
        to: to.into(),
        cache_key: format!("key of {from}"),
        log_source: "STG".into(),
        ..CachedDependency::default()
    }
}

/// Fetches, and gives the lines that were told, in the order of their texts.
fn fetch_told(
    cell: &Cell,
    wanted: &[CachedDependency],
    cancel: &Cancel,
) -> (Result<Dependencies, DependencyError>, Vec<DependencyLine>) {
    let lines = Mutex::new(Vec::new());
    let tell = |line| lines.lock().unwrap().push(line);
    let fetched = fetch_all(wanted, &cell.transfers, Ownership::Process, &tell, cancel);
    let mut lines = lines.into_inner().unwrap();
    lines.sort_by(|a, b| a.text.cmp(&b.text));
    (fetched, lines)
}

fn texts(lines: &[DependencyLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn dependencies_are_unpacked_once_and_bound_read_only() {
    let cell = Cell::new();
    let bytes = gzip(&archive(&[Tar::file("lib", b"code")]));
    let (first, second) = (cell.serve("a.tgz", &bytes), cell.serve("b", &bytes));
    let wanted = [
        dependency("one", &first, "/opt/one"),
        dependency("two", &second, "/opt/two/"),
        dependency("", &first, "/opt/silent"),
    ];
    let (fetched, lines) = fetch_told(&cell, &wanted, &Cancel::new());
    let fetched = fetched.unwrap();
    let targets: Vec<_> = fetched.binds.iter().map(|it| it.target.to_str().unwrap()).collect();
    assert_eq!(targets, ["/opt/one", "/opt/two", "/opt/silent"]);
    for bind in &fetched.binds {
        assert_eq!(bind.access, Access::ReadOnly);
        assert_eq!(bind.source, fetched.binds[0].source, "the same bytes, the same folder");
        assert_eq!(std::fs::read(bind.source.join("lib")).unwrap(), b"code");
    }
    assert!(lines.iter().all(|it| it.source == "STG" && it.stream == LogStream::Out));
    let shown = texts(&lines);
    assert_eq!(shown.len(), 4, "nothing is said of what has no name: {shown:?}");
    assert!(shown.contains(&"Downloading one...") && shown.contains(&"Downloading two..."));
    let size = size(bytes.len() as u64);
    assert!(shown.contains(&format!("Downloaded two ({size})").as_str()), "{shown:?}");
    // The second container finds it here.
    let (again, lines) = fetch_told(&cell, &wanted[1..2], &Cancel::new());
    assert_eq!(again.unwrap().binds[0], fetched.binds[1]);
    assert_eq!(texts(&lines), ["Downloaded two", "Downloading two..."]);
    let (none, lines) = fetch_told(&cell, &[], &Cancel::new());
    assert!(none.unwrap().binds.is_empty() && lines.is_empty());
}

#[test]
fn what_is_held_stays_and_what_is_not_goes() {
    let cell = Cell::new();
    let url = |name: &str| cell.serve(name, &archive(&[Tar::file(name, b"x")]));
    let (kept, gone) = (url("kept"), url("gone"));
    let wanted = [dependency("", &kept, "/kept"), dependency("", &gone, "/gone")];
    let layers = Arc::clone(cell.transfers.layers());
    let first = fetch_told(&cell, &wanted, &Cancel::new()).0.unwrap();
    let second = fetch_told(&cell, &wanted[..1], &Cancel::new()).0.unwrap();
    assert_eq!(layers.remove_unused().unwrap(), 0);
    let sources: Vec<_> = first.binds.iter().map(|it| it.source.clone()).collect();
    drop(first);
    assert_eq!(layers.remove_unused().unwrap(), 1);
    assert!(sources[0].is_dir() && !sources[1].exists());
    // As after a restart: by the folder of a bind.
    let hold = layers.hold(&sources[0]).unwrap();
    drop(second);
    assert_eq!(layers.remove_unused().unwrap(), 0);
    assert_eq!(hold.path(), sources[0]);
    drop(hold);
    assert_eq!(layers.remove_unused().unwrap(), 1);
    for none in [sources[0].clone(), cell.at("layers"), cell.at("root"), cell.at("layers/lock")] {
        assert!(layers.hold(&none).is_none(), "{}", none.display());
    }
    // What was removed comes back when it is wanted, from the cache.
    let again = fetch_told(&cell, &wanted, &Cancel::new()).0.unwrap();
    assert!(again.binds.iter().all(|it| it.source.is_dir()));
}

#[test]
fn one_failure_ends_them_all() {
    let cell = Cell::new();
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}/", silent.local_addr().unwrap());
    let good = cell.serve("good", &archive(&[Tar::file("a", b"x")]));
    let text = cell.serve("text", b"no archive");
    for bad in [
        dependency("bad", "ftp://h/x", "/bad"),
        dependency("bad", &text, "/bad"),
        dependency("bad", &good, "relative"),
        CachedDependency { checksum_algorithm: "crc".into(), ..dependency("bad", &good, "/bad") },
    ] {
        let wanted = [dependency("slow", &hanging, "/slow"), bad];
        let (fetched, lines) = fetch_told(&cell, &wanted, &Cancel::new());
        let error = fetched.unwrap_err();
        assert_eq!(error.to_string(), "failed to download cached artifacts");
        let failed = lines.iter().find(|it| it.text == "Downloading bad failed").unwrap();
        assert_eq!(failed.stream, LogStream::Err);
    }
    assert_eq!(cell.transfers.layers().remove_unused().unwrap(), 0, "nothing was unpacked");
}

#[test]
fn more_dependencies_than_slots_are_fetched_and_a_cancel_ends_them() {
    let config = TransferConfig { downloads: 2, ..TransferConfig::default() };
    let cell = Cell::with(config);
    let url = |nth: u8| cell.serve(&nth.to_string(), &archive(&[Tar::file("a", &[nth])]));
    let wanted: Vec<_> = (0..7).map(|nth| dependency("", &url(nth), &format!("/{nth}"))).collect();
    let fetched = fetch_told(&cell, &wanted, &Cancel::new()).0.unwrap();
    for (nth, bind) in (0..).zip(&fetched.binds) {
        assert_eq!(std::fs::read(bind.source.join("a")).unwrap(), [nth]);
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}/", silent.local_addr().unwrap());
    let wanted: Vec<_> =
        (0..4).map(|nth| dependency("", &format!("{hanging}{nth}"), "/x")).collect();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| fetch_told(&cell, &wanted, &cancel).0);
        // Somebody is connected, so they are at it.
        let _connection = silent.accept().unwrap();
        cancel.cancel();
        assert_eq!(fetched.join().unwrap().unwrap_err(), DependencyError::Cancelled);
    });
}

#[test]
fn targets_are_plain_absolute_paths() {
    for (path, plain_path) in [("/a", Some("/a")), ("/a/b/", Some("/a/b")), ("/..a", Some("/..a"))]
    {
        assert_eq!(plain(path).as_deref().map(|it| it.to_str().unwrap()), plain_path, "{path}");
    }
    for path in ["", "/", "//", "a", "./a", "/.", "/..", "/a/../b", "/a//b", "/a/./b", "/a\0"] {
        assert_eq!(plain(path), None, "{path:?}");
    }
}
