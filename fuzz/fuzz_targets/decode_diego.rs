//! Protobuf from Diego's clients. What is read as a desire must be written as a message that reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_protocol::api::{
    ActualLrpGroupsRequest, ActualLrpInstanceRequest, ActualLrpsByProcessGuidsRequest,
    ActualLrpsRequest, ClaimActualLrpRequest, CompleteTaskRequest, CrashActualLrpRequest,
    DesireLrpRequest, DesireTaskRequest, DesiredLrpsRequest, EvacuateRunningActualLrpRequest,
    EventsRequest, FailActualLrpRequest, FailTaskRequest, NoRequest, ProcessGuidAndIndexRequest,
    ProcessGuidRequest, RejectTaskRequest, RemoveActualLrpRequest, RetireActualLrpRequest,
    StartActualLrpRequest, StartTaskRequest, TaskGuidRequest, TasksRequest,
    UpdateDesiredLrpRequest, UpsertDomainRequest,
};
use volvox_protocol::diego::write::Writer;
use volvox_protocol::diego::{DiegoDecodeError, DiegoRequest, ListEntry as _, error_text};

/// Reads a request, or says in words why not.
fn read<Q: DiegoRequest>(bytes: &[u8]) -> Option<Q> {
    match Q::from_diego(bytes) {
        Ok(read) => Some(read),
        Err(DiegoDecodeError::Invalid(invalid)) => {
            assert!(!error_text::complaints(&invalid.0).is_empty(), "a complaint has words");
            None
        }
        Err(_) => None,
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(DesireLrpRequest { desired_lrp }) = read(bytes) {
        let mut again = Vec::new();
        let written = desired_lrp.clone();
        Writer(&mut again).message(1, |out| (&written).put_diego(out.0));
        let again: DesireLrpRequest = read(&again).expect("our own message is read");
        let mut told = desired_lrp;
        told.definition.ports = told.definition.distinct_ports();
        assert_eq!(again.desired_lrp, told);
    }
    read::<DesireTaskRequest>(bytes);
    read::<UpdateDesiredLrpRequest>(bytes);
    read::<StartActualLrpRequest>(bytes);
    read::<EvacuateRunningActualLrpRequest>(bytes);
    read::<ClaimActualLrpRequest>(bytes);
    read::<CrashActualLrpRequest>(bytes);
    read::<RemoveActualLrpRequest>(bytes);
    read::<ActualLrpInstanceRequest>(bytes);
    read::<CompleteTaskRequest>(bytes);
    read::<ActualLrpsRequest>(bytes);
    read::<UpsertDomainRequest>(bytes);
    read::<ActualLrpsByProcessGuidsRequest>(bytes);
    read::<ActualLrpGroupsRequest>(bytes);
    read::<ProcessGuidRequest>(bytes);
    read::<ProcessGuidAndIndexRequest>(bytes);
    read::<RetireActualLrpRequest>(bytes);
    read::<FailActualLrpRequest>(bytes);
    read::<DesiredLrpsRequest>(bytes);
    read::<StartTaskRequest>(bytes);
    read::<FailTaskRequest>(bytes);
    read::<RejectTaskRequest>(bytes);
    read::<TasksRequest>(bytes);
    read::<TaskGuidRequest>(bytes);
    read::<EventsRequest>(bytes);
    read::<NoRequest>(bytes);
});
