//! Messages survive the wire, keep their limits, and hide what they carry.

use serde::de::DeserializeOwned;

use super::*;
use crate::actual_lrp::{LrpKey, NetInfo, Tags};
use crate::limits::{FETCH_BYTES, RESULT_BYTES};
use crate::modification_tag::Epoch;
use crate::request::{LrpStart, Requirements, TaskOutcome, TaskStart, WorkBatch};
use crate::secret::Secret;
use crate::time::Timestamp;

fn key() -> LrpKey {
    LrpKey {
        process_guid: ProcessGuid::new("p").unwrap(),
        index: 3,
        domain: Domain::new("d").unwrap(),
        definition_id: Some(DefinitionId::new("v1").unwrap()),
    }
}

fn instance(cell: &str) -> InstanceKey {
    InstanceKey {
        instance_guid: InstanceGuid::new("i").unwrap(),
        cell_id: CellId::new(cell).unwrap(),
    }
}

fn task() -> TaskGuid {
    TaskGuid::new("t").unwrap()
}

fn definition() -> DefinitionKey {
    DefinitionKey {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: DefinitionId::new("v1").unwrap(),
    }
}

fn fetch() -> FetchDefinitions {
    FetchDefinitions { lrps: vec![definition()], tasks: vec![task()] }
}

fn running() -> Arc<Running> {
    Arc::new(Running {
        net_info: NetInfo { address: "10.0.0.1".into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z1".into(),
    })
}

fn record(cell: &str) -> ActualLrp {
    ActualLrp {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: DefinitionId::new("v1").unwrap(),
        index: 3,
        domain: Domain::new("d").unwrap(),
        presence: Presence::Ordinary,
        state: LrpState::Running(instance(cell), running()),
        crash_count: 0,
        crash_reason: Box::default(),
        stopping: true,
        since: Timestamp::ZERO,
        modification_tag: ModificationTag::default(),
    }
}

#[track_caller]
fn survives<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(message: &T) {
    let bytes = postcard::to_stdvec(message).unwrap();
    assert_eq!(bytes.len(), size(message));
    assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), *message);
    for cut in 0..bytes.len() {
        // Whatever it is taken for, it is taken without a panic.
        let _ = postcard::from_bytes::<T>(&bytes[..cut]);
    }
}

fn fetched() -> FetchedDefinitions {
    let definition_of_lrp = LrpDefinition { memory_mb: 64, ..LrpDefinition::default() };
    FetchedDefinitions {
        lrps: vec![FetchedLrp {
            key: definition(),
            domain: Domain::new("d").unwrap(),
            modification_tag: ModificationTag::new(Epoch::from_random(9)),
            definition: Carried::new(&definition_of_lrp),
            metric_tags: Carried::new(&MetricTags::default()),
            routes: Carried::new(&Routes::default()),
        }],
        tasks: vec![FetchedTask {
            task_guid: task(),
            domain: Domain::new("d").unwrap(),
            definition: Carried::new(&TaskDefinition::default()),
        }],
        unknown: fetch(),
        left: FetchDefinitions::default(),
    }
}

#[test]
fn every_message_survives_the_wire() {
    let requests = vec![
        CellRequest::ClaimLrp(key(), instance("c")),
        CellRequest::StartLrp(key(), instance("c"), running()),
        CellRequest::StartTask(task(), CellId::new("c").unwrap()),
    ];
    survives(&CellReport { requests, fetch: fetch() });
    let answers = vec![
        CellAnswer::Done,
        CellAnswer::ShouldStart(true),
        CellAnswer::KeepContainer(false),
        CellAnswer::Rejected(Rejection::CannotClaim("RUNNING".into())),
        CellAnswer::Later(RetryLater::Busy),
        CellAnswer::Later(RetryLater::NotSaved),
    ];
    survives(&CellReportReply { answers, fetched: fetched() });
    let lrp = HeldLrp {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: DefinitionId::new("v1").unwrap(),
        index: 3,
        instance_guid: InstanceGuid::new("i").unwrap(),
        state: ContainerState::Running,
    };
    let held = HeldTask { task_guid: task(), state: ContainerState::Created };
    survives(&SyncCell { lrps: vec![lrp], tasks: vec![held], own: OwnRecords::After(7) });
    let tag = ModificationTag::new(Epoch::from_random(9));
    survives(&SyncedCell {
        answered_lrps: 1,
        answered_tasks: 1,
        lrps: vec![LrpRecord::for_cell(&record("c"), &CellId::new("c").unwrap())],
        tasks: vec![TaskRecord {
            task_guid: task(),
            domain: Domain::new("d").unwrap(),
            state: TaskState::Running,
            cell_id: None,
        }],
        processes: vec![(ProcessGuid::new("p").unwrap(), tag)],
        more: OwnRecords::None,
    });
    let start = LrpStart {
        process_guid: ProcessGuid::new("p").unwrap(),
        definition_id: DefinitionId::new("v1").unwrap(),
        domain: Domain::new("d").unwrap(),
        indices: vec![1, 2],
        requirements: Arc::new(Requirements::default()),
    };
    let task_start = TaskStart {
        task_guid: task(),
        domain: Domain::new("d").unwrap(),
        requirements: Arc::new(Requirements::default()),
    };
    let work = WorkBatch { number: 1 << 50, lrps: vec![start], tasks: vec![task_start] };
    survives(&CellOrders {
        orders: vec![
            CellOrder::Work(work),
            CellOrder::StopInstance(key(), instance("c")),
            CellOrder::CancelTask(task()),
            CellOrder::UpdateInstance(key(), instance("c")),
            CellOrder::Sync,
            CellOrder::Evacuate,
        ],
    });
    let refused = RefusedWork {
        lrps: vec![RefusedLrps { key: definition(), indices: vec![2], reason: "full".into() }],
        tasks: vec![RefusedTask { task_guid: task(), reason: "full".into() }],
    };
    let answers =
        vec![OrderAnswer::Taken, OrderAnswer::Refused(refused), OrderAnswer::Failed("no".into())];
    survives(&CellOrdersReply { answers });
}

#[test]
fn old_orders_keep_their_numbers() {
    let number = |order: &CellOrder| postcard::to_stdvec(order).unwrap()[0];
    assert_eq!(number(&CellOrder::CancelTask(task())), 2);
    assert_eq!((number(&CellOrder::Sync), number(&CellOrder::Evacuate)), (4, 5));
}

#[test]
fn only_its_own_cell_is_told_what_was_reported() {
    let own = LrpRecord::for_cell(&record("c"), &CellId::new("c").unwrap());
    assert_eq!(own.reported, Some(running()));
    assert!(own.stopping);
    let other = LrpRecord::for_cell(&record("c"), &CellId::new("other").unwrap());
    assert_eq!(other.reported, None);
    assert_eq!(other.state, RecordState::Running(instance("c")));
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let just = FetchDefinitions { lrps: vec![], tasks: vec![task(); FETCH_ITEMS] };
    let bytes = postcard::to_stdvec(&just).unwrap();
    assert!(postcard::from_bytes::<FetchDefinitions>(&bytes).is_ok());
    let more = FetchDefinitions { lrps: vec![], tasks: vec![task(); FETCH_ITEMS + 1] };
    let bytes = postcard::to_stdvec(&more).unwrap();
    assert!(postcard::from_bytes::<FetchDefinitions>(&bytes).is_err());
    // A list that claims four thousand million entries and has none.
    assert!(postcard::from_bytes::<FetchDefinitions>(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
}

#[test]
fn a_report_takes_what_fits_and_leaves_the_rest_in_order() {
    let request = |nth: usize| {
        let outcome = TaskOutcome { result: "x".repeat(RESULT_BYTES), ..TaskOutcome::default() };
        let guid = TaskGuid::new(&format!("t{nth}")).unwrap();
        CellRequest::CompleteTask(guid, CellId::new("c").unwrap(), outcome)
    };
    let mut queue: VecDeque<CellRequest> = (0..50).map(request).collect();
    let first = CellReport::take(&mut queue);
    assert!(size(&first) <= REPORT_BYTES + 16, "{} bytes", size(&first));
    assert!(first.requests.len() > 15 && first.requests.len() + queue.len() == 50);
    assert_eq!(queue.front(), Some(&request(first.requests.len())));
    let mut small: VecDeque<CellRequest> = (0..REPORT_ITEMS + 1)
        .map(|_| CellRequest::StartTask(task(), CellId::new("c").unwrap()))
        .collect();
    assert_eq!(CellReport::take(&mut small).requests.len(), REPORT_ITEMS);
    assert_eq!(CellReport::take(&mut small).requests.len(), 1);
    assert_eq!(CellReport::take(&mut small).requests.len(), 0);
    // One that is longer than all may be goes alone, and is refused by whoever measures it.
    let long = "x".repeat(FETCH_BYTES + 1).into();
    let mut queue =
        VecDeque::from([CellRequest::RejectTask(task(), CellId::new("c").unwrap(), long)]);
    assert_eq!(CellReport::take(&mut queue).requests.len(), 1);
}

#[test]
fn what_is_carried_shows_no_more_than_its_length() {
    let password = Secret::from("hunter2");
    let with = LrpDefinition { image_password: password, ..LrpDefinition::default() };
    let carried = Carried::new(&with);
    assert!(!format!("{carried:?}").contains("hunter2"));
    assert_eq!(Carried::packed(&Packed::new(&with)), carried);
    assert_eq!(postcard::from_bytes::<LrpDefinition>(carried.bytes()).unwrap(), with);
}
