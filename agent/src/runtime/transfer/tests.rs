//! Transfers between folders and a small server of the test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use volvox_protocol::time::Backoff;

use super::super::files::Ids;
use super::*;
use crate::image::checksum::sha256_hex;
use crate::image::fetch::FetchConfig;
use crate::image::http::HttpConfig;
use crate::image::retry::Retries;
use crate::image::testing::{Tar, archive, gzip};

/// A cell with an empty container, and a folder of files to download.
pub(in crate::runtime) struct Cell {
    home: tempfile::TempDir,
    pub(in crate::runtime) transfers: Transfers,
    files: ContainerFiles,
    ids: Ids,
}

impl Cell {
    pub(in crate::runtime) fn new() -> Cell {
        Cell::with(TransferConfig::default())
    }

    pub(in crate::runtime) fn with(config: TransferConfig) -> Cell {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for folder in ["root/etc", "served", "private"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        let quick = Duration::from_millis(1);
        let fetcher = Fetcher::new(FetchConfig {
            http: HttpConfig { denied: Vec::new(), ..HttpConfig::default() },
            retries: Retries {
                backoff: Backoff { first: quick, longest: quick },
                max_jitter: quick,
                tries: 2,
            },
            file_folders: vec![at("served")],
            ..FetchConfig::default()
        });
        // Root gives files to others; anybody else only to himself.
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let (ids, uid, gid) = if uid == 0 {
            (Ids { first: 100_000, count: 65_536 }, 2_000, 3_000)
        } else {
            (Ids { first: 0, count: u32::MAX }, uid, gid)
        };
        let passwd = format!("root:x:0:0::/root:\nvcap:x:{uid}:{gid}::/home/vcap:\n");
        std::fs::write(at("root/etc/passwd"), passwd).unwrap();
        let cache = Cache::open(&at("cache"), 1 << 20).unwrap();
        let layers = Arc::new(LayerStore::open(&at("layers")).unwrap());
        let transfers = Transfers::new(fetcher.unwrap(), cache, layers, config);
        let files = ContainerFiles::of_folder(&at("root"), ids).unwrap();
        Cell { home, transfers, files, ids }
    }

    pub(in crate::runtime) fn at(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    /// Serves these bytes; the URL.
    pub(in crate::runtime) fn serve(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.at("served").join(name), bytes).unwrap();
        format!("file://{}", self.at("served").join(name).display())
    }

    fn download(&self, change: impl FnOnce(&mut DownloadAction)) -> Outcome {
        let mut action = DownloadAction { to: ".".into(), ..DownloadAction::default() };
        action.user = "vcap".into();
        change(&mut action);
        download(&action, &self.transfers, &self.files, &Cancel::new())
    }

    fn upload(&self, from: &str, to: &str) -> Outcome {
        let (from, to, user) = (from.into(), to.into(), "vcap".into());
        let action = UploadAction { from, to, user, ..UploadAction::default() };
        upload(&action, &self.transfers, &self.files, &Cancel::new())
    }
}

type Outcome = Result<Transferred, TransferFailure>;

/// Answers one request after the other with these heads; gives the requests' heads and bodies.
fn server(heads: &[&'static str]) -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    serve_all(heads.iter().map(|head| (*head, Vec::new())).collect())
}

/// As [`server`], with bodies.
fn serve_all(answers: Vec<(&'static str, Vec<u8>)>) -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/up", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for (head, body) in answers {
            let stream = listener.accept().unwrap().0;
            sender.send(request(&stream)).unwrap();
            let length = body.len();
            let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n");
            let end = "connection: close\r\n\r\n";
            let answer = [head.as_bytes(), end.as_bytes(), &body].concat();
            (&stream).write_all(&answer).unwrap();
        }
    });
    (url, requests)
}

fn request(stream: &TcpStream) -> (String, Vec<u8>) {
    let (mut input, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(input.read_line(&mut head).unwrap(), 0);
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
    input.read_exact(&mut body).unwrap();
    (head, body)
}

#[test]
fn archives_of_each_kind_are_unpacked_for_their_user() {
    let cell = Cell::new();
    let tar = archive(&[Tar::folder("bin/"), Tar::file("bin/app", b"run").mode(0o4755)]);
    let empty_zip = [&b"PK\x05\x06"[..], &[0; 18]].concat();
    for (name, bytes) in [("a.tar", tar.clone()), ("b.bin", gzip(&tar)), ("c", empty_zip)] {
        let (url, to) = (cell.serve(name, &bytes), format!("/app/{name}"));
        let outcome = cell.download(|it| (it.from, it.to) = (url.clone(), to));
        assert_eq!(outcome, Ok(Transferred::Bytes(bytes.len() as u64)), "{name}");
    }
    let user = cell.files.user("vcap").unwrap();
    assert!(user.uid >= cell.ids.first);
    for made in ["root/app", "root/app/b.bin/bin", "root/app/a.tar/bin/app", "root/app/c"] {
        let stat = std::fs::metadata(cell.at(made)).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (user.uid, user.gid), "{made}");
        assert_eq!(stat.mode() & 0o7000, 0, "{made}");
    }
    // Relative to the user's home, and kept by its key from the second time on.
    let url = cell.serve("d", &gzip(&tar));
    let keyed = || cell.download(|it| (it.from, it.cache_key) = (url.clone(), "k".into()));
    assert!(matches!(keyed(), Ok(Transferred::Bytes(_))));
    assert_eq!(keyed(), Ok(Transferred::FromCache));
    assert_eq!(std::fs::read(cell.at("root/home/vcap/bin/app")).unwrap(), b"run");
}

#[test]
fn a_download_by_http_is_kept_as_the_server_says() {
    let cell = Cell::new();
    let tar = archive(&[Tar::file("a", b"x")]);
    let (url, requests) = serve_all(vec![
        ("503 Busy", Vec::new()),
        ("200 OK\r\netag: \"1\"", tar.clone()),
        ("304 Not Modified", Vec::new()),
        ("404 Not Found", Vec::new()),
    ]);
    let keyed = || cell.download(|it| (it.from, it.cache_key) = (url.clone(), "k".into()));
    assert_eq!(keyed(), Ok(Transferred::Bytes(tar.len() as u64)), "at the second try");
    assert_eq!(keyed(), Ok(Transferred::FromCache));
    assert_eq!(keyed(), Err(TransferFailure::Fetch), "it is no longer there");
    let asked: Vec<_> = requests.iter().map(|(head, _)| head.contains("if-none-match")).collect();
    assert_eq!(asked, [false, false, true, true]);
}

#[test]
fn what_cannot_be_fetched_is_said_without_its_details() {
    let cell = Cell::new();
    let tar = archive(&[Tar::file("a", b"x")]);
    let url = cell.serve("a", &tar);
    std::fs::write(cell.at("private/a"), &tar).unwrap();
    let private = format!("file://{}", cell.at("private/a").display());
    symlink(cell.at("private/a"), cell.at("served/link")).unwrap();
    for from in [
        "",
        "ftp://h/a",
        "file:///etc/passwd",
        &private,
        &format!("{url}x"),
        &url.replace("/a", "/link"),
        &url.replace("/a", "/../private/a"),
        "http://127.0.0.1:1/",
    ] {
        assert_eq!(
            cell.download(|it| it.from = from.into()),
            Err(TransferFailure::Fetch),
            "{from}"
        );
    }
    for (algorithm, value) in [
        ("sha256", "00".repeat(32)),
        ("sha256", "0".into()),
        ("sha256", String::new()),
        ("", "00".into()),
        ("crc", "00".into()),
    ] {
        let outcome = cell.download(|it| {
            (it.from, it.checksum_algorithm) = (url.clone(), algorithm.into());
            it.checksum_value = value.clone();
        });
        assert_eq!(outcome, Err(TransferFailure::Fetch), "{algorithm} {value}");
    }
    let good = cell.download(|it| {
        (it.from, it.checksum_algorithm) = (url.clone(), "sha256".into());
        it.checksum_value = sha256_hex(&tar);
    });
    assert!(good.is_ok(), "{good:?}");
}

#[test]
fn what_cannot_be_unpacked_says_why_and_leaves_nothing() {
    let cell = Cell::new();
    let tar = archive(&[Tar::file("a", b"x")]);
    let url = cell.serve("good", &tar);
    let copy = |change: &dyn Fn(&mut DownloadAction)| {
        let outcome = cell.download(|it| {
            it.from = url.clone();
            change(it);
        });
        let Err(TransferFailure::Copy(reason)) = outcome else { panic!("{outcome:?}") };
        let here = cell.home.path().display().to_string();
        assert!(!reason.contains(&here), "the machine's paths are not the consumer's: {reason}");
        reason
    };
    assert!(copy(&|it| it.user = "nobody".into()).contains("no user \"nobody\""));
    assert!(copy(&|it| it.user = String::new()).contains("no user"));
    std::fs::write(cell.at("root/file"), "").unwrap();
    assert!(copy(&|it| it.to = "/file".into()).starts_with("/file: "));
    assert!(copy(&|it| it.to = "/../../etc".into()).starts_with("/../../etc: "));
    let text = cell.serve("text", b"hello");
    assert_eq!(copy(&|it| it.from = text.clone()), "it is no tar, tgz or zip archive");
    let bad = cell.serve("bad", &archive(&[Tar::file("b", b"x"), Tar::file("../c", b"x")]));
    assert!(copy(&|it| it.from = bad.clone()).contains("../c"));
    assert!(!cell.at("root/home/vcap/b").exists() && !cell.at("root/home/c").exists());
    symlink("/etc", cell.at("root/out")).unwrap();
    cell.download(|it| (it.from, it.to) = (url.clone(), "/out".into())).unwrap();
    assert!(cell.at("root/etc/a").is_file() && !Path::new("/etc/a").exists());
}

#[test]
fn the_limits_of_the_cell_hold() {
    let limits = UnpackLimits { total_bytes: 4_096, ..UnpackLimits::default() };
    let cell = Cell::with(TransferConfig { limits, max_upload_bytes: 3, ..Default::default() });
    let url = cell.serve("big", &gzip(&archive(&[Tar::file("a", &[0; 4_096])])));
    let outcome = cell.download(|it| it.from = url);
    let Err(TransferFailure::Copy(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("limit total_bytes: at most 4096"), "{reason}");
    std::fs::write(cell.at("root/big"), "four").unwrap();
    let outcome = cell.upload("/big", "http://127.0.0.1:1/");
    assert_eq!(outcome, Err(TransferFailure::UploadPayload));
}

#[test]
fn a_cancel_ends_what_waits_for_a_slot() {
    let cell = Cell::with(TransferConfig { downloads: 1, uploads: 1, ..Default::default() });
    let url = cell.serve("a", &archive(&[Tar::file("a", b"x")]));
    let cancel = Cancel::new();
    let download_slot = cell.transfers.download_slot(&cancel).unwrap();
    let upload_slot = cell.transfers.uploads.take(&cancel).unwrap();
    std::thread::scope(|scope| {
        let action = DownloadAction { from: url.clone(), ..DownloadAction::default() };
        let waits =
            scope.spawn(|| download(&{ action }, &cell.transfers, &cell.files, &cancel).is_err());
        let to = "http://127.0.0.1:1/".to_owned();
        let action = UploadAction { to, ..UploadAction::default() };
        let sends =
            scope.spawn(|| upload(&{ action }, &cell.transfers, &cell.files, &cancel).is_err());
        cancel.cancel();
        assert!(waits.join().unwrap() && sends.join().unwrap());
    });
    drop((download_slot, upload_slot));
    assert!(cell.download(|it| it.from = url).is_ok(), "the slot came back");
}

#[test]
fn an_upload_is_one_file_with_its_digests() {
    let cell = Cell::new();
    std::fs::create_dir_all(cell.at("root/home/vcap")).unwrap();
    std::fs::write(cell.at("root/home/vcap/out"), "result").unwrap();
    let (url, requests) = server(&["200 OK", "500 Oops", "201 Created", "404 No"]);
    assert_eq!(cell.upload("out", &url), Ok(Transferred::Bytes(6)));
    let (head, body) = requests.recv().unwrap();
    assert!(head.starts_with("post /up ") && head.contains("content-digest: sha-256=:"), "{head}");
    assert_eq!(body, b"result");
    assert_eq!(cell.upload("/home/vcap/out", &url), Ok(Transferred::Bytes(6)), "tried again");
    assert_eq!(cell.upload("out", &url), Err(TransferFailure::UploadPayload));
}

#[test]
fn each_failure_of_an_upload_has_its_name() {
    let cell = Cell::new();
    std::fs::write(cell.at("root/file"), "x").unwrap();
    nix::unistd::mkfifo(&cell.at("root/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/nowhere", cell.at("root/dangling")).unwrap();
    symlink("loop", cell.at("root/loop")).unwrap();
    for url in ["", "::", "no url", "/path", "http://", "ftp://host/x", "file:///tmp/x"] {
        assert_eq!(cell.upload("/file", url), Err(TransferFailure::ParseUrl), "{url:?}");
    }
    let nobody = "http://127.0.0.1:1/";
    for from in ["/none", "/pipe", "/etc", "/dangling"] {
        assert_eq!(cell.upload(from, nobody), Err(TransferFailure::FindFirstItem), "{from}");
    }
    for from in ["/loop", "/../file"] {
        assert_eq!(cell.upload(from, nobody), Err(TransferFailure::EstablishStream), "{from}");
    }
    assert_eq!(cell.upload("/file", nobody), Err(TransferFailure::UploadPayload));
    let (from, to) = ("/file".into(), nobody.into());
    let stranger = UploadAction { from, to, user: "nobody".into(), ..UploadAction::default() };
    let outcome = upload(&stranger, &cell.transfers, &cell.files, &Cancel::new());
    assert_eq!(outcome, Err(TransferFailure::EstablishStream));
}

#[test]
fn a_result_is_a_text_of_bounded_length() {
    let cell = Cell::new();
    let result = |path: &str| result_file(&cell.files, path, 5);
    let write = |name: &str, bytes: &[u8]| std::fs::write(cell.at("root").join(name), bytes);
    write("fits", "fünf".as_bytes()).unwrap();
    write("empty", b"").unwrap();
    write("long", b"123456").unwrap();
    write("bytes", b"\xff").unwrap();
    assert_eq!(result("/fits").unwrap(), "fünf");
    assert_eq!(result("/empty").unwrap(), "");
    assert!(matches!(result("/long"), Err(ResultError::TooLarge { limit: 5 })));
    assert!(matches!(result("/bytes"), Err(ResultError::NotText)));
    assert!(matches!(result("/none"), Err(ResultError::Files(FilesError::Missing { .. }))));
    assert!(matches!(result("/etc"), Err(ResultError::Files(FilesError::NotAFile { .. }))));
    std::fs::remove_file(cell.at("root/etc/passwd")).unwrap();
    assert_eq!(result("fits").unwrap(), "fünf", "root needs no passwd file");
}
