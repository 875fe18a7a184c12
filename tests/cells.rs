//! Cells and coordinator over the real mesh: QUIC on loopback, real certificates, the real board and
//! auction; only containers are simulated. Each test has a cluster of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use volvox_coordinator::bbs::command::{CallError, Command};
use volvox_coordinator::cells::CellsSettings;
use volvox_coordinator::cells::orders::MOST_WAITING;
use volvox_coordinator::cells::settings::HoldPolicy;
use volvox_mesh::driver::{Mesh, MeshConfig};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::profile::Profile;
use volvox_mesh::request::{AskError, Router, RpcRefusal};
use volvox_protocol::actual_lrp::{
    InstanceKey, LrpKey, LrpState, NetInfo, Presence, Running, Tags,
};
use volvox_protocol::cell_rpc::{
    CellAnswer, CellReport, CellReportReply, DefinitionKey, FetchDefinitions, OwnRecords,
    RecordState, RetryLater, SyncCell,
};
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::request::{CellOrder, CellRequest, TaskOutcome};
use volvox_protocol::task::TaskState;
use volvox_protocol::validate::Valid;
use volvox_tests::fleet::rep::Deed;
use volvox_tests::fleet::{CellPlan, Cluster, Coordinator, FakeCell, Plan};
use volvox_tests::wait::until;

const ASK: Duration = Duration::from_secs(30);

/// A cluster with a coordinator and cells of these names, all heard.
struct Stage {
    cluster: Cluster,
    coordinator: Coordinator,
    cells: BTreeMap<String, FakeCell>,
}

fn stage(plan: &Plan, cells: impl IntoIterator<Item = CellPlan>) -> Stage {
    let cluster = Cluster::new().unwrap();
    let coordinator = Coordinator::start(&cluster, plan).unwrap();
    let at = coordinator.address();
    let cells: BTreeMap<String, FakeCell> = cells
        .into_iter()
        .map(|plan| (plan.name.clone(), FakeCell::start(&cluster, at, plan).unwrap()))
        .collect();
    let stage = Stage { cluster, coordinator, cells };
    let all = stage.cells.len();
    until(|| stage.heard() == all, || format!("{} of {all} cells are heard", stage.heard()));
    stage
}

fn named(names: &[&str]) -> Vec<CellPlan> {
    names.iter().map(|name| CellPlan::named(name)).collect()
}

impl Stage {
    /// Cells that have said both what they are and how they do.
    fn heard(&self) -> usize {
        self.coordinator.cells().list().iter().filter(|cell| cell.load.is_some()).count()
    }

    fn desire(&self, process: &str, instances: u32) {
        let desired = json!({
            "process_guid": process, "domain": "d", "rootfs": "preloaded:linux",
            "instances": instances, "memory_mb": 64, "disk_mb": 64,
            "metric_tags": {"source_id": {"static": process}},
            "action": {"run": {"path": "/bin/true", "user": "root"}},
            "image_username": "u", "image_password": "hunter2",
        });
        let desired = Valid::new(serde_json::from_value(desired).unwrap()).unwrap();
        self.coordinator.call(Command::DesireLrp(Box::new(desired))).unwrap();
    }

    fn update(&self, process: &str, update: serde_json::Value) {
        let update = Valid::new(serde_json::from_value(update).unwrap()).unwrap();
        let process = ProcessGuid::new(process).unwrap();
        self.coordinator.call(Command::UpdateDesiredLrp(process, Box::new(update))).unwrap();
    }

    fn task(&self, name: &str) {
        let definition = json!({
            "rootfs": "preloaded:linux", "memory_mb": 16, "disk_mb": 16,
            "action": {"run": {"path": "/bin/true", "user": "root"}},
        });
        let definition = Valid::new(serde_json::from_value(definition).unwrap()).unwrap();
        let (guid, domain) = (TaskGuid::new(name).unwrap(), Domain::new("d").unwrap());
        let command = Command::DesireTask(guid, domain, Box::new(definition));
        self.coordinator.call(command).unwrap();
    }

    /// Which instance runs where, by index, of the ordinary records that run.
    fn running(&self, process: &str) -> BTreeMap<u32, (String, String)> {
        let records = self.coordinator.records();
        let process = records.process(&ProcessGuid::new(process).unwrap());
        let slots = process.map_or(&[][..], |it| it.instances());
        let running = slots.iter().filter(|slot| slot.lrp.presence == Presence::Ordinary);
        let running = running.filter_map(|slot| match &slot.lrp.state {
            LrpState::Running(on, _) => {
                let on = (on.cell_id.to_string(), on.instance_guid.to_string());
                Some((slot.lrp.index, on))
            }
            _ => None,
        });
        running.collect()
    }

    /// Where instances run.
    fn cells_of(&self, process: &str) -> BTreeSet<String> {
        self.running(process).into_values().map(|(cell, _)| cell).collect()
    }

    /// Until so many requests of a kind have been answered. They are counted a moment after everybody
    /// can see what they did.
    #[track_caller]
    fn wait_for_answers(&self, kind: &'static str, count: u64) {
        let answered = || self.coordinator.cells().counters().requests[&(kind, "done")];
        until(|| answered() == count, || format!("{} of {count} {kind}", answered()));
    }

    #[track_caller]
    fn wait_for(&self, process: &str, instances: usize) {
        until(
            || self.running(process).len() == instances,
            || {
                format!(
                    "{} of {instances} run: {:?}",
                    self.running(process).len(),
                    self.running(process)
                )
            },
        );
    }

    /// Waits until every cell and the board agree, as their digests say.
    #[track_caller]
    fn wait_until_agreed(&self) {
        let differing = || -> Vec<&String> {
            let records = self.coordinator.records();
            let differs = self
                .cells
                .iter()
                .filter(|(_, cell)| cell.look().digest != records.digest_on(cell.id()).number());
            differs.map(|(name, _)| name).collect()
        };
        until(|| differing().is_empty(), || format!("{:?} differ from the board", differing()));
    }

    fn cell(&self, name: &str) -> &FakeCell {
        &self.cells[name]
    }

    /// A cell asks the coordinator.
    fn ask<R>(&self, cell: &str, request: &R) -> Result<R::Reply, AskError>
    where
        R: volvox_mesh::request::Request + 'static,
        R::Reply: Send + 'static,
    {
        let coordinator = self.coordinator.cells().mesh().me().member;
        let cell = self.cell(cell);
        cell.block_on(cell.mesh().ask(coordinator, request, ASK)).unwrap()
    }

    fn report(&self, cell: &str, request: CellRequest) -> Result<Vec<CellAnswer>, AskError> {
        let report = CellReport { requests: vec![request], fetch: FetchDefinitions::default() };
        self.ask(cell, &report).map(|reply| reply.answers)
    }

    fn syncs(&self, cell: &str) -> usize {
        let orders = self.cell(cell).stats().orders();
        orders.iter().filter(|order| **order == CellOrder::Sync).count()
    }
}

fn key(process: &str, index: u32) -> LrpKey {
    let process_guid = ProcessGuid::new(process).unwrap();
    LrpKey { process_guid, index, domain: Domain::new("d").unwrap(), definition_id: None }
}

fn on(cell: &str, guid: &str) -> InstanceKey {
    InstanceKey {
        instance_guid: InstanceGuid::new(guid).unwrap(),
        cell_id: CellId::new(cell).unwrap(),
    }
}

fn up() -> Arc<Running> {
    Arc::new(Running {
        net_info: NetInfo { address: "192.0.2.9".into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z1".into(),
    })
}

#[test]
fn what_is_desired_is_auctioned_claimed_and_started() {
    let stage = stage(&Plan::default(), named(&["a", "b"]));
    stage.desire("p", 6);
    stage.wait_for("p", 6);
    assert_eq!(stage.cells_of("p").len(), 2, "spread over both cells");
    stage.wait_until_agreed();
    for cell in stage.cells.values() {
        let look = cell.look();
        assert!(look.instances.values().all(|(_, state)| *state == ContainerState::Running));
        assert_eq!(cell.stats().fetched.load(Ordering::Relaxed), 1, "one definition, once");
    }
    stage.wait_for_answers("claim", 6);
    stage.wait_for_answers("start", 6);
    let counters = stage.coordinator.cells().counters();
    assert_eq!((counters.mismatches, counters.refused_impostors), (0, 0));
    until(|| stage.coordinator.cells().is_settled(), || "not settled".to_owned());
    let listed = stage.coordinator.cells().list();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|it| it.load.as_ref().is_some_and(|load| load.last_batch > 1 << 40)));
    // Nothing is left to do after a goodbye, and the board can be opened again.
    let Stage { coordinator, cluster, .. } = stage;
    coordinator.stop().unwrap();
    Coordinator::start(&cluster, &Plan::default()).unwrap();
}

#[test]
fn a_cell_cannot_speak_for_another() {
    let stage = stage(
        &Plan::default(),
        named(&["a"]).into_iter().chain([CellPlan { refuses_work: true, ..CellPlan::named("b") }]),
    );
    stage.desire("p", 1);
    stage.task("t");
    stage.wait_for("p", 1);
    let task = TaskGuid::new("t").unwrap();
    let task_runs = || {
        let records = stage.coordinator.records();
        records.task(&task).is_some_and(|(_, task)| task.state == TaskState::Running)
    };
    until(task_runs, || "the task does not run".to_owned());
    let before = stage.running("p");
    let (cell, guid) = before[&0].clone();
    assert_eq!(cell, "a");
    let (held, of_a) = (on("a", &guid), CellId::new("a").unwrap());
    let requests = [
        CellRequest::ClaimLrp(key("p", 0), held.clone()),
        CellRequest::StartLrp(key("p", 0), held.clone(), up()),
        CellRequest::CrashLrp(key("p", 0), held.clone(), "liar".into()),
        CellRequest::RemoveLrp(key("p", 0), held.clone()),
        CellRequest::EvacuateClaimed(key("p", 0), held.clone()),
        CellRequest::EvacuateRunning(key("p", 0), held.clone(), up()),
        CellRequest::EvacuateCrashed(key("p", 0), held.clone(), "liar".into()),
        CellRequest::EvacuateStopped(key("p", 0), held.clone()),
        CellRequest::RemoveEvacuating(key("p", 0), held),
        CellRequest::StartTask(task.clone(), of_a.clone()),
        CellRequest::CompleteTask(task.clone(), of_a.clone(), TaskOutcome::default()),
        CellRequest::RejectTask(task.clone(), of_a, "liar".into()),
    ];
    let count = requests.len() as u64;
    for request in requests {
        let refused = stage.report("b", request.clone());
        assert!(
            matches!(refused, Err(AskError::Refused(RpcRefusal::NotAllowed(_)))),
            "{request:?}: {refused:?}"
        );
    }
    // One lie among truths: nothing of it is done.
    let own = CellRequest::StartLrp(key("stranger", 0), on("b", "own"), up());
    let lie = CellRequest::RemoveLrp(key("p", 0), on("a", &guid));
    let mixed = CellReport { requests: vec![own, lie], fetch: FetchDefinitions::default() };
    assert!(matches!(
        stage.ask("b", &mixed),
        Err(AskError::Refused(RpcRefusal::NotAllowed(text))) if text.contains("may not speak for a")
    ));
    // In its own name it may ask, but not touch what is not its own.
    let answers = stage.report("b", CellRequest::RemoveLrp(key("p", 0), on("b", &guid))).unwrap();
    assert!(matches!(answers[..], [CellAnswer::Rejected(_)]), "{answers:?}");
    assert_eq!(stage.running("p"), before);
    assert!(stage.running("stranger").is_empty());
    assert!(task_runs());
    assert_eq!(stage.coordinator.cells().counters().refused_impostors, count + 1);

    // Neither is a coordinator a cell.
    let folder = stage.cluster.appoint(MemberKind::Coordinator, "second").unwrap();
    let config = MeshConfig {
        folder,
        listen: ([127, 0, 0, 1], 0).into(),
        advertise: None,
        profile: Profile::lan(),
        seeds: vec![stage.coordinator.address().to_string()],
        enrolment: None,
    };
    let first = stage.coordinator.cells().mesh().me().member;
    let refused = stage
        .coordinator
        .block_on(async {
            let second = Mesh::start(config, Arc::new(Router::new())).await.unwrap();
            let asked = SyncCell { lrps: vec![], tasks: vec![], own: OwnRecords::After(0) };
            loop {
                match second.ask(first, &asked, ASK).await {
                    Err(AskError::NoLink) => tokio::task::yield_now().await,
                    answer => break answer,
                }
            }
        })
        .unwrap();
    assert!(matches!(refused, Err(AskError::Refused(RpcRefusal::NotAllowed(_)))), "{refused:?}");
}

#[test]
fn a_cell_is_told_of_definitions_that_it_has_work_of_and_of_no_other() {
    let stage = stage(
        &Plan::default(),
        named(&["a"]).into_iter().chain([CellPlan { refuses_work: true, ..CellPlan::named("b") }]),
    );
    stage.desire("p", 2);
    stage.task("t");
    stage.wait_for("p", 2);
    stage.wait_until_agreed();
    let definition = DefinitionKey {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: (&ProcessGuid::new("p").unwrap()).into(),
    };
    let asked =
        FetchDefinitions { lrps: vec![definition], tasks: vec![TaskGuid::new("t").unwrap()] };
    until(
        || stage.ask("a", &asked).unwrap().unknown.is_empty(),
        || "the task has not begun".to_owned(),
    );
    let told = stage.ask("a", &asked).unwrap();
    let read = volvox_mesh::request::methods::open(&told.lrps[0].definition).unwrap();
    assert_eq!((&*read.image_password, read.memory_mb), ("hunter2", 64));
    assert!(!format!("{told:?}").contains("hunter2"));
    assert_eq!((told.tasks.len(), told.left.is_empty()), (1, true));
    let told = stage.ask("b", &asked).unwrap();
    assert_eq!((told.lrps.len(), told.tasks.len()), (0, 0));
    assert_eq!(told.unknown, asked);

    // A sync tells of whoever has an index, but of what runs there only its own cell.
    let index = volvox_protocol::cell_rpc::HeldLrp {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: (&ProcessGuid::new("p").unwrap()).into(),
        index: 0,
        instance_guid: InstanceGuid::new("other").unwrap(),
        state: ContainerState::Running,
    };
    let sync = SyncCell { lrps: vec![index], tasks: vec![], own: OwnRecords::After(0) };
    let told = stage.ask("b", &sync).unwrap();
    assert_eq!((told.answered_lrps, told.more, told.lrps.len()), (1, OwnRecords::None, 1));
    assert!(matches!(&told.lrps[0].state, RecordState::Running(on) if on.cell_id.as_str() == "a"));
    assert_eq!(told.lrps[0].reported, None);
    assert_eq!(told.processes.len(), 1);
    let own = SyncCell { lrps: vec![], tasks: vec![], own: OwnRecords::After(0) };
    let told = stage.ask("a", &own).unwrap();
    assert_eq!((told.lrps.len(), told.tasks.len(), told.more), (2, 1, OwnRecords::None));
    assert!(told.lrps.iter().all(|record| record.reported.is_some()));
}

#[test]
fn work_that_a_cell_refuses_goes_to_another() {
    let refusing = CellPlan { refuses_work: true, ..CellPlan::named("a") };
    let stage = stage(&Plan::default(), [refusing, CellPlan::named("b")]);
    stage.desire("p", 5);
    stage.task("t");
    stage.wait_for("p", 5);
    assert_eq!(stage.cells_of("p"), BTreeSet::from(["b".to_owned()]));
    let ran = || stage.cell("b").stats().tasks_run.load(Ordering::Relaxed) == 1;
    until(ran, || "the task does not run".to_owned());
    let refused = || stage.coordinator.cells().counters().work_refused > 0;
    until(refused, || "nothing was refused".to_owned());
    assert!(stage.cell("a").look().instances.is_empty());
}

#[test]
fn what_was_on_a_killed_cell_runs_elsewhere() {
    let mut stage = stage(&Plan::default(), named(&["a", "b", "c"]));
    stage.desire("p", 9);
    stage.wait_for("p", 9);
    assert!(stage.cells_of("p").contains("b"));
    stage.cells.remove("b").unwrap().kill();
    until(
        || stage.running("p").len() == 9 && !stage.cells_of("p").contains("b"),
        || format!("{:?}", stage.running("p")),
    );
    stage.wait_until_agreed();
    assert_eq!(stage.coordinator.cells().counters().holds, 0);
    let records = stage.coordinator.records();
    assert_eq!(records.instance_count(), 9, "nothing is left of the lost ones");
    assert_eq!(stage.coordinator.cells().list().len(), 2);
}

fn holding_plan() -> Plan {
    let hold = HoldPolicy {
        at_least: 1,
        share_percent: 30,
        // Nothing of it ends by itself while a test looks.
        window: Duration::from_secs(600),
        grace: Duration::from_secs(600),
        gather: Duration::from_secs(60),
    };
    let cells = CellsSettings { hold, ..Plan::default().cells };
    Plan { cells, ..Plan::default() }
}

#[test]
fn cells_that_vanish_together_are_held_and_come_back_as_they_were() {
    let stage = stage(&holding_plan(), named(&["a", "b", "c", "d", "e", "f"]));
    stage.desire("p", 12);
    stage.wait_for("p", 12);
    stage.wait_until_agreed();
    let before = stage.running("p");
    let frozen: Vec<_> =
        ["a", "b", "c", "d"].iter().map(|name| stage.cell(name).freeze().unwrap()).collect();
    let cells = stage.coordinator.cells();
    let held = || cells.holding().map_or(0, |holding| holding.cells);
    until(|| held() == 4, || format!("{} cells are held", held()));
    let holding = cells.holding().unwrap();
    assert_eq!(holding.of, 6);
    assert_eq!(holding.until.since(holding.since), Duration::from_secs(600));
    assert_eq!(cells.list().len(), 2);
    assert_eq!(stage.running("p"), before, "the board believes in all of them");
    drop(frozen);
    until(
        || cells.holding().is_none() && stage.heard() == 6,
        || format!("{} cells are held, {} are heard", held(), stage.heard()),
    );
    stage.wait_until_agreed();
    assert_eq!(stage.running("p"), before, "nothing was replaced");
    assert_eq!(cells.counters().holds, 1);
    assert_eq!(stage.coordinator.records().instance_count(), 12);
}

#[test]
fn what_is_held_is_replaced_when_an_operator_says_so() {
    let mut stage = stage(&holding_plan(), named(&["a", "b", "c", "d"]));
    stage.desire("p", 8);
    stage.wait_for("p", 8);
    for name in ["a", "b"] {
        stage.cells.remove(name).unwrap().kill();
    }
    let held = || stage.coordinator.cells().holding().map_or(0, |holding| holding.cells);
    until(|| held() == 2, || format!("{} cells are held", held()));
    assert_eq!(stage.running("p").len(), 8);
    stage.coordinator.cells().release_hold();
    let rest = BTreeSet::from(["c".to_owned(), "d".to_owned()]);
    until(
        || stage.running("p").len() == 8 && stage.cells_of("p") == rest,
        || format!("{:?}", stage.running("p")),
    );
    assert_eq!(held(), 0);
}

#[test]
fn a_lasting_difference_is_one_sync_and_a_passing_one_is_none() {
    let cells = CellsSettings { mismatch_lasts: Duration::from_secs(2), ..Plan::default().cells };
    let slow = CellPlan { start_takes: Duration::from_millis(400), ..CellPlan::named("a") };
    let stage = stage(&Plan { cells, ..Plan::default() }, [slow]);
    for nth in 0..5 {
        let process = format!("p{nth}");
        stage.desire(&process, 3);
        stage.wait_for(&process, 3);
    }
    stage.wait_until_agreed();
    assert_eq!((stage.syncs("a"), stage.coordinator.cells().counters().mismatches), (0, 0));

    let before = stage.running("p0");
    let lost = InstanceGuid::new(&before[&1].1).unwrap();
    stage.cell("a").tell(Deed::Lose(lost.clone()));
    until(
        || stage.running("p0").get(&1).is_some_and(|(_, guid)| guid.as_str() != lost.as_str()),
        || format!("{:?} was not replaced", stage.running("p0")),
    );
    stage.wait_until_agreed();
    assert_eq!((stage.syncs("a"), stage.coordinator.cells().counters().mismatches), (1, 1));
    let after = stage.running("p0");
    assert_eq!((&after[&0], &after[&2]), (&before[&0], &before[&2]), "the others were left alone");
}

#[test]
fn a_new_coordinator_finds_everything_as_it_was() {
    let Stage { cluster, coordinator, cells } = stage(&Plan::default(), named(&["a", "b", "c"]));
    let first = Stage { cluster, coordinator, cells };
    first.desire("p", 9);
    first.task("t");
    first.wait_for("p", 9);
    let ran = |stage: &Stage| -> u64 {
        stage.cells.values().map(|cell| cell.stats().tasks_run.load(Ordering::Relaxed)).sum()
    };
    until(|| ran(&first) == 1, || "the task does not run".to_owned());
    first.wait_until_agreed();
    let before = first.running("p");
    let syncs = |cells: &BTreeMap<String, FakeCell>| -> Vec<u64> {
        cells.values().map(|cell| cell.stats().syncs.load(Ordering::Relaxed)).collect()
    };
    let synced = syncs(&first.cells);
    let Stage { cluster, coordinator, cells } = first;
    let listen = coordinator.address();
    coordinator.kill();
    let plan = Plan { listen, ..Plan::default() };
    let coordinator = Coordinator::start(&cluster, &plan).unwrap();
    let second = Stage { cluster, coordinator, cells };
    until(|| second.heard() == 3, || format!("{} of 3 cells are heard", second.heard()));
    until(|| second.coordinator.cells().is_settled(), || "not settled".to_owned());
    until(
        || syncs(&second.cells).iter().zip(&synced).all(|(now, before)| now > before),
        || format!("{:?} syncs, before {synced:?}", syncs(&second.cells)),
    );
    second.wait_until_agreed();
    assert_eq!(second.running("p"), before, "nothing lost, nothing moved");
    let containers: usize = second.cells.values().map(|cell| cell.look().instances.len()).sum();
    assert_eq!(containers, 9, "nothing doubled");
    assert_eq!(ran(&second), 1);
    second.desire("q", 3);
    second.wait_for("q", 3);
}

#[test]
fn a_new_coordinator_that_hears_nobody_holds_before_it_replaces() {
    let Stage { cluster, coordinator, cells } = stage(&Plan::default(), named(&["a", "b", "c"]));
    let first = Stage { cluster, coordinator, cells };
    first.desire("p", 6);
    first.wait_for("p", 6);
    let before = first.running("p");
    let Stage { cluster, coordinator, cells } = first;
    cells.into_values().for_each(FakeCell::kill);
    coordinator.kill();
    let coordinator = Coordinator::start(&cluster, &Plan::default()).unwrap();
    let second = Stage { cluster, coordinator, cells: BTreeMap::new() };
    let cells = second.coordinator.cells();
    until(|| cells.holding().is_some(), || "nothing is held".to_owned());
    assert_eq!(cells.holding().map(|it| (it.cells, it.of)), Some((3, 3)));
    assert!(!cells.is_settled());
    assert_eq!(second.running("p"), before);
    cells.release_hold();
    until(|| second.running("p").is_empty(), || "they are still believed to run".to_owned());
    until(|| cells.is_settled(), || "not settled".to_owned());
    // They may still serve: the records are kept beside those of their replacements.
    assert_eq!(second.coordinator.records().instance_count(), 12);
}

#[test]
fn stops_cancels_and_updates_reach_their_cells() {
    let stage = stage(&Plan::default(), named(&["a"]));
    stage.desire("p", 4);
    stage.task("t");
    stage.wait_for("p", 4);
    let cell = stage.cell("a");
    until(|| cell.look().tasks.len() == 1, || "the task did not come".to_owned());
    let fetched = || cell.stats().fetched.load(Ordering::Relaxed);
    assert_eq!(fetched(), 1);
    stage.update("p", json!({"metric_tags": {"source_id": {"static": "p"}, "x": {"static": "y"}}}));
    until(|| fetched() > 1, || "the new tags were not fetched".to_owned());
    stage.update("p", json!({"instances": 1}));
    until(|| cell.look().instances.len() == 1, || format!("{:?}", cell.look().instances));
    stage.wait_for("p", 1);
    stage.coordinator.call(Command::CancelTask(TaskGuid::new("t").unwrap())).unwrap();
    until(|| cell.look().tasks.is_empty(), || "the task was not cancelled".to_owned());
    stage.wait_until_agreed();
    let orders = cell.stats().orders();
    let count = |of: fn(&CellOrder) -> bool| orders.iter().filter(|order| of(order)).count();
    assert_eq!(count(|order| matches!(order, CellOrder::StopInstance(..))), 3);
    assert_eq!(count(|order| matches!(order, CellOrder::CancelTask(_))), 1);
    assert_eq!(count(|order| matches!(order, CellOrder::UpdateInstance(..))), 4);
    // The cell had them before the coordinator heard that it did.
    let counters = || stage.coordinator.cells().counters();
    let answered = || (counters().orders["stop"], counters().orders["cancel"]);
    until(|| answered() == (3, 1), || format!("{:?}", answered()));
    assert_eq!(counters().orders_lost, 0);
}

#[test]
fn a_task_is_started_once() {
    let quick =
        |name: &str| CellPlan { task_takes: Duration::from_millis(50), ..CellPlan::named(name) };
    let stage = stage(&Plan::default(), [quick("a"), quick("b")]);
    let tasks = 30;
    (0..tasks).for_each(|nth| stage.task(&format!("t{nth}")));
    let completed = || {
        let records = stage.coordinator.records();
        records.tasks().filter(|task| task.state == TaskState::Completed && !task.failed).count()
    };
    until(|| completed() == tasks, || format!("{} of {tasks} tasks are completed", completed()));
    let ran: u64 =
        stage.cells.values().map(|cell| cell.stats().tasks_run.load(Ordering::Relaxed)).sum();
    assert_eq!(ran, tasks as u64);
    // Whoever asks a second time shall not run it.
    let (guid, cell) = (TaskGuid::new("twice").unwrap(), CellId::new("a").unwrap());
    let refuse = CellPlan { refuses_work: true, ..CellPlan::named("idle") };
    let idle = self::stage(&Plan::default(), [refuse]);
    idle.task("twice");
    let start = |cell: &CellId| CellRequest::StartTask(guid.clone(), cell.clone());
    let own = CellId::new("idle").unwrap();
    assert_eq!(idle.report("idle", start(&own)).unwrap(), [CellAnswer::ShouldStart(true)]);
    assert_eq!(idle.report("idle", start(&own)).unwrap(), [CellAnswer::ShouldStart(false)]);
    let other = idle.report("idle", start(&cell));
    assert!(matches!(other, Err(AskError::Refused(RpcRefusal::NotAllowed(_)))));
}

#[test]
fn a_busy_board_is_asked_again_later() {
    let plan = Plan::default();
    let stage = stage(&plan, named(&["a"]));
    until(|| stage.coordinator.cells().is_settled(), || "not settled".to_owned());
    let brake = plan.brake.lock().unwrap();
    // The writer stands still after this commit; then its queue is filled.
    let desired = json!({
        "process_guid": "p", "domain": "d", "rootfs": "preloaded:linux", "instances": 2,
        "action": {"run": {"path": "/bin/true", "user": "root"}},
    });
    let desired = Valid::new(serde_json::from_value(desired).unwrap()).unwrap();
    let answer = stage.coordinator.bbs().send(Command::DesireLrp(Box::new(desired))).unwrap();
    let process = ProcessGuid::new("p").unwrap();
    let fill = || loop {
        let filler = Command::UpsertDomain(Domain::new("filler").unwrap(), Duration::ZERO);
        match stage.coordinator.bbs().send(filler) {
            Ok(_) => {}
            Err(error) => return matches!(error, CallError::Busy),
        }
    };
    // The view shows the commit just before the writer stands still: what it has not taken out of its
    // queue by then it does not take.
    let stands = || stage.coordinator.records().process(&process).is_some();
    until(stands, || "the writer has not begun".to_owned());
    assert!(fill());
    let claims = (0..2).map(|index| CellRequest::ClaimLrp(key("p", index), on("a", "i")));
    let report = CellReport { requests: claims.collect(), fetch: FetchDefinitions::default() };
    let CellReportReply { answers, .. } = stage.ask("a", &report).unwrap();
    assert_eq!(answers, [CellAnswer::Later(RetryLater::Busy), CellAnswer::Later(RetryLater::Busy)]);
    drop(brake);
    answer.blocking_recv().unwrap().unwrap();
    stage.wait_for("p", 2);
    assert!(stage.coordinator.cells().counters().requests[&("claim", "later")] >= 2);
}

#[test]
fn orders_for_a_cell_that_stands_still_are_bounded_and_made_good() {
    let stage = stage(&Plan::default(), named(&["a"]));
    stage.desire("p", 40);
    stage.wait_for("p", 40);
    stage.wait_until_agreed();
    let cell = stage.cell("a");
    let synced = cell.stats().syncs.load(Ordering::Relaxed);
    let frozen = cell.freeze().unwrap();
    let mut most = 0;
    for nth in 0..100 {
        let tags = json!({"source_id": {"static": "p"}, "n": {"static": nth.to_string()}});
        stage.update("p", json!({"metric_tags": tags}));
        most = most.max(stage.coordinator.cells().orders_waiting());
    }
    assert!(most <= MOST_WAITING, "{most} orders wait");
    until(
        || stage.coordinator.cells().counters().orders_lost > 1_000,
        || format!("{} lost", stage.coordinator.cells().counters().orders_lost),
    );
    drop(frozen);
    let synced_again = || cell.stats().syncs.load(Ordering::Relaxed) > synced;
    until(synced_again, || "the cell did not sync".to_owned());
    stage.wait_until_agreed();
    stage.wait_for("p", 40);
}

#[test]
fn an_evacuating_cell_hands_its_work_over() {
    let stage = stage(&Plan::default(), named(&["a", "b"]));
    stage.desire("p", 8);
    stage.wait_for("p", 8);
    assert_eq!(stage.cells_of("p").len(), 2);
    let evacuate = |name: &str| {
        let cell = CellId::new(name).unwrap();
        stage.coordinator.block_on(stage.coordinator.cells().evacuate(&cell)).unwrap()
    };
    evacuate("a").unwrap();
    assert!(evacuate("nobody").is_err());
    until(
        || stage.cell("a").look().instances.is_empty(),
        || format!("{:?}", stage.cell("a").look().instances),
    );
    stage.wait_for("p", 8);
    assert_eq!(stage.cells_of("p"), BTreeSet::from(["b".to_owned()]));
    stage.wait_until_agreed();
    let listed = stage.coordinator.cells().list();
    let evacuating = |name: &str| {
        let found = listed.iter().find(|it| it.info.cell_id.as_str() == name).unwrap();
        found.load.as_ref().unwrap().evacuating
    };
    assert!(evacuating("a") && !evacuating("b"));
}

#[test]
fn a_crash_is_reported_and_the_instance_restarted() {
    let stage = stage(&Plan::default(), named(&["a", "b"]));
    stage.desire("p", 2);
    stage.wait_for("p", 2);
    let (cell, guid) = stage.running("p")[&0].clone();
    stage.cell(&cell).tell(Deed::Crash(InstanceGuid::new(&guid).unwrap()));
    until(
        || stage.running("p").get(&0).is_some_and(|(_, now)| *now != guid),
        || format!("{:?}", stage.running("p")),
    );
    stage.wait_until_agreed();
    stage.wait_for_answers("crash", 1);
}
