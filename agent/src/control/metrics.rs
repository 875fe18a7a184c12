//! What the agent and its containers use, in Prometheus' words: over HTTP on the machine itself, and on
//! demand through the socket. Sampled when asked, never in between.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{debug, error, info};

use super::{Service, Status};
use crate::container::spec::Hierarchy;
use crate::executor::logic::ContainerView;
use crate::executor::workload::Owner;
use crate::kernel::cgroup::Cgroup;

/// How long somebody who asks may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request that are read.
const REQUEST_BYTES: usize = 4_096;

/// The labels that a container's metrics may have: the last for a task, those in the middle for an
/// instance, and the first alone for one that was started by hand.
const OF_CONTAINERS: &[&str] = &["container", "index", "process_guid", "task_guid"];

/// The labels of the families that have any, in the order of their names. Written down because not
/// every kind of container is there at any time; the tests of the documentation hold it against an
/// agent at work, and `docs/reference/metrics.md` is written from it.
pub const LABELS: [(&str, &[&str]); 5] = [
    ("volvox_agent_containers", &["state"]),
    ("volvox_container_cpu_seconds_total", OF_CONTAINERS),
    ("volvox_container_disk_bytes", OF_CONTAINERS),
    ("volvox_container_memory_bytes", OF_CONTAINERS),
    ("volvox_container_pids", OF_CONTAINERS),
];

/// Serves `GET /metrics`, one request at a time, until the process ends. Without the port the agent
/// goes on: that is said loudly.
pub fn serve(listen: SocketAddr, service: Service) {
    let listener = match TcpListener::bind(listen) {
        Ok(listener) => listener,
        Err(error) => return error!(%listen, %error, "metrics are not served: set metrics_listen"),
    };
    info!(%listen, "metrics are served");
    for stream in listener.incoming() {
        let answered = stream.and_then(|stream| answer(&stream, &service));
        if let Err(error) = answered {
            debug!(%error, "a request for metrics broke off");
        }
    }
}

fn answer(mut stream: &TcpStream, service: &Service) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut head, mut used) = ([0; REQUEST_BYTES], 0);
    while used < head.len() && !head[..used].windows(4).any(|it| it == b"\r\n\r\n") {
        match stream.read(&mut head[used..])? {
            0 => return Ok(()),
            count => used += count,
        }
    }
    let (status, body) = if head.starts_with(b"GET /metrics ") {
        ("200 OK", text(service))
    } else {
        ("404 Not Found", "there is only GET /metrics\n".to_owned())
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes())
}

/// All of it.
pub fn text(service: &Service) -> String {
    let mut text = String::new();
    if let Ok(status) = super::look(service) {
        of_cell(&mut text, &status);
    }
    let containers = service.executor.containers().unwrap_or_default();
    of_containers(&mut text, &service.containers, &containers);
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _infallible = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn gauge(text: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    head(text, name, "gauge", help);
    let _infallible = writeln!(text, "{name} {value}");
}

fn of_cell(text: &mut String, status: &Status) {
    head(text, "volvox_agent_containers", "gauge", "Containers by state.");
    for (state, count) in &status.containers {
        let _infallible = writeln!(text, "volvox_agent_containers{{state=\"{state}\"}} {count}");
    }
    let free = status.remaining;
    let memory = u64::from(free.memory_mb) << 20;
    gauge(text, "volvox_agent_free_memory_bytes", "Memory that no container was promised.", memory);
    let disk = u64::from(free.disk_mb) << 20;
    gauge(text, "volvox_agent_free_disk_bytes", "Disk that no container was promised.", disk);
    gauge(text, "volvox_agent_free_containers", "Containers that may be added.", free.containers);
    if let Some(mesh) = &status.mesh {
        gauge(text, "volvox_agent_mesh_members", "Members that are there.", mesh.present);
        gauge(
            text,
            "volvox_agent_mesh_health",
            "How little the member trusts itself.",
            mesh.health,
        );
        let until = mesh.certificate_until.as_nanos() / 1_000_000_000;
        let name = "volvox_agent_certificate_expiry_timestamp_seconds";
        gauge(text, name, "When the certificate ends.", until);
    }
    if let Some(rep) = &status.rep {
        let there = u8::from(rep.coordinator);
        gauge(text, "volvox_agent_coordinator_reachable", "Whether a coordinator is there.", there);
        let name = "volvox_agent_self_test_failures";
        gauge(text, name, "Self-tests that failed in a row.", rep.self_test_failures);
        let evacuating = u8::from(rep.evacuation.is_some());
        gauge(text, "volvox_agent_evacuating", "Whether the cell hands its work over.", evacuating);
        let name = "volvox_agent_inconceivable_total";
        head(text, name, "counter", "Rows of the tables that should not have been met.");
        let _infallible = writeln!(text, "{name} {}", rep.inconceivable);
    }
}

/// What each container uses.
fn of_containers(text: &mut String, folder: &Path, containers: &[ContainerView]) {
    let Ok(hierarchy) = Hierarchy::detect() else { return };
    let all: Vec<(String, crate::kernel::cgroup::Usage, Option<u64>)> = containers
        .iter()
        .map(|view| {
            let guid = view.container.guid.as_str();
            let usage = Cgroup::new(hierarchy.clone(), guid).usage();
            let disk: PathBuf = folder.join(guid);
            (labels(view), usage, crate::shim::disk_bytes(&disk).ok())
        })
        .collect();
    head(text, "volvox_container_cpu_seconds_total", "counter", "Processor time.");
    for (labels, usage, _) in &all {
        if let Some(nanos) = usage.cpu_nanos {
            let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
            let name = "volvox_container_cpu_seconds_total";
            let _infallible = writeln!(text, "{name}{labels} {seconds}.{rest:09}");
        }
    }
    let mut gauges = |name: &str, help: &str, value: &dyn Fn(usize) -> Option<u64>| {
        head(text, name, "gauge", help);
        for (nth, (labels, _, _)) in all.iter().enumerate() {
            if let Some(value) = value(nth) {
                let _infallible = writeln!(text, "{name}{labels} {value}");
            }
        }
    };
    gauges("volvox_container_memory_bytes", "Memory in use.", &|nth| all[nth].1.memory_bytes);
    gauges("volvox_container_pids", "Processes and threads.", &|nth| all[nth].1.pids);
    gauges("volvox_container_disk_bytes", "What it has written.", &|nth| all[nth].2);
}

/// Names hold letters, digits, `-`, `_` and `.`: nothing needs escaping.
fn labels(view: &ContainerView) -> String {
    let guid = &view.container.guid;
    match &view.owner {
        Owner::Lrp { key, .. } => format!(
            "{{container=\"{guid}\",process_guid=\"{}\",index=\"{}\"}}",
            key.process_guid, key.index
        ),
        Owner::Task { .. } => format!("{{container=\"{guid}\",task_guid=\"{guid}\"}}"),
        Owner::Local(_) => format!("{{container=\"{guid}\"}}"),
    }
}
