//! The driver with a machine in memory and records in a real folder.

use std::path::Path;
use std::sync::Arc;

use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::task::TaskDefinition;

use super::*;
use crate::executor::workload::Owner;
use crate::executor::write_ahead::NOT_KEPT;
use crate::runtime::fake::Fake;

const PATIENCE: Duration = Duration::from_secs(20);
const ROOM: CellCapacity = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 3 };

fn open(folder: &Path, machine: &Fake) -> ExecutorHandle {
    let settings = ExecutorSettings::new(CellId::new("cell").unwrap(), ROOM);
    ExecutorHandle::open(settings, ContainerRecords::open(folder).unwrap(), machine.clone())
        .unwrap()
}

fn owner(name: &str) -> Owner {
    let key = LrpKey {
        process_guid: ProcessGuid::new("process").unwrap(),
        index: 0,
        domain: Domain::new("domain").unwrap(),
        definition_id: None,
    };
    Owner::Lrp { key, instance: InstanceGuid::new(name).unwrap() }
}

fn serve() -> Workload {
    let run = RunAction { path: "serve".into(), ..RunAction::default() };
    let action = Some(Action::Run(Box::new(run)));
    Workload::Lrp(Arc::new(LrpDefinition { action, memory_mb: 40, ..LrpDefinition::default() }))
}

fn start(executor: &ExecutorHandle, name: &str) -> ContainerGuid {
    let owner = owner(name);
    let guid = owner.container();
    let events = executor.subscribe().unwrap();
    let wanted = ReservationRequest { owner, resources: serve().resources() };
    assert_eq!(executor.reserve(vec![wanted]), Ok(Vec::new()));
    executor.run(guid.clone(), serve()).unwrap();
    wait_for(&events, &ContainerEvent::Running(guid.clone()));
    guid
}

fn wait_for(events: &Receiver<ContainerEvent>, wanted: &ContainerEvent) {
    while events.recv_timeout(PATIENCE).expect("the event comes in time") != *wanted {}
}

fn state(executor: &ExecutorHandle, guid: &ContainerGuid) -> Option<ContainerState> {
    executor.container(guid.clone()).unwrap().map(|it| it.container.state)
}

#[test]
fn calls_are_answered_events_told_and_deletes_waited_for() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Fake::default());
    let executor = open(folder.path(), &machine);
    let guid = start(&executor, "one");
    assert_eq!(executor.remaining().unwrap().memory_mb, 60);
    let wanted =
        |name: &str| ReservationRequest { owner: owner(name), resources: serve().resources() };
    let refused = executor.reserve(vec![wanted("one"), wanted("two"), wanted("three")]).unwrap();
    let names: Vec<&str> = refused.iter().map(|(guid, _)| guid.as_str()).collect();
    assert_eq!(names, ["one", "three"]);
    let again = executor.run(guid.clone(), serve());
    assert!(matches!(again, Err(CallError::Refused(_))), "{again:?}");
    let events = executor.subscribe().unwrap();
    executor.stop(guid.clone()).unwrap();
    wait_for(&events, &ContainerEvent::Completed(guid.clone()));
    assert_eq!(state(&executor, &guid), Some(ContainerState::Completed));
    executor.delete(guid.clone()).unwrap();
    assert_eq!(state(&executor, &guid), None);
    assert_eq!(machine.machine().containers().count(), 0);
    let missing = executor.delete(guid.clone());
    assert_eq!(missing, Err(CallError::Refused(ExecutorRefusal::NotFound(guid))));
    machine.machine().faults.not_destroyed = Some("stuck".to_owned());
    let stuck = start(&executor, "four");
    let error = executor.delete(stuck.clone()).unwrap_err();
    assert_eq!(error, CallError::NotDeleted(stuck, "stuck".to_owned()));
}

#[test]
fn another_executor_goes_on_where_one_ended() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Fake::default());
    let executor = open(folder.path(), &machine);
    let (one, two) = (start(&executor, "one"), start(&executor, "two"));
    let taken = ContainerRecords::open(folder.path());
    assert!(matches!(taken, Err(RecordsError::InUse(_))), "{taken:?}");
    drop(executor);
    machine.machine().end_process(&two, "serve", 5);

    let executor = open(folder.path(), &machine);
    assert_eq!(state(&executor, &one), Some(ContainerState::Running));
    assert_eq!(machine.machine().ever_started(&one), 1);
    let ended = executor.container(two.clone()).unwrap().unwrap().container;
    assert_eq!(ended.result.failure_reason, "LOG: Exited with status 5");
    assert_eq!(executor.remaining().unwrap().memory_mb, 20);
    drop(executor);

    // A record that nobody understands is set aside, and its container goes.
    std::fs::write(folder.path().join("one.progress"), "{\"half\":").unwrap();
    let executor = open(folder.path(), &machine);
    assert_eq!(state(&executor, &one), None);
    assert!(folder.path().join("one.unreadable").exists());
    let left: Vec<_> = machine.machine().containers().cloned().collect();
    assert_eq!(left, std::slice::from_ref(&two));
    executor.delete(two).unwrap();
    drop(executor);
    let files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|it| !it.starts_with("one.") && it != "clock")
        .collect();
    assert_eq!(files, ["lock"]);
}

#[test]
fn what_may_not_run_twice_does_not_begin_unless_that_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Fake::default();
    let executor = open(folder.path(), &machine);
    let events = executor.subscribe().unwrap();
    let task = TaskGuid::new("once").unwrap();
    let owner = Owner::Task { guid: task, domain: Domain::new("domain").unwrap() };
    let guid = owner.container();
    let run = RunAction { path: "serve".into(), ..RunAction::default() };
    let action = Some(Action::Run(Box::new(run)));
    let definition = TaskDefinition { action, memory_mb: 40, ..TaskDefinition::default() };
    let work = Workload::Task(Arc::new(definition));
    let wanted = ReservationRequest { owner, resources: work.resources() };
    assert_eq!(executor.reserve(vec![wanted]), Ok(Vec::new()));
    // In the way of the record: as a full disk, nothing can be written.
    let partial = folder.path().join("once.progress.partial");
    std::fs::create_dir(&partial).unwrap();
    executor.run(guid.clone(), work).unwrap();
    wait_for(&events, &ContainerEvent::Completed(guid.clone()));
    let result = executor.container(guid.clone()).unwrap().unwrap().container.result;
    assert!(result.failed && !result.retryable, "{result:?}");
    assert!(result.failure_reason.contains(NOT_KEPT), "{result:?}");
    assert_eq!(machine.machine().ever_started(&guid), 0);
    std::fs::remove_dir(&partial).unwrap();
    // What may run twice goes on.
    std::fs::create_dir(folder.path().join("again.progress.partial")).unwrap();
    start(&executor, "again");
}
