//! What the end-to-end tests share: sites of a usual shape, and applications.

use std::net::SocketAddr;

use anyhow::Context as _;
use serde_json::{Value, json};
use volvox_tests::site::{Settings, Site};

/// Whether containers can be made here. If not, that is said.
pub(crate) fn can_run(name: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        volvox_tests::skip(name, "containers need root");
    }
    root
}

/// Five cells in two zones: a, b, c in z1; d, e in z2.
pub(crate) const CELLS: [(&str, &str); 5] =
    [("a", "z1"), ("b", "z1"), ("c", "z1"), ("d", "z2"), ("e", "z2")];

/// A site with the first so many cells.
pub(crate) fn site(cells: usize, settings: &[(&'static str, &str)]) -> anyhow::Result<Site> {
    site_with(cells, settings, "")
}

/// ... whose cells have more configuration.
pub(crate) fn site_with(
    cells: usize,
    settings: &[(&'static str, &str)],
    more: &str,
) -> anyhow::Result<Site> {
    let settings: Settings =
        settings.iter().map(|(name, lines)| (*name, (*lines).to_owned())).collect();
    let mut site = Site::new(&settings)?;
    for (name, zone) in &CELLS[..cells] {
        site.add_cell(name, zone, more)?;
    }
    Ok(site)
}

/// An application that runs this script.
pub(crate) fn app(process: &str, instances: u32, script: &str) -> Value {
    json!({
        "process_guid": process, "domain": "tests", "instances": instances, "rootfs": "host:",
        "log_guid": "log", "log_source": "APP", "memory_mb": 64, "disk_mb": 64,
        "action": shell(script),
    })
}

/// An action that runs this script.
pub(crate) fn shell(script: &str) -> Value {
    json!({"run": {"path": "/bin/sh", "args": ["-c", script], "user": "root"}})
}

/// One that does nothing, until it is told to stop.
pub(crate) fn idle(process: &str, instances: u32) -> Value {
    app(process, instances, "exec sleep 1000000")
}

/// One that ends at once and is never healthy: without a check it would count as running for a moment.
pub(crate) fn failing(process: &str, instances: u32) -> Value {
    let mut lrp = app(process, instances, "exit 1");
    lrp["monitor"] = shell("exit 1");
    lrp
}

/// One that answers each request with its own name and a word.
pub(crate) fn server(process: &str, instances: u32, word: &str) -> Value {
    let script = format!(
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 64, \
         ReuseAddr => 1) or die; $SIG{{TERM}} = sub {{ exit 0 }}; while (my $c = $s->accept) {{ \
         sysread $c, my $b, 4096; print $c \"HTTP/1.0 200 OK\\r\\n\\r\\n$ENV{{INSTANCE_GUID}} \
         {word}\"; close $c }}"
    );
    let mut lrp = app(process, instances, "");
    lrp["action"] =
        json!({"run": {"path": "/usr/bin/perl", "args": ["-e", script], "user": "root"}});
    lrp["ports"] = json!([8080]);
    lrp["check_definition"] =
        json!({"checks": [{"tcp_check": {"port": 8080, "connect_timeout_ms": 1000}}]});
    lrp
}

/// Where a running instance is reached from other hosts.
pub(crate) fn address(lrp: &Value) -> anyhow::Result<SocketAddr> {
    let host = lrp["address"].as_str().context("no address")?;
    let port = lrp["ports"][0]["host_port"].as_u64().context("no port")?;
    Ok(format!("{host}:{port}").parse()?)
}

/// The cell, or the instance, of a record.
pub(crate) fn text<'a>(lrp: &'a Value, name: &str) -> &'a str {
    lrp[name].as_str().unwrap_or_default()
}

/// How many of these are on each cell.
pub(crate) fn spread(lrps: &[Value]) -> std::collections::BTreeMap<String, usize> {
    let mut count = std::collections::BTreeMap::new();
    for lrp in lrps {
        *count.entry(text(lrp, "cell_id").to_owned()).or_default() += 1;
    }
    count
}

/// The names of instances, sorted.
pub(crate) fn names(lrps: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = lrps.iter().map(|it| text(it, "instance_guid").to_owned()).collect();
    all.sort();
    all
}
