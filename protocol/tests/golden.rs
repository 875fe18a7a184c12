//! The bytes of what cells, coordinators and people say to each other, and of the records in these
//! messages and in the board's database: see the crate `golden`. Where two fields of one type have
//! the same form, the samples give them different values, so that it is seen when they change places.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;

use serde::de::DeserializeOwned;
use volvox_golden::{Golden, variants};
use volvox_protocol::action::Action;
use volvox_protocol::actual_lrp::{
    ActualLrp, InstanceKey, InternalRoute, LrpKey, LrpState, NetInfo, PortMapping,
    PreferredAddress, Presence, Running,
};
use volvox_protocol::cell::{CellInfo, CellLoad, CellPresence, CellPresenceJson};
use volvox_protocol::cell_rpc::{
    Carried, CellAnswer, CellOrders, CellOrdersReply, CellReport, CellReportReply, DefinitionKey,
    FetchDefinitions, FetchedDefinitions, FetchedLrp, FetchedTask, HeldLrp, HeldTask, LrpRecord,
    OrderAnswer, OwnRecords, RecordState, RefusedLrps, RefusedTask, RefusedWork, RetryLater,
    SyncCell, SyncedCell, TaskRecord,
};
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::definition::{
    Check, DigestAlgorithm, DynamicValue, LayerType, LrpDefinition, MediaType, MetricTagValue,
    TcpCheck, UpdateStrategy,
};
use volvox_protocol::deployment::{
    Definition, InFlight, LrpDeployment, LrpDeploymentV1, PastDefinition, Rollout,
    RolloutDirection, RolloutPause, RolloutPolicy,
};
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::id::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::modification_tag::{Epoch, ModificationTag};
use volvox_protocol::request::{
    CellOrder, CellRequest, LrpStart, Rejection, Requirements, TaskOutcome, TaskStart, WorkBatch,
};
use volvox_protocol::stream::{
    Frame, LogLine, LogStream, OpenTerminal, Opened, ReadLog, TerminalSize,
};
use volvox_protocol::task::{Task, TaskCallback, TaskState};
use volvox_protocol::time::Timestamp;

fn golden(name: &str) -> Golden {
    Golden::open(env!("CARGO_MANIFEST_DIR"), name)
}

fn json<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn desired() -> DesiredLrp {
    json(include_str!("samples/desired_lrp.json"))
}

fn task() -> Task {
    json(include_str!("samples/task.json"))
}

fn process() -> ProcessGuid {
    ProcessGuid::new("process").unwrap()
}

fn definition_id() -> DefinitionId {
    DefinitionId::new("v1").unwrap()
}

fn domain() -> Domain {
    Domain::new("domain").unwrap()
}

fn cell() -> CellId {
    CellId::new("cell").unwrap()
}

fn task_guid() -> TaskGuid {
    TaskGuid::new("task").unwrap()
}

fn instance_guid() -> InstanceGuid {
    InstanceGuid::new("instance").unwrap()
}

fn key() -> LrpKey {
    let definition_id = Some(definition_id());
    LrpKey { process_guid: process(), index: 3, domain: domain(), definition_id }
}

fn instance() -> InstanceKey {
    InstanceKey { instance_guid: instance_guid(), cell_id: cell() }
}

fn tag() -> ModificationTag {
    ModificationTag { epoch: Epoch::from_random(7), index: 300 }
}

fn running() -> Arc<Running> {
    let port = PortMapping {
        container_port: 8080,
        host_port: 60001,
        container_tls_proxy_port: 61001,
        host_tls_proxy_port: 60002,
    };
    let tags = [("source_id", "app"), ("zone", "z")];
    Arc::new(Running {
        net_info: NetInfo {
            address: "10.0.0.1".into(),
            ports: [port].into(),
            instance_address: "10.255.0.2".into(),
            preferred_address: PreferredAddress::Host,
            instance_ipv6_address: "fd00::2".into(),
        },
        internal_routes: [InternalRoute { hostname: "a.b".into() }].into(),
        metric_tags: tags.map(|(name, value)| (name.into(), value.into())).into_iter().collect(),
        routable: true,
        availability_zone: "z1".into(),
    })
}

fn definition_key() -> DefinitionKey {
    DefinitionKey { process_guid: process(), definition_id: definition_id() }
}

fn fetch() -> FetchDefinitions {
    FetchDefinitions { lrps: vec![definition_key()], tasks: vec![task_guid()] }
}

fn requirements() -> Arc<Requirements> {
    Arc::new(Requirements {
        memory_mb: 64,
        disk_mb: 300,
        max_pids: 7,
        rootfs: "host:".into(),
        placement_tags: vec!["gpu".into()],
        volume_drivers: vec!["nfs".into()],
    })
}

fn work() -> WorkBatch {
    let start = LrpStart {
        process_guid: process(),
        definition_id: definition_id(),
        domain: domain(),
        indices: vec![0, 3, 300],
        requirements: requirements(),
    };
    let task = TaskStart { task_guid: task_guid(), domain: domain(), requirements: requirements() };
    WorkBatch { number: 9, lrps: vec![start], tasks: vec![task] }
}

fn refused() -> RefusedWork {
    RefusedWork {
        lrps: vec![RefusedLrps {
            key: definition_key(),
            indices: vec![1, 2],
            reason: "no memory".into(),
        }],
        tasks: vec![RefusedTask { task_guid: task_guid(), reason: "no disk".into() }],
    }
}

fn lrp_record(state: RecordState, presence: Presence, reported: Option<Arc<Running>>) -> LrpRecord {
    LrpRecord {
        process_guid: process(),
        definition_id: definition_id(),
        index: 3,
        domain: domain(),
        presence,
        state,
        stopping: true,
        reported,
    }
}

/// What a cell asks the coordinator, and what it is answered.
#[test]
fn what_cells_ask_has_the_bytes_that_other_releases_know() {
    let mut golden = golden("cell_requests");
    let outcome =
        TaskOutcome { failed: true, failure_reason: "oom".into(), result: "result".into() };
    golden.postcards(variants!(CellRequest {
        ClaimLrp(LrpKey { definition_id: None, ..key() }, instance()),
        StartLrp(key(), instance(), running()),
        CrashLrp(key(), instance(), "exit 1".into()),
        RemoveLrp(key(), instance()),
        EvacuateClaimed(key(), instance()),
        EvacuateRunning(key(), instance(), running()),
        EvacuateCrashed(key(), instance(), "exit 2".into()),
        EvacuateStopped(key(), instance()),
        RemoveEvacuating(key(), instance()),
        StartTask(task_guid(), cell()),
        CompleteTask(task_guid(), cell(), outcome),
        RejectTask(task_guid(), cell(), "no room".into()),
    }));
    golden.postcards(variants!(CellAnswer {
        Done,
        ShouldStart(true),
        KeepContainer(true),
        Rejected(Rejection::NotFound("a".into())),
        Later(RetryLater::NotSaved),
    }));
    golden.postcards(variants!(RetryLater { Busy, NotSaved }));
    golden.postcards(variants!(Rejection {
        NotFound("a".into()),
        Exists("b".into()),
        Invalid("c".into()),
        CannotClaim("d".into()),
        CannotStart("e".into()),
        CannotCrash("f".into()),
        CannotFail("g".into()),
        CannotRemove("h".into()),
        TaskTransition { from: "i".into(), to: "j".into() },
        RunningOnDifferentCell { recorded: "k".into(), caller: "l".into() },
        UpdateInProgress("m".into()),
        NoUpdateInProgress("n".into()),
    }));
    let claim = CellRequest::ClaimLrp(key(), instance());
    golden.postcard("CellReport", &CellReport { requests: vec![claim], fetch: fetch() });
    let answers = vec![CellAnswer::Done, CellAnswer::ShouldStart(false)];
    golden.postcard("CellReportReply", &CellReportReply { answers, fetched: fetched() });
    golden.postcard("FetchDefinitions", &fetch());
    golden.postcard("FetchedDefinitions", &fetched());
    golden.close();
}

fn fetched() -> FetchedDefinitions {
    let lrp = FetchedLrp {
        key: definition_key(),
        domain: domain(),
        modification_tag: tag(),
        definition: Carried::new(&desired().definition),
        metric_tags: Carried::new(&desired().metric_tags),
        routes: Carried::new(&desired().routes),
    };
    let task = FetchedTask {
        task_guid: task_guid(),
        domain: domain(),
        definition: Carried::new(&*task().definition),
    };
    let left = FetchDefinitions { lrps: Vec::new(), tasks: vec![task_guid()] };
    FetchedDefinitions { lrps: vec![lrp], tasks: vec![task], unknown: fetch(), left }
}

/// What a cell has and the board's records of it, page by page.
#[test]
fn a_sync_has_the_bytes_that_other_releases_know() {
    let mut golden = golden("cell_sync");
    let lrp = HeldLrp {
        process_guid: process(),
        definition_id: definition_id(),
        index: 3,
        instance_guid: instance_guid(),
        state: ContainerState::Running,
    };
    let held = HeldTask { task_guid: task_guid(), state: ContainerState::Created };
    golden.postcards(variants!(OwnRecords { None, After(300) }));
    let own = OwnRecords::After(300);
    golden.postcard("SyncCell", &SyncCell { lrps: vec![lrp], tasks: vec![held], own });
    golden.postcards(variants!(ContainerState {
        Reserved,
        Initializing,
        Created,
        Running,
        Completed,
    }));
    golden.postcards(variants!(RecordState {
        Unclaimed,
        Claimed(instance()),
        Running(instance()),
        Crashed,
    }));
    golden.postcards(variants!(Presence { Ordinary, Evacuating, Suspect }));
    golden.postcards(variants!(TaskState { Pending, Running, Completed, Resolving }));
    let reported = lrp_record(RecordState::Running(instance()), Presence::Suspect, Some(running()));
    let other = lrp_record(RecordState::Unclaimed, Presence::Ordinary, None);
    let state = TaskState::Completed;
    let record =
        TaskRecord { task_guid: task_guid(), domain: domain(), state, cell_id: Some(cell()) };
    let synced = SyncedCell {
        answered_lrps: 1,
        answered_tasks: 2,
        lrps: vec![reported, other],
        tasks: vec![record],
        processes: vec![(process(), tag())],
        more: own,
    };
    golden.postcard("SyncedCell", &synced);
    golden.close();
}

/// What the coordinator orders a cell to do, and what it answers.
#[test]
fn orders_have_the_bytes_that_other_releases_know() {
    let mut golden = golden("cell_orders");
    golden.postcards(variants!(CellOrder {
        Work(work()),
        StopInstance(key(), instance()),
        CancelTask(task_guid()),
        UpdateInstance(key(), instance()),
        Sync,
        Evacuate,
    }));
    golden.postcards(variants!(OrderAnswer {
        Taken,
        Refused(refused()),
        Failed("why".into()),
    }));
    let orders = vec![CellOrder::Sync, CellOrder::Evacuate];
    golden.postcard("CellOrders", &CellOrders { orders });
    let answers = vec![OrderAnswer::Taken, OrderAnswer::Refused(refused())];
    golden.postcard("CellOrdersReply", &CellOrdersReply { answers });
    golden.close();
}

/// What cells say of themselves: in the mesh's records, which look into neither.
#[test]
fn presence_and_load_have_the_bytes_that_other_releases_know() {
    let mut golden = golden("cells");
    let info: CellInfo = json(include_str!("samples/cell_info.json"));
    golden.postcard("CellInfo", &info);
    let load: CellLoad = json(include_str!("samples/cell_load.json"));
    let (evacuating, healthy) = (load.evacuating, load.healthy);
    assert!(healthy && !evacuating, "the two must differ");
    golden.postcard("CellLoad", &load);
    golden.postcards(variants!(CellPresence { Present, Missing }));
    let items = [
        ("claimed", DigestItem::of_container(&instance_guid(), ContainerState::Created)),
        ("running", DigestItem::of_container(&instance_guid(), ContainerState::Running)),
        ("task", DigestItem::of_task_container(&task_guid(), ContainerState::Running)),
    ];
    for (name, item) in items {
        let digest: Digest = [item].into_iter().collect();
        golden.text(&format!("Digest.{name}"), &format!("{:032x}", digest.number()));
    }
    golden.close();
}

fn deployment() -> LrpDeployment {
    let mut deployment = LrpDeployment::promote(desired(), tag());
    let other = LrpDefinition { memory_mb: 1, ..LrpDefinition::default() };
    let past = PastDefinition {
        definition_id: DefinitionId::new("v0").unwrap(),
        definition: Definition::new(&other).packed().clone(),
        retired_at: Timestamp::from_nanos(5),
    };
    deployment.history.push(past, 10);
    let v2 = DefinitionId::new("v2").unwrap();
    deployment.definitions.insert(v2.clone(), Definition::new(&other));
    deployment.healthy_definition_id = Some(v2.clone());
    deployment.rollout = Some(Box::new(RolloutPolicy {
        max_in_flight: 1,
        canary_instances: 2,
        min_healthy_time_ms: 3,
        stuck_after_ms: 4,
        progress_deadline_ms: 5,
        rollback_on_failure: true,
    }));
    deployment.roll = Some(Box::new(Rollout {
        previous_definition_id: v2,
        order: RolloutDirection::Falling,
        border: 2,
        in_flight: vec![InFlight { index: 3, since: Timestamp::from_nanos(4) }],
        stuck: vec![5],
        pause: Some(RolloutPause::Stalled),
        promoted: true,
        began_at: Timestamp::from_nanos(6),
        progressed_at: Timestamp::from_nanos(7),
        reason: "reason".into(),
    }));
    deployment
}

fn actual(state: LrpState, presence: Presence) -> ActualLrp {
    ActualLrp {
        process_guid: process(),
        definition_id: definition_id(),
        index: 3,
        domain: domain(),
        presence,
        state,
        crash_count: 2,
        crash_reason: "exit 1".into(),
        stopping: true,
        since: Timestamp::from_nanos(77),
        modification_tag: tag(),
    }
}

/// What the board keeps. Versions and checksums around it: `coordinator/src/bbs/store/codec.rs`.
#[test]
fn records_have_the_bytes_that_other_releases_know() {
    let mut golden = golden("records");
    golden.postcard("DesiredLrp", &desired());
    golden.postcard("LrpDefinition", &desired().definition);
    golden.postcard("TaskDefinition", &*task().definition);
    golden.postcard("LrpDeployment", &deployment());
    let first = LrpDeployment::promote(desired(), tag());
    golden.postcard("LrpDeployment.desired", &first);
    let old = postcard::to_stdvec(&LrpDeploymentV1::from(first.clone())).unwrap();
    let read: LrpDeploymentV1 = postcard::from_bytes(&old).unwrap();
    assert_eq!(LrpDeployment::from(read), first);
    golden.bytes("LrpDeploymentV1", &old);
    let states = variants!(LrpState {
        Unclaimed { placement_error: "no room".into() },
        Claimed(instance()),
        Running(instance(), running()),
        Crashed,
    });
    for (name, state) in states {
        golden.postcard(&format!("ActualLrp.{name}"), &actual(state, Presence::Suspect));
    }
    golden.postcard("Task", &task());
    golden.postcard("Task.pending", &Task { cell_id: None, state: TaskState::Pending, ..task() });
    let (failed, retryable) = (true, true);
    let failure_reason = "reason".to_owned();
    golden.postcard(
        "RunResult.failed",
        &RunResult { failed, failure_reason, retryable, ..RunResult::default() },
    );
    let stopped = RunResult { stopped: true, retryable, ..RunResult::default() };
    golden.postcard("RunResult.stopped", &stopped);
    golden.close();
}

/// The enums in definitions and records; the samples do not have every variant.
#[test]
fn enums_in_records_have_the_bytes_that_other_releases_know() {
    let mut golden = golden("enums");
    golden.postcards(variants!(Action {
        Download(Box::default()),
        Upload(Box::default()),
        Run(Box::default()),
        Timeout(Box::default()),
        EmitProgress(Box::default()),
        Try(Box::default()),
        Parallel(Box::default()),
        Serial(Box::default()),
        Codependent(Box::default()),
    }));
    golden.postcards(variants!(Check { Tcp(TcpCheck::default()), Http(Default::default()) }));
    golden.postcards(variants!(MetricTagValue {
        Static("text".into()),
        Dynamic(DynamicValue::InstanceGuid),
    }));
    golden.postcards(variants!(DynamicValue { Index, InstanceGuid }));
    golden.postcards(variants!(LayerType { Invalid, Shared, Exclusive }));
    golden.postcards(variants!(MediaType { Invalid, Tgz, Tar, Zip }));
    golden.postcards(variants!(DigestAlgorithm { Invalid, Sha256, Sha512 }));
    golden.postcards(variants!(UpdateStrategy { Rolling, Recreate }));
    golden.postcards(variants!(RolloutDirection { Rising, Falling }));
    golden.postcards(variants!(RolloutPause { Canary, Asked, Stalled }));
    golden.postcards(variants!(PreferredAddress { Unknown, Instance, Host }));
    golden.close();
}

/// Logs and terminals, from a cell to a person.
#[test]
fn streams_have_the_bytes_that_other_releases_know() {
    let mut golden = golden("streams");
    let size = TerminalSize { rows: 24, columns: 300 };
    let since = Timestamp::from_nanos(5);
    let container = || "container".to_owned();
    let read = ReadLog { container: container(), follow: true, tail: Some(7), since };
    golden.postcard("ReadLog", &read);
    golden.postcard(
        "OpenTerminal",
        &OpenTerminal {
            container: container(),
            path: "/bin/sh".into(),
            args: vec!["-l".into()],
            env: vec!["A=b".into()],
            dir: "/home".into(),
            user: "vcap".into(),
            size,
        },
    );
    golden.postcard("Opened", &Opened {});
    golden.postcards(variants!(LogStream { Out, Err }));
    let line = LogLine {
        at: Timestamp::from_nanos(9),
        stream: LogStream::Err,
        source: "APP".into(),
        message: b"line".to_vec(),
    };
    let frames = variants!(Frame {
        StillHere,
        Input(b"in".to_vec()),
        EndInput,
        Resize(size),
        Signal(15),
        Output(b"out".to_vec()),
        ErrorOutput(b"err".to_vec()),
        Lines(vec![line]),
        Exit(-2),
        Failed("why".into()),
        End("over".into()),
        Unknown(99),
    });
    for (name, frame) in frames {
        let bytes = frame.encode();
        assert_eq!(Frame::take(&bytes), Ok(Some((frame, bytes.len()))));
        golden.bytes(name, &bytes);
    }
    golden.close();
}

/// The JSON of what people and consumers read and write. What each body may have is in the OpenAPI
/// document (docs/reference/openapi.json); here are values.
#[test]
fn json_is_what_consumers_know() {
    let mut golden = golden("json");
    golden.json("DesiredLrp", &desired());
    golden.json("LrpDeployment", &deployment());
    let (state, presence) = (LrpState::Running(instance(), running()), Presence::Suspect);
    golden.json("ActualLrp.running", &actual(state, presence));
    let state = LrpState::Unclaimed { placement_error: "no room".into() };
    golden.json("ActualLrp.unclaimed", &actual(state, Presence::Ordinary));
    golden.json("Task", &task());
    let info: CellInfo = json(include_str!("samples/cell_info.json"));
    golden.json("CellPresenceJson", &CellPresenceJson::from(&info));
    golden.json("TaskCallback", &TaskCallback::from(&task()));
    golden.close();
}
