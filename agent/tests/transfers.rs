//! Downloads, uploads, results and dependencies with a real container, while it runs. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use volvox_agent::container::spec::{
    Access, Bind, ContainerSpec, Limits, LogLimits, OutputTarget, ProcessSpec,
};
use volvox_agent::container::step::{TransferFailure, Transferred};
use volvox_agent::image::cache::Cache;
use volvox_agent::image::cancel::Cancel;
use volvox_agent::image::extract::Ownership;
use volvox_agent::image::fetch::{FetchConfig, Fetcher};
use volvox_agent::image::http::HttpConfig;
use volvox_agent::image::layers::LayerStore;
use volvox_agent::runtime::dependency::fetch_all;
use volvox_agent::runtime::files::{ContainerFiles, FilesError, Ids};
use volvox_agent::runtime::log_reader::{LogReader, Position};
use volvox_agent::runtime::shim::{Shim, Shims};
use volvox_agent::runtime::transfer::{
    RESULT_BYTES, ResultError, TransferConfig, Transfers, download, result_file, upload,
};
use volvox_agent::shim::wire::LOGS;
use volvox_protocol::action::{DownloadAction, UploadAction};
use volvox_protocol::definition::CachedDependency;

use stage::{can_run, small_root};

const PATIENCE: Duration = Duration::from_secs(60);
const IDS: Ids = Ids { first: 100_000, count: 65_536 };

/// A cell with one container; destroyed at the end, whatever happens.
struct Cell {
    folder: tempfile::TempDir,
    shims: Shims,
    id: String,
    transfers: Transfers,
}

impl Cell {
    fn new() -> Cell {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        small_root(&at("layer"));
        std::fs::create_dir(at("served")).unwrap();
        let config = FetchConfig {
            http: HttpConfig { denied: Vec::new(), ..HttpConfig::default() },
            file_folders: vec![at("served")],
            ..FetchConfig::default()
        };
        let cache = Cache::open(&at("cache"), 1 << 20).unwrap();
        let layers = Arc::new(LayerStore::open(&at("layers")).unwrap());
        let fetcher = Fetcher::new(config).unwrap();
        let transfers = Transfers::new(fetcher, cache, layers, TransferConfig::default());
        let shim = Path::new(env!("CARGO_BIN_EXE_volvox-shim"));
        let shims = Shims::new(&at("containers"), shim);
        let unique = folder.path().file_name().unwrap().to_str().unwrap();
        let id = format!("{}-t", unique.trim_start_matches('.'));
        Cell { folder, shims, id, transfers }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn start(&self, binds: Vec<Bind>) -> Shim {
        let (source, target) = (PathBuf::from("/usr"), PathBuf::from("/usr"));
        let mut all = vec![Bind { source, target, access: Access::ReadOnly }];
        all.extend(binds);
        let spec = ContainerSpec {
            id: self.id.clone(),
            layers: vec![self.at("layer")],
            binds: all,
            first_id: IDS.first,
            ids: IDS.count,
            privileged: false,
            cgroup: volvox_agent::container::spec::Hierarchy::detect().unwrap(),
            limits: Limits::default(),
            log: LogLimits::default(),
        };
        self.shims.create(&spec).unwrap()
    }

    /// Serves what the machine's tar makes of one file with this text.
    fn serve(&self, name: &str, text: &str) -> String {
        std::fs::write(self.at(name), text).unwrap();
        let archive = self.at("served").join(name);
        let (archive_path, folder) =
            (archive.to_str().unwrap(), self.folder.path().to_str().unwrap());
        run("tar", &["-czf", archive_path, "-C", folder, name]);
        format!("file://{}", archive.display())
    }

    /// Runs the container's only script to its end: the lines it printed.
    fn script(&self, shim: &mut Shim, user: &str, script: &str) -> Vec<String> {
        shim.run(ProcessSpec {
            id: 1,
            path: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec!["PATH=/usr/bin:/bin".into()],
            dir: String::new(),
            user: user.into(),
            nofile: None,
            source: "APP".into(),
            terminal: None,
            output: OutputTarget::Log,
        })
        .unwrap();
        shim.wait(1, PATIENCE).unwrap().expect("the script ended");
        let folder = self.shims.folder(&self.id).join(LOGS);
        let lines = LogReader::open(&folder, Position::default()).unwrap().read_more().unwrap();
        lines.into_iter().map(|it| String::from_utf8(it.text).unwrap()).collect()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Ok(shim) = self.shims.attach(&self.id) {
            let _ = shim.destroy();
        }
        let cleared = self.shims.clear(&self.id);
        assert!(cleared.is_ok() || std::thread::panicking(), "{cleared:?}");
        self.shims.close();
    }
}

#[test]
fn files_go_into_a_running_container_and_come_out_of_it() {
    if !can_run("files_go_into_a_running_container_and_come_out_of_it") {
        return;
    }
    let cell = Cell::new();
    let mut shim = cell.start(Vec::new());
    let init = shim.status().unwrap().init;
    let files = ContainerFiles::of_process(init, IDS).unwrap();
    assert_eq!(shim.status().unwrap().init, init);
    let from = cell.serve("droplet", "run me");
    let action =
        DownloadAction { from, to: "app".into(), user: "vcap".into(), ..DownloadAction::default() };
    let cancel = Cancel::new();
    let moved = download(&action, &cell.transfers, &files, &cancel);
    assert!(matches!(moved, Ok(Transferred::Bytes(_))), "{moved:?}");
    let script = "stat -c '%U %n' app app/droplet; cat app/droplet; echo; \
        printf result > /tmp/result; ln -s /proc/1/root/etc/passwd /tmp/magic; \
        ln -s ../../../../../../etc/passwd /tmp/up; mkfifo /tmp/pipe";
    let lines = cell.script(&mut shim, "vcap", script);
    assert_eq!(lines, ["vcap app", "vcap app/droplet", "run me"]);
    let result = |path: &str| result_file(&files, path, RESULT_BYTES);
    assert_eq!(result("/tmp/result").unwrap(), "result");
    assert!(result("/tmp/up").unwrap().contains("vcap"), "the container's own");
    assert!(matches!(result("/tmp/pipe"), Err(ResultError::Files(FilesError::NotAFile { .. }))));
    assert!(result("/tmp/magic").is_err());
    for kernel in ["/proc/kallsyms", "/proc/1/environ", "/sys/kernel/notes"] {
        assert!(result(kernel).is_err(), "{kernel}");
    }
    // What is bound read-only is read-only for downloads too, and so are /proc and /sys.
    for to in ["/usr/lib", "/usr/new", "/proc/new", "/sys/fs/new"] {
        let action = DownloadAction { to: to.into(), ..action.clone() };
        let outcome = download(&action, &cell.transfers, &files, &cancel);
        assert!(matches!(outcome, Err(TransferFailure::Copy(_))), "{to}: {outcome:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"result") {
            let read = stream.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "the request is cut short");
            request.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let from = "/tmp/result".into();
    let action = UploadAction { from, to, user: "vcap".into(), ..UploadAction::default() };
    let moved = upload(&action, &cell.transfers, &files, &cancel);
    assert_eq!(moved, Ok(Transferred::Bytes(6)));
    server.join().unwrap();
    drop(files);
    shim.destroy().unwrap();
}

/// Runs a program of the machine, which must succeed.
fn run(program: &str, args: &[&str]) {
    let status = std::process::Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}

#[test]
fn a_download_that_does_not_fit_is_refused_before_the_disk_is_full() {
    if !can_run("a_download_that_does_not_fit_is_refused_before_the_disk_is_full") {
        return;
    }
    let cell = Cell::new();
    let root = cell.at("small");
    std::fs::create_dir(&root).unwrap();
    let from = cell.serve("big", &"x".repeat(200_000));
    let (to, user) = ("/".into(), "0".into());
    let action = DownloadAction { from, to, user, ..DownloadAction::default() };
    // The mount is in a namespace of the thread's own and goes with it.
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            run("mount", &["--make-rprivate", "/"]);
            run("mount", &["-t", "tmpfs", "-o", "size=64k", "small", root.to_str().unwrap()]);
            let files = ContainerFiles::of_folder(&root, IDS).unwrap();
            let outcome = download(&action, &cell.transfers, &files, &Cancel::new());
            (outcome, std::fs::read_dir(&root).unwrap().count())
        });
        thread.join().unwrap()
    });
    let (Err(TransferFailure::Copy(reason)), 0) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("limit total_bytes: at most 65536"), "{reason}");
}

#[test]
fn a_dependency_is_read_and_not_written_in_a_container() {
    if !can_run("a_dependency_is_read_and_not_written_in_a_container") {
        return;
    }
    let cell = Cell::new();
    let from = cell.serve("library", "shared code");
    let dependency =
        CachedDependency { from, to: "/opt/library".into(), ..CachedDependency::default() };
    let wanted = [dependency];
    let owner = Ownership::Fixed { uid: IDS.first, gid: IDS.first };
    let cancel = Cancel::new();
    let got = fetch_all(&wanted, &cell.transfers, owner, &|_| {}, &cancel).unwrap();
    let mut shim = cell.start(got.binds.clone());
    let script = "cat /opt/library/library; echo; (echo x > /opt/library/library) 2>/dev/null && echo written";
    assert_eq!(cell.script(&mut shim, "root", script), ["shared code"]);
    assert_eq!(cell.transfers.layers().remove_unused().unwrap(), 0, "it is in use");
    shim.destroy().unwrap();
    drop(got);
    assert_eq!(cell.transfers.layers().remove_unused().unwrap(), 1);
}
