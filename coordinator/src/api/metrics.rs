//! `/metrics`: counts of calls as they come, everything else as it is when somebody looks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use hyper::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use volvox_host::clock::wall;
use volvox_protocol::actual_lrp::Presence;
use volvox_protocol::task::TaskState;

use crate::bbs::store::backup::newest_backup;

use super::Api;
use super::server::class;

/// Upper ends of the classes of times: 0.25 ms to 8 s.
fn buckets() -> impl Iterator<Item = f64> {
    (0..16).map(|power| 0.000_25 * f64::from(1 << power))
}

/// What is counted of calls.
pub(crate) struct Metrics {
    counts: Family<RouteCode, Counter>,
    times: Family<Route, Histogram, fn() -> Histogram>,
    /// The same by route, at hand.
    calls: BTreeMap<&'static str, Calls>,
}

struct Calls {
    by_class: [Counter; 4],
    time: Histogram,
}

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The labels of the families that have any, in the order of their names. Written down because a family
/// that nothing was counted in says none; the tests of the documentation hold it against a coordinator
/// at work, and `docs/reference/metrics.md` is written from it.
pub const LABELS: [(&str, &[&str]); 6] = [
    ("volvox_cell_orders_total", &["kind"]),
    ("volvox_cell_requests_total", &["kind"]),
    ("volvox_http_request_duration_seconds", &["route"]),
    ("volvox_http_requests_total", &["code", "route"]),
    ("volvox_lrp_instances", &["state"]),
    ("volvox_tasks", &["state"]),
];

/// One label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteCode {
    route: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: MetricsText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MetricsText(String);

impl EncodeLabelValue for MetricsText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

impl Metrics {
    pub(crate) fn new(routes: impl Iterator<Item = &'static str>) -> Self {
        let counts = Family::<RouteCode, Counter>::default();
        let times = Family::<Route, Histogram, fn() -> Histogram>::new_with_constructor(|| {
            Histogram::new(buckets())
        });
        let calls = routes.map(|route| {
            let of_class = |code| counts.get_or_create_owned(&RouteCode { route, code });
            let time = times.get_or_create_owned(&Route { route });
            (route, Calls { by_class: CLASSES.map(of_class), time })
        });
        Metrics { calls: calls.collect(), counts, times }
    }

    /// Counts a call.
    pub(crate) fn count(&self, route: &str, status: StatusCode, time: Duration) {
        let Some(calls) = self.calls.get(route) else { return };
        let class = class(status);
        for (name, counter) in CLASSES.iter().zip(&calls.by_class) {
            if *name == class {
                counter.inc();
            }
        }
        calls.time.observe(time.as_secs_f64());
    }
}

/// The text of `/metrics`.
pub(crate) fn text(api: &Api) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("volvox");
    calls(&mut registry, &api.metrics);
    board(&mut registry, api);
    events(&mut registry, api);
    if let Some(cells) = &api.cells {
        super::cells::metrics(&mut registry, cells);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn calls(registry: &mut Registry, metrics: &Metrics) {
    let help = "Calls of the API, by route and status";
    registry.register("http_requests", help, metrics.counts.clone());
    let (help, times) = ("How long calls of the API took", metrics.times.clone());
    registry.register_with_unit("http_request_duration", help, Unit::Seconds, times);
}

fn board(registry: &mut Registry, api: &Api) {
    let records = api.bbs.view().snapshot();
    let instances = Family::<StateLabel, Gauge>::default();
    for state in ["unclaimed", "claimed", "running", "crashed", "evacuating", "suspect"] {
        instances.get_or_create(&StateLabel { state }).set(0);
    }
    let mut desired = 0_i64;
    let mut processes = 0_i64;
    for (_, process) in records.processes() {
        if let Some((_, deployment)) = &process.deployment {
            processes += 1;
            desired += i64::from(deployment.instances);
        }
        for slot in process.instances() {
            let state = match (slot.lrp.presence, slot.lrp.state.name()) {
                (Presence::Evacuating, _) => "evacuating",
                (Presence::Suspect, _) => "suspect",
                (Presence::Ordinary, "UNCLAIMED") => "unclaimed",
                (Presence::Ordinary, "CLAIMED") => "claimed",
                (Presence::Ordinary, "RUNNING") => "running",
                (Presence::Ordinary, _) => "crashed",
            };
            instances.get_or_create(&StateLabel { state }).inc();
        }
    }
    registry.register("lrp_instances", "Instance records, by state", instances);
    gauge(registry, "lrps_desired", "Desired LRPs", processes);
    gauge(registry, "lrp_instances_desired", "Instances that are desired", desired);
    let tasks = Family::<StateLabel, Gauge>::default();
    for state in ["pending", "running", "completed", "resolving"] {
        tasks.get_or_create(&StateLabel { state }).set(0);
    }
    for task in records.tasks() {
        let state = match task.state {
            TaskState::Pending => "pending",
            TaskState::Running => "running",
            TaskState::Completed => "completed",
            TaskState::Resolving => "resolving",
        };
        tasks.get_or_create(&StateLabel { state }).inc();
    }
    registry.register("tasks", "Tasks, by state", tasks);
    let now = wall();
    let fresh = records.domains().filter(|domain| domain.expires_at > now).count();
    gauge(registry, "domains_fresh", "Domains whose desired state is complete", whole(fresh));
    let help = "When the newest backup in the data folder was made; 0: there is none";
    gauge(registry, "board_backup_timestamp_seconds", help, backed_up(&api.data_dir));
}

/// When the newest backup was made, in seconds since 1970.
fn backed_up(data_dir: &Path) -> i64 {
    let newest = newest_backup(data_dir).and_then(|it| it.metadata().ok()?.modified().ok());
    let since = newest.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX))
}

fn events(registry: &mut Registry, api: &Api) {
    let (waiting, turned_out) = api.lobby.count();
    let until = api.tls.as_ref().map_or(0, |tls| tls.shown_until());
    let help = "When the API's certificate ends; 0: it has none";
    let name = "http_certificate_expiry_timestamp_seconds";
    gauge(registry, name, help, i64::try_from(until).unwrap_or(i64::MAX));
    let seated = api.limits.connections.saturating_sub(api.seats.available_permits());
    gauge(registry, "http_connections", "Connections of known callers", whole(seated));
    gauge(registry, "http_strangers", "Connections of unknown callers", whole(waiting));
    let help = "Connections of unknown callers that had to make room";
    counter(registry, "http_strangers_turned_out", help, turned_out);
    let streams = whole(api.hub.subscriptions());
    gauge(registry, "event_streams", "Streams of events that are open", streams);
    counter(registry, "events", "Events told", api.hub.last());
    let callbacks = api.bbs.callback_counts();
    counter(
        registry,
        "task_callbacks",
        "Callbacks of tasks that were delivered",
        callbacks.delivered,
    );
    let help = "Tries to call back that failed";
    counter(registry, "task_callback_failures", help, callbacks.failed);
    let help = "Callbacks under way or waiting";
    gauge(registry, "task_callbacks_pending", help, whole(callbacks.pending));
}

/// Registers a number that goes up and down.
pub(crate) fn gauge(registry: &mut Registry, name: &str, help: &str, value: i64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

/// Registers a number that goes up.
pub(crate) fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

/// Registers numbers that go up, one for each kind.
pub(crate) fn counters(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, u64)>,
) {
    let family = Family::<KindLabel, Counter>::default();
    for (kind, value) in values {
        family.get_or_create(&KindLabel { kind: MetricsText(kind) }).inc_by(value);
    }
    registry.register(name, help, family);
}

pub(crate) fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
