//! Rolling updates with real containers: nobody who follows the published routes is turned away.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use volvox_host::sync::lock;
use volvox_tests::site::{Caller, Site};

use super::stage::{address, can_run, failing, names, server, shell, site, text};

/// How many were served, by the word that they were answered with.
type Words = std::collections::BTreeMap<String, u64>;

/// A router in small: it knows who may be sent traffic from the board's lists, and sends it.
struct Traffic {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    words: Arc<Mutex<Words>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Traffic {
    /// Begins to send, on two threads, as fast as it is answered.
    fn through(site: &Site, process: &str) -> anyhow::Result<Traffic> {
        let stop = Arc::new(AtomicBool::new(false));
        let (served, failures) =
            (Arc::new(AtomicU64::new(0)), Arc::<Mutex<Vec<String>>>::default());
        let words = Arc::<Mutex<Words>>::default();
        let table = Arc::new(Mutex::new(routes(&site.caller(), process)?));
        let mut threads = Vec::new();
        {
            let (stop, table) = (Arc::clone(&stop), Arc::clone(&table));
            let (caller, process) = (site.caller(), process.to_owned());
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    // A router that cannot reach the board keeps what it has.
                    if let Ok(new) = routes(&caller, &process) {
                        *lock(&table) = new;
                    }
                    volvox_tests::wait::pause(Duration::from_millis(20));
                }
            }));
        }
        for nth in 0..2_usize {
            let client = site.outside.client()?;
            let (stop, table, served) =
                (Arc::clone(&stop), Arc::clone(&table), Arc::clone(&served));
            let (failures, words) = (Arc::clone(&failures), Arc::clone(&words));
            threads.push(std::thread::spawn(move || {
                let mut turn = nth;
                while !stop.load(Ordering::Acquire) {
                    let all = lock(&table).clone();
                    turn += 1;
                    let Some(to) = all.get(turn % all.len().max(1)).copied() else {
                        lock(&failures).push("no route".into());
                        continue;
                    };
                    match client.get(to, Duration::from_secs(5)) {
                        Ok(answer) if answer.status == 200 => {
                            served.fetch_add(1, Ordering::Relaxed);
                            let word = answer.text.split(' ').nth(1).unwrap_or_default().to_owned();
                            let mut words = lock(&words);
                            *words.entry(word).or_default() += 1;
                        }
                        Ok(answer) => lock(&failures).push(format!("{to}: {}", answer.status)),
                        Err(error) => lock(&failures).push(format!("{to}: {error:#}")),
                    }
                }
            }));
        }
        Ok(Traffic { stop, served, failures, words, threads })
    }

    /// Ends it, and gives how many were served, by the word they were served with.
    fn end(mut self) -> anyhow::Result<Words> {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        let failures = lock(&self.failures);
        let served = self.served.load(Ordering::Relaxed);
        ensure!(
            failures.is_empty(),
            "{} of {served} failed: {:?}",
            failures.len(),
            &failures[..failures.len().min(5)]
        );
        ensure!(served > 0, "nobody was served");
        Ok(lock(&self.words).clone())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Where traffic may be sent: one instance for each index, as readers without definitions see them.
fn routes(caller: &Caller, process: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let body = json!({"process_guid": process});
    let answer = caller.call("/v1/actual_lrp_groups/list_by_process_guid", &body)?;
    let groups: Value = serde_json::from_str(&answer.text)?;
    let mut all = Vec::new();
    for group in groups["actual_lrp_groups"].as_array().context("no groups")? {
        let serves = |it: &&Value| it["state"] == "RUNNING" && it["routable"] == true;
        let one = [&group["instance"], &group["evacuating"]].into_iter().find(serves);
        if let Some(lrp) = one {
            all.push(address(lrp)?);
        }
    }
    Ok(all)
}

/// The deployment of a process.
pub(crate) fn deployment(site: &Site, process: &str) -> anyhow::Result<Value> {
    let found =
        site.call("/v1/lrp_deployments/get_by_process_guid", &json!({"process_guid": process}))?;
    Ok(found["deployment"].clone())
}

/// Waits until nothing but this definition is there, so many times, all running.
pub(crate) fn until_rolled(
    site: &Site,
    process: &str,
    definition: &str,
    count: usize,
) -> anyhow::Result<Vec<Value>> {
    site.wait(&format!("{count} instances of {definition} of {process}"), |site| {
        let all = site.lrps(process).ok()?;
        let rolled = all.len() == count
            && all
                .iter()
                .all(|it| text(it, "definition_id") == definition && it["state"] == "RUNNING");
        rolled.then_some(all)
    })
}

/// The parts of a desired LRP that are its definition.
pub(crate) fn definition_of(lrp: &Value) -> Value {
    let mut definition = lrp.clone();
    if let Some(all) = definition.as_object_mut() {
        for name in ["process_guid", "domain", "instances", "routes", "annotation", "metric_tags"] {
            all.remove(name);
        }
    }
    definition
}

/// Goes to a new definition.
pub(crate) fn update(site: &Site, process: &str, id: &str, lrp: &Value) -> anyhow::Result<()> {
    let body = json!({"process_guid": process, "update": {
        "definition_id": id, "definition": definition_of(lrp)}});
    site.call("/v1/lrp_deployment/update", &body).map(drop)
}

/// ... by a policy of its own.
pub(crate) fn update_with(
    site: &Site,
    process: &str,
    id: &str,
    lrp: &Value,
    rollout: Value,
) -> anyhow::Result<()> {
    let body = json!({"process_guid": process, "update": {
        "definition_id": id, "definition": definition_of(lrp), "rollout": rollout}});
    site.call("/v1/lrp_deployment/update", &body).map(drop)
}

#[test]
fn nobody_is_turned_away_during_a_roll_a_rollback_and_a_scaling() -> anyhow::Result<()> {
    if !can_run("e2e::rolling::nobody_is_turned_away_during_a_roll_a_rollback_and_a_scaling") {
        return Ok(());
    }
    let site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 5, "one"))?;
    site.until_running("web", 5)?;
    let traffic = Traffic::through(&site, "web")?;
    update(&site, "web", "v2", &server("web", 5, "two"))?;
    until_rolled(&site, "web", "v2", 5)?;
    let body = json!({"process_guid": "web", "definition_id": "web"});
    site.call("/v1/desired_lrp/rollback", &body)?;
    until_rolled(&site, "web", "web", 5)?;
    site.scale("web", 2)?;
    site.until_running("web", 2)?;
    let words = traffic.end()?;
    ensure!(words.contains_key("one") && words.contains_key("two"), "{words:?}");
    site.check()
}

#[test]
fn a_definition_that_fails_harms_nobody_and_is_cancelled() -> anyhow::Result<()> {
    if !can_run("e2e::rolling::a_definition_that_fails_harms_nobody_and_is_cancelled") {
        return Ok(());
    }
    let site = site(2, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 3, "one"))?;
    let before = site.until_running("web", 3)?;
    let traffic = Traffic::through(&site, "web")?;
    update(&site, "web", "bad", &failing("web", 3))?;
    site.wait("the new one has crashed some times", |site| {
        let all = site.lrps("web").ok()?;
        all.iter()
            .any(|it| text(it, "definition_id") == "bad" && it["crash_count"].as_u64() >= Some(2))
            .then_some(())
    })?;
    // An update through the old route is refused meanwhile; the deployment's supersedes.
    let mut third = definition_of(&server("web", 3, "three"));
    third["definition_id"] = json!("v3");
    let body = json!({"process_guid": "web", "update": {"lrp_definition": third}});
    let refused = site.try_call("/v1/desired_lrp/update", &body)?;
    ensure!(
        refused.status == 409 || refused.text.contains("in progress"),
        "{} {}",
        refused.status,
        refused.text
    );
    site.call("/v1/desired_lrp/cancel_update", &json!({"process_guid": "web"}))?;
    let after = until_rolled(&site, "web", "web", 3)?;
    ensure!(names(&before) == names(&after), "the old ones were never touched");
    let words = traffic.end()?;
    ensure!(words.len() == 1, "{words:?}");
    site.check()
}

#[test]
fn a_roll_goes_on_after_a_restart_of_the_coordinator_and_through_an_evacuation()
-> anyhow::Result<()> {
    if !can_run(
        "e2e::rolling::a_roll_goes_on_after_a_restart_of_the_coordinator_and_through_an_evacuation",
    ) {
        return Ok(());
    }
    let mut site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 6, "one"))?;
    site.until_running("web", 6)?;
    let mut slow = server("web", 6, "two");
    slow["setup"] = shell("sleep 0.3");
    update(&site, "web", "v2", &slow)?;
    site.wait("the roll has begun", |site| {
        let all = site.lrps("web").ok()?;
        all.iter()
            .any(|it| text(it, "definition_id") == "v2" && it["state"] == "RUNNING")
            .then_some(())
    })?;
    site.kill_coordinator()?;
    site.start_coordinator()?;
    // From here on: while there is no board, nobody can tell a router that an instance stops, and what it had
    // asked to stop before it went is heard of when its cell has found the new one.
    for name in site.cell_names() {
        site.until_cell(&name, true)?;
    }
    site.check()?;
    let traffic = Traffic::through(&site, "web")?;
    site.agent("a", &["evacuate"])?;
    until_rolled(&site, "web", "v2", 6)?;
    ensure!(site.until_agent_ended("a")? == 0);
    until_rolled(&site, "web", "v2", 6)?;
    let deployment = deployment(&site, "web")?;
    ensure!(deployment["healthy_definition_id"] == "v2", "{deployment}");
    traffic.end().with_context(|| site.story())?;
    let begun = Instant::now();
    site.check().with_context(|| format!("after {:?}", begun.elapsed()))
}
