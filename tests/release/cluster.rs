//! Our pages against a real cluster: one `volvox dev` with real containers, in which every block that
//! `places.rs` leaves to it is run, page by page, and which says what routes and metrics there are. Needs
//! root.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use volvox_tests::{site, skip};

use crate::commands::lines;
use crate::markdown::{Page, pages, root};
use crate::reference::{cell, hold};

/// Where our pages say that the coordinator's data and API are.
const DATA: &str = "/var/lib/volvox/coordinator";
const API: &str = "localhost:8889";

/// `until_ctrl_c WORD COMMAND`.
const UNTIL_CTRL_C: &str = include_str!("../../packaging/vm/ctrl-c");

/// A cluster that runs until this is dropped.
struct Cluster {
    process: Child,
    folder: tempfile::TempDir,
    /// Where it is, as it said.
    ready: Value,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let programs = site::programs().unwrap();
        let mut process = Command::new(programs.join("volvox"))
            .args(["dev", "--json", "--cells", "2", "--programs"])
            .arg(&programs)
            .arg("--folder")
            .arg(folder.path().join("cluster"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        let values = lines.map_while(Result::ok).map(|it| serde_json::from_str(&it).unwrap());
        let ready = values.into_iter().find(|it: &Value| it["part"] == "ready");
        let Some(ready) = ready else {
            let mut complaint = String::new();
            process.stderr.as_mut().unwrap().read_to_string(&mut complaint).unwrap();
            panic!("no cluster: {complaint}");
        };
        let cluster = Cluster { process, folder, ready };
        cluster.write_programs(&programs);
        cluster
    }

    fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// The folder of the coordinator's data.
    fn data(&self) -> PathBuf {
        Path::new(self.text("token_file")).parent().unwrap().to_owned()
    }

    /// The agent's and the coordinator's programs as a person would find them on a machine of its own,
    /// where they need not be told which configuration and which folder.
    fn write_programs(&self, programs: &Path) {
        let bin = self.folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let config = self.agent_config();
        let data = self.data();
        let (programs, data) = (programs.display(), data.display());
        let agent = format!("exec {programs}/volvox-agent --config {} \"$@\"\n", config.display());
        let coordinator = format!(
            "case \"$1\" in\n\
             init) set -- \"$@\" --config {}/coordinator.toml;;\n\
             token | join-token | member | cert) set -- \"$@\" --data-dir {data};;\n\
             esac\n\
             exec {programs}/volvox-coordinator \"$@\"\n",
            self.folder.path().join("cluster").display()
        );
        let volvox = format!("exec {programs}/volvox \"$@\"\n");
        for (name, text) in [
            ("volvox", volvox),
            ("volvox-agent", agent),
            ("volvox-coordinator", coordinator),
            ("sudo", "exec \"$@\"\n".to_owned()),
        ] {
            let path = bin.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// The configuration of the first cell.
    fn agent_config(&self) -> PathBuf {
        let mut folders = vec![self.folder.path().join("cluster")];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "toml") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.extend(text.contains("state_dir").then_some(path));
                }
            }
        }
        found.sort();
        found.into_iter().next().expect("a cell has a configuration")
    }

    /// A shell in which the commands of our pages do what they say.
    fn shell(&self, script: &str) -> Command {
        let api = self.text("api").trim_start_matches("http://");
        let script = script.replace(DATA, &self.data().display().to_string()).replace(API, api);
        // Far longer than any page takes: what waits for ever is a fault of the page.
        let mut command = Command::new("timeout");
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.folder.path().join("bin");
        command.args(["--kill-after=5", "240", "bash", "-euo", "pipefail", "-c", &script]);
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("VOLVOX_API", self.text("socket")).env("NO_COLOR", "1");
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn said(&self, script: &str) -> String {
        let output = self.shell(script).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{complaint}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let _sent = kill(pid, Signal::SIGINT);
        let _ended = self.process.wait();
    }
}

/// Runs what a page marks as to be run. What went wrong, if something did.
#[expect(clippy::print_stdout, reason = "which page takes how long is seen with --nocapture")]
fn run(cluster: &Cluster, page: &Page) -> Option<String> {
    let mut script = String::new();
    for block in &page.blocks {
        // The last of these is where it stopped.
        let here = format!("echo '--- line {}' >&2\n", block.line);
        if let Some(word) = block.marked("ctrl-c") {
            for line in lines(&block.text) {
                let quoted = line.replace('\'', r"'\''");
                let _ = writeln!(script, "{here}until_ctrl_c '{word}' '{quoted}'");
            }
        } else if block.kind == "sh" {
            let _ = write!(script, "{here}{}", block.text);
        }
    }
    if script.is_empty() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    let mut shell = cluster.shell(&format!("{UNTIL_CTRL_C}{script}"));
    let output = shell.current_dir(&folder).env("HOME", folder.path()).output().unwrap();
    println!("{}: {:.1} s", page.path, begun.elapsed().as_secs_f32());
    if output.status.success() {
        return None;
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Some(format!("{}: {}\n{err}\n{out}", page.path, output.status))
}

#[test]
fn the_pages_do_in_a_real_cluster_what_they_say() {
    let name = "the_pages_do_in_a_real_cluster_what_they_say";
    if !nix::unistd::geteuid().is_root() {
        skip(name, "containers need root");
        return;
    }
    let cluster = Cluster::start();
    let faults: Vec<String> = pages().iter().filter_map(|page| run(&cluster, page)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    let left = cluster.said("volvox apps --json");
    let left: Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["apps"].as_array().unwrap().len(), 0, "a page left its app: {left}");
    routes(&cluster);
    metrics(&cluster);
}

const TOKEN: &str = "-H \"Authorization: Bearer $(cat /var/lib/volvox/coordinator/admin.token)\"";

fn routes(cluster: &Cluster) {
    let text = cluster.said(&format!("curl -sf {TOKEN} localhost:8889/openapi.json"));
    let document: Value = serde_json::from_str(&text).unwrap();
    hold_document(&document);
    let mut page = "# Routes of the API\nMade from `GET /openapi.json`, which has the bodies too. What they have in \
                    common: [api.md](../api.md).\n\n| route | methods | role | what it does |\n|---|---|---|---|\n"
        .to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap();
        let names: Vec<String> = methods.keys().map(|it| it.to_uppercase()).collect();
        let any = methods.values().next().unwrap();
        let words = any["summary"].as_str().unwrap_or_default();
        let role = any["description"].as_str().and_then(|it| it.strip_prefix("Needs the role "));
        let role = role.map_or("none", |it| it.trim_end_matches('.'));
        let _ = writeln!(page, "| `{path}` | {} | {role} | {} |", names.join(", "), cell(words));
    }
    hold("routes.md", &page);
}

/// The document itself, for who wants to make a client without a coordinator at hand.
fn hold_document(document: &Value) {
    let path = root().join("docs/reference/openapi.json");
    if std::env::var_os("VOLVOX_WRITE").is_some() {
        let text = serde_json::to_string_pretty(document).unwrap();
        std::fs::write(path, text + "\n").unwrap();
        return;
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let found: Value = serde_json::from_str(&found).unwrap_or_default();
    assert!(
        found == *document,
        "docs/reference/openapi.json is out of date: `make reference` writes it anew"
    );
}

/// The names of the labels that a metric's samples have, of all that were seen.
fn seen(text: &str, metric: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let ends = ["", "_total", "_bucket", "_sum", "_count"];
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        if !ends.iter().any(|end| name == format!("{metric}{end}")) {
            continue;
        }
        let inside = rest.rsplit_once('}').map_or("", |it| it.0);
        // No value of ours holds a comma.
        let pairs = inside.split(',').filter_map(|it| it.split_once('='));
        names.extend(pairs.map(|it| it.0).filter(|it| *it != "le").map(str::to_owned));
    }
    names
}

/// Name, kind and meaning of all metrics in a text, in the order of their names.
fn described(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')) {
            found.push((name.to_owned(), String::new(), help.trim_end_matches('.').to_owned()));
        }
    }
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            let it = found.iter_mut().find(|it| it.0 == name).expect("a kind has a meaning");
            kind.clone_into(&mut it.1);
        }
    }
    for (name, kind, _) in &mut found {
        // OpenMetrics names a family of counters without the end that its samples have.
        if kind == "counter" && !name.ends_with("_total") {
            name.push_str("_total");
        }
    }
    found.sort();
    found
}

/// The page is written from what the programs say of themselves; what they serve must be that, with every
/// label seen and no other.
fn metrics(cluster: &Cluster) {
    let coordinator = cluster.said(&format!("curl -sf {TOKEN} localhost:8889/metrics"));
    // Of each kind of work one or more on the first cell, so that their metrics have every label.
    let agent = cluster.said(
        "volvox run seen --rootfs host: --memory 32 --instances 4 --wait -- /bin/sleep 1000 >&2
         for nth in 1 2 3 4; do
             volvox task run seen-$nth --detach --rootfs host: --memory 32 -- /bin/sleep 1000 >&2
         done
         for _ in $(seq 1200); do
             metrics=$(volvox-agent metrics)
             case $metrics in *volvox_container_pids*task_guid*) break;; esac
             sleep 0.05
         done
         echo \"$metrics\"
         volvox stop seen --wait >&2
         for nth in 1 2 3 4; do volvox task cancel seen-$nth >&2; done",
    );
    let mut page = "# Metrics\nHow to scrape them: [monitor](../howto/monitor.md).\n".to_owned();
    let mut faults = Vec::new();
    for (title, text, declared) in [
        (
            "Of the coordinator, at `/metrics` of the API",
            coordinator,
            &volvox_coordinator::api::LABELS[..],
        ),
        (
            "Of an agent, at `127.0.0.1:8892/metrics`",
            agent,
            &volvox_agent::control::metrics::LABELS[..],
        ),
    ] {
        let head = "| metric | kind | labels | what it is |\n|---|---|---|---|";
        let _ = write!(page, "\n## {title}\n\n{head}\n");
        let families = described(&text);
        for (name, _) in declared {
            if !families.iter().any(|it| it.0 == *name) {
                faults.push(format!("{name} has labels, and is not there"));
            }
        }
        for (name, kind, help) in families {
            let labels = declared.iter().find(|it| it.0 == name).map_or(&[][..], |it| it.1);
            let seen = seen(&text, &name);
            if !seen.iter().map(String::as_str).eq(labels.iter().copied()) {
                faults.push(format!("{name}: {labels:?} are declared, {seen:?} were seen"));
            }
            let labels: Vec<String> = labels.iter().map(|it| format!("`{it}`")).collect();
            let (labels, help) = (labels.join(", "), cell(&help));
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {help} |");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    hold("metrics.md", &page);
}

/// What `make demo` shows, with the programs of the tests in place of released ones.
#[test]
fn the_demonstration_comes_to_its_end() {
    if !nix::unistd::geteuid().is_root() {
        skip("the_demonstration_comes_to_its_end", "containers need root");
        return;
    }
    let script = root().join("packaging/demo");
    let mut demo = Command::new("timeout");
    demo.args(["--kill-after=20", "240"]).arg(script).arg(site::programs().unwrap());
    let output = demo.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    for words in ["hello from instance 2", "good morning from instance 4", "nothing is left"] {
        assert!(said.contains(words), "{words:?} is not in: {said}{complaint}");
    }
}
