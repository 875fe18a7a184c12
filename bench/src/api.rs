//! The HTTP API: the program itself in a process of its own, callers here. Over TLS unless it says
//! otherwise, each caller with a connection that it keeps.
//!
//! Callers and coordinator share this machine's cores: what is measured is both.

mod client;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use volvox_bench::figures::{Figures, percentile};
use volvox_bench::fleet;

use self::client::Client;

/// The callers that the BBS of Diego was measured with.
const CALLERS: usize = 16;
/// How long each throughput is measured.
const MEASURE: Duration = Duration::from_secs(4);
/// Instances for each process in a list.
const EACH: u32 = 10;
/// What Diego's own clients say that they speak.
const PROTOBUF: &str = "application/x-protobuf";
const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 200;
const HALF_OPEN: usize = 10_000;
/// Entries of the lists that are compared in both forms.
const ENTRIES: usize = 50_000;

pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let scratch = Path::new("target/bench-scratch");
    std::fs::create_dir_all(scratch)?;
    let folder = tempfile::tempdir_in(std::fs::canonicalize(scratch)?)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 20_000, 20_000)
        .or_else(|_| raise())?;
    calls(figures, &folder.path().join("calls"))?;
    for (instances, rounds) in [(1_000, 20), (10_000, 10), (50_000, 5)] {
        lists(figures, &folder.path().join(instances.to_string()), instances, rounds)?;
    }
    both_forms(figures, &folder.path().join("forms"))?;
    events(figures, &folder.path().join("events"))?;
    memory(figures, &folder.path().join("memory"))
}

/// Only the lists in both forms.
pub(crate) fn run_forms(figures: &mut Figures) -> anyhow::Result<()> {
    let scratch = Path::new("target/bench-scratch");
    std::fs::create_dir_all(scratch)?;
    let folder = tempfile::tempdir_in(std::fs::canonicalize(scratch)?)?;
    both_forms(figures, folder.path())
}

/// As many descriptors as we may have.
fn raise() -> nix::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// The coordinator, in a process of its own.
struct Coordinator {
    child: Child,
    address: String,
    token: String,
    data: PathBuf,
    tls: bool,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Coordinator {
    fn start(folder: &Path, tls: bool) -> anyhow::Result<Coordinator> {
        let program = std::env::current_exe()?.with_file_name("volvox-coordinator");
        ensure!(program.is_file(), "build it first: cargo build --release -p volvox-coordinator");
        std::fs::create_dir_all(folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let data = folder.join("data");
        // Cells of the records are nobody: they are not to be found missing while we measure.
        let text = format!(
            "data_dir = {data:?}\nname = \"bench\"\napi.listen = [\"{address}\"]\n\
             mesh.listen = \"127.0.0.1:0\"\napi.tls.on_loopback = {tls}\n\
             api.limits.requests_per_second = 0\ncells.settle_s = 100000\nlog.level = \"warn\"\n"
        );
        std::fs::write(folder.join("coordinator.toml"), text)?;
        let child = Command::new(program)
            .args(["run", "--config"])
            .arg(folder.join("coordinator.toml"))
            .stdin(Stdio::null())
            .spawn()
            .context("start the coordinator")?;
        let mut coordinator = Coordinator { child, address, token: String::new(), data, tls };
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&coordinator.address).is_err() {
            ensure!(Instant::now() < until, "the coordinator does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let token = coordinator.data.join("admin.token");
        coordinator.token = std::fs::read_to_string(token)?.trim().to_owned();
        Ok(coordinator)
    }

    fn client(&self) -> anyhow::Result<Client> {
        let tls = self.tls.then(|| client::trust(&self.data.join("api/ca.pem"))).transpose()?;
        Client::connect(&self.address, tls.as_ref(), &self.token)
    }

    /// Has all callers do this for a while: calls a second, and the times in milliseconds.
    fn load(
        &self,
        call: impl Fn(&mut Client, usize) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<(f64, Vec<f64>)> {
        let next = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        let times: Vec<anyhow::Result<Vec<f64>>> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = self.client()?;
                        let mut times = Vec::new();
                        while !over.load(Ordering::Relaxed) {
                            let nth = next.fetch_add(1, Ordering::Relaxed);
                            let begun = Instant::now();
                            call(&mut client, nth)?;
                            times.push(begun.elapsed().as_secs_f64() * 1e3);
                        }
                        Ok(times)
                    })
                })
                .collect();
            std::thread::sleep(MEASURE);
            over.store(true, Ordering::Relaxed);
            let joined = callers.into_iter().map(|caller| {
                caller.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a caller panicked")))
            });
            joined.collect()
        });
        let elapsed = begun.elapsed().as_secs_f64();
        let times: Vec<f64> =
            times.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok((times.len() as f64 / elapsed, times))
    }

    fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).context("VmRSS")?.parse()?;
        Ok(kib / 1_024.0)
    }
}

fn note(figures: &mut Figures, name: &str, (rate, times): &(f64, Vec<f64>)) {
    figures.note(&format!("api.{name}.per_s"), *rate, "1/s");
    for (nth, hundredths) in [("p50", 50), ("p99", 99)] {
        figures.note(&format!("api.{name}.{nth}_ms"), percentile(times, hundredths), "ms");
    }
}

fn calls(figures: &mut Figures, folder: &Path) -> anyhow::Result<()> {
    let coordinator = Coordinator::start(folder, true)?;
    let desired = coordinator.load(|client, nth| {
        let body = json!({"desired_lrp": fleet::desired(nth, 1)?}).to_string();
        client.post("/v1/desired_lrp/desire.r2", body.as_bytes()).map(drop)
    })?;
    note(figures, "desire", &desired);
    figures.note("api.desire.diego_ratio", desired.0 / 584.0, "times Diego's");
    let known = desired.1.len() - CALLERS;
    let get = |client: &mut Client, nth: usize| {
        let body = json!({"process_guid": fleet::process_guid(nth % known)?}).to_string();
        client.post("/v1/desired_lrps/get_by_process_guid.r3", body.as_bytes()).map(drop)
    };
    let got = coordinator.load(get)?;
    note(figures, "get", &got);
    figures.note("api.get.diego_ratio", got.0 / 2_400.0, "times Diego's best");
    let pinged = coordinator.load(|client, _| client.post("/v1/ping", b"{}").map(drop))?;
    note(figures, "ping", &pinged);

    // The same gets while ten thousand connections of strangers say half a word and wait.
    let half_open: Vec<TcpStream> = (0..HALF_OPEN)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(&coordinator.address).ok()?;
            stream.write_all(b"\x16\x03\x01").ok()?;
            Some(stream)
        })
        .collect();
    let got = coordinator.load(get)?;
    figures.note("api.half_open.sockets", half_open.len() as f64, "sockets");
    note(figures, "get_with_half_open", &got);
    Ok(())
}

fn lists(
    figures: &mut Figures,
    folder: &Path,
    instances: usize,
    rounds: usize,
) -> anyhow::Result<()> {
    crate::board::fill(&folder.join("data"), instances / EACH as usize, EACH)?;
    let coordinator = Coordinator::start(folder, true)?;
    let mut client = coordinator.client()?;
    let diego_ms = match instances {
        1_000 => 34.0,
        10_000 => 362.0,
        _ => 1_559.0,
    };
    let actual = timed(rounds, || client.post("/v1/actual_lrps/list", b"{}"))?;
    figures.note(&format!("api.list_actual.{instances}.p50_ms"), actual.0, "ms");
    let ratio = diego_ms / actual.0;
    figures.note(&format!("api.list_actual.{instances}.diego_ratio"), ratio, "times as fast");
    figures.note(&format!("api.list_actual.{instances}.mb"), actual.1 as f64 / 1e6, "MB");
    // The same in the messages of Diego's own clients. The body is a request without a filter.
    let messages = timed(rounds, || client.post_as(PROTOBUF, "/v1/actual_lrps/list", b""))?;
    figures.note(&format!("api.list_actual_protobuf.{instances}.p50_ms"), messages.0, "ms");
    let mb = messages.1 as f64 / 1e6;
    figures.note(&format!("api.list_actual_protobuf.{instances}.mb"), mb, "MB");
    let some = "/v1/actual_lrps/list?fields=process_guid,index,state,cell_id";
    let some = timed(rounds, || client.post(some, b"{}"))?;
    figures.note(&format!("api.list_actual_4_fields.{instances}.p50_ms"), some.0, "ms");
    // One desired LRP for each ten instances: Diego's 5.3 s are for 50,000 of them.
    let desired = timed(rounds, || client.post("/v1/desired_lrps/list.r3", b"{}"))?;
    let each_us = desired.0 * 1e3 / (instances / EACH as usize) as f64;
    figures.note(
        &format!("api.list_desired.{}.p50_ms", instances / EACH as usize),
        desired.0,
        "ms",
    );
    let messages = timed(rounds, || client.post_as(PROTOBUF, "/v1/desired_lrps/list.r3", b""))?;
    let name = format!("api.list_desired_protobuf.{}.p50_ms", instances / EACH as usize);
    figures.note(&name, messages.0, "ms");
    if instances == 50_000 {
        figures.note("api.list_desired.mb", desired.1 as f64 / 1e6, "MB");
        figures.note("api.list_desired_protobuf.mb", messages.1 as f64 / 1e6, "MB");
        figures.note("api.list_desired.each_us", each_us, "us");
        figures.note("api.list_desired.diego_ratio", 5.3e6 / 50_000.0 / each_us, "times as fast");
    }
    Ok(())
}

/// Every list that consumers of 50,000 LRPs and tasks read, in JSON and in the messages of Diego's own
/// clients.
fn both_forms(figures: &mut Figures, folder: &Path) -> anyhow::Result<()> {
    const ROUNDS: usize = 5;
    crate::board::fill(&folder.join("data"), ENTRIES, 1)?;
    let coordinator = Coordinator::start(folder, true)?;
    let mut client = coordinator.client()?;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = coordinator.client()?;
                    loop {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= ENTRIES {
                            return Ok(());
                        }
                        let body = task(nth).to_string();
                        client.post("/v1/tasks/desire.r2", body.as_bytes())?;
                    }
                })
            })
            .collect();
        callers.into_iter().try_for_each(|caller| {
            caller.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a caller panicked")))
        })
    })?;
    for (name, path) in [
        ("actual", "/v1/actual_lrps/list"),
        ("desired", "/v1/desired_lrps/list.r3"),
        ("scheduling", "/v1/desired_lrp_scheduling_infos/list"),
        ("routing", "/v1/desired_lrp_routing_infos/list"),
        ("tasks", "/v1/tasks/list.r3"),
    ] {
        let json = timed(ROUNDS, || client.post(path, b"{}"))?;
        let messages = timed(ROUNDS, || client.post_as(PROTOBUF, path, b""))?;
        for (form, (ms, bytes)) in [("json", json), ("protobuf", messages)] {
            let name = format!("api.forms.{name}.{ENTRIES}.{form}");
            figures.note(&format!("{name}.p50_ms"), ms, "ms");
            figures.note(&format!("{name}.mb"), bytes as f64 / 1e6, "MB");
        }
        let name = format!("api.forms.{name}.{ENTRIES}.protobuf_to_json");
        figures.note(&name, messages.0 / json.0, "ratio");
    }
    Ok(())
}

/// A task as Cloud Controllers desire them, more or less.
fn task(nth: usize) -> serde_json::Value {
    json!({
        "task_guid": format!("task-{nth}"), "domain": "bench",
        "task_definition": {
            "rootfs": "preloaded:cflinuxfs4", "memory_mb": 256, "disk_mb": 512,
            "log_guid": format!("log-{nth}"), "annotation": "{}",
            "env": [{"name": "PATH", "value": "/usr/bin:/bin"}, {"name": "LANG", "value": "en"}],
            "action": {"run": {
                "path": "/tmp/lifecycle/launcher", "args": ["app", "rake db:migrate", "{}"],
                "user": "vcap", "resource_limits": {"nofile": 16384},
            }},
        },
    })
}

/// The median time in milliseconds, and how many bytes came.
fn timed(
    rounds: usize,
    mut call: impl FnMut() -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<(f64, usize)> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..rounds {
        let begun = Instant::now();
        bytes = call()?.len();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok((percentile(&times, 50), bytes))
}

/// A thousand readers of events, without TLS: how long until the last of them has a change.
fn events(figures: &mut Figures, folder: &Path) -> anyhow::Result<()> {
    let coordinator = Coordinator::start(folder, false)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (heard, mut hears) = mpsc::unbounded_channel::<(usize, Instant)>();
    let request: Arc<str> = format!(
        "GET /v1/events/tasks.r1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        coordinator.token
    )
    .into();
    for _ in 0..SUBSCRIBERS {
        let (address, request, heard) =
            (coordinator.address.clone(), request.clone(), heard.clone());
        runtime.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut stream = BufReader::with_capacity(8_192, stream);
            let mut line = Vec::new();
            // Tasks are numbered: each event's data has the number in its guid.
            let mut ready = false;
            loop {
                line.clear();
                if stream.read_until(b'\n', &mut line).await.ok()? == 0 {
                    return None::<()>;
                }
                if !ready && line.starts_with(b": events") {
                    ready = true;
                    heard.send((usize::MAX, Instant::now())).ok()?;
                }
                if line.starts_with(b"event: task_created") {
                    line.clear();
                    stream.read_until(b'\n', &mut line).await.ok()?;
                    let text = String::from_utf8_lossy(&line);
                    let guid = text.split("\"task_guid\":\"bench-").nth(1)?.split('"').next()?;
                    heard.send((guid.parse().ok()?, Instant::now())).ok()?;
                }
            }
        });
    }
    let next = |hears: &mut mpsc::UnboundedReceiver<(usize, Instant)>| {
        let waiting = runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), hears.recv()).await });
        waiting.context("subscribers hear nothing")?.context("no subscriber is left")
    };
    for _ in 0..SUBSCRIBERS {
        ensure!(next(&mut hears)?.0 == usize::MAX, "an event before all were there");
    }
    let mut client = coordinator.client()?;
    let (mut each, mut last) = (Vec::new(), Vec::new());
    for nth in 0..EVENTS {
        let body = json!({
            "task_guid": format!("bench-{nth}"), "domain": "bench",
            "task_definition": {
                "rootfs": "host:", "action": {"run": {"path": "/bin/true", "user": "root"}},
            },
        });
        let begun = Instant::now();
        client.post("/v1/tasks/desire.r2", body.to_string().as_bytes())?;
        let mut latest = begun;
        for _ in 0..SUBSCRIBERS {
            let (number, at) = next(&mut hears)?;
            ensure!(number == nth, "event {number} instead of {nth}");
            each.push(at.duration_since(begun).as_secs_f64() * 1e3);
            latest = latest.max(at);
        }
        last.push(latest.duration_since(begun).as_secs_f64() * 1e3);
    }
    for (name, times) in [("one", &each), ("all", &last)] {
        for (nth, hundredths) in [("p50", 50), ("p99", 99)] {
            let name = format!("api.events.{SUBSCRIBERS}.{name}.{nth}_ms");
            figures.note(&name, percentile(times, hundredths), "ms");
        }
    }
    Ok(())
}

fn memory(figures: &mut Figures, folder: &Path) -> anyhow::Result<()> {
    crate::board::fill(&folder.join("data"), 25_000, EACH)?;
    let coordinator = Coordinator::start(folder, true)?;
    let mut client = coordinator.client()?;
    figures.note("api.rss.250000.mib", coordinator.resident_mib()?, "MiB");
    let listed = client.post("/v1/actual_lrps/list", b"{}")?;
    ensure!(listed.len() > 50_000_000, "the list is short");
    drop(listed);
    figures.note("api.rss.250000.after_list.mib", coordinator.resident_mib()?, "MiB");
    Ok(())
}
