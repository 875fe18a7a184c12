//! What clients ask, as the bodies of our API: the same values that JSON is read into.

use super::super::message as m;
use super::actual::{instance_key, internal_routes, key, net_info};
use super::definition::update;
use super::task::definition as task_definition;
use super::{DiegoDecodeError, DiegoRequest, count, desired_lrp, id, needed, read};
use crate::actual_lrp::NetInfo;
use crate::api::{
    ActualLrpGroupsRequest, ActualLrpInstanceRequest, ActualLrpsByProcessGuidsRequest,
    ActualLrpsRequest, ClaimActualLrpRequest, CompleteTaskRequest, CrashActualLrpRequest,
    DesireLrpRequest, DesireTaskRequest, DesiredLrpsRequest, EvacuateRunningActualLrpRequest,
    EventsRequest, FailActualLrpRequest, FailTaskRequest, NoRequest, ProcessGuidAndIndexRequest,
    ProcessGuidRequest, RejectTaskRequest, RemoveActualLrpRequest, RetireActualLrpRequest,
    StartActualLrpRequest, StartTaskRequest, TaskGuidRequest, TasksRequest,
    UpdateDesiredLrpRequest, UpsertDomainRequest,
};
use crate::desired_lrp::DesiredLrp;
use crate::id::{CellId, Domain, ProcessGuid, TaskGuid};
use crate::task::TaskDefinition;
use crate::validate::{Checker, Validate};

/// Declares how a request is read: its message, and what is made of it.
macro_rules! requests {
    ($( $request:ty = $message:ident |$at:ident, $given:ident| $make:expr ; )*) => {
        $( impl DiegoRequest for $request {
            fn from_diego(body: &[u8]) -> Result<Self, DiegoDecodeError> {
                read(stringify!($message), body, |$at: &mut Checker, $given: m::$message| $make)
            }
        } )*
    };
}

/// Nothing is read of a request that has nothing to say.
impl DiegoRequest for NoRequest {
    fn from_diego(_: &[u8]) -> Result<Self, DiegoDecodeError> {
        Ok(NoRequest {})
    }
}

requests! {
    UpsertDomainRequest = UpsertDomainRequest |at, given| UpsertDomainRequest {
        domain: id(at, "domain", &given.domain, Domain::new),
        ttl: given.ttl,
    };
    ActualLrpsRequest = ActualLrpsRequest |_at, given| ActualLrpsRequest {
        domain: given.domain,
        cell_id: given.cell_id,
        process_guid: given.process_guid,
        // A filter is not looked at by the BBS: there is nothing at an index below zero.
        index: given.index.map(|index| u32::try_from(index).unwrap_or(u32::MAX)),
    };
    ActualLrpsByProcessGuidsRequest = ActualLrpsByProcessGuidsRequest |_at, given| {
        ActualLrpsByProcessGuidsRequest { process_guids: given.process_guids }
    };
    ActualLrpGroupsRequest = ActualLrpGroupsRequest |_at, given| ActualLrpGroupsRequest {
        domain: given.domain,
        cell_id: given.cell_id,
    };
    // Of the same form: the groups of a process, one desired LRP, its removal.
    ProcessGuidRequest = DesiredLrpByProcessGuidRequest |at, given| ProcessGuidRequest {
        process_guid: process_guid(at, &given.process_guid),
    };
    ProcessGuidAndIndexRequest = ActualLrpGroupByProcessGuidAndIndexRequest |at, given| {
        ProcessGuidAndIndexRequest {
            process_guid: process_guid(at, &given.process_guid),
            index: count(at, "index", given.index),
        }
    };
    RetireActualLrpRequest = RetireActualLrpRequest |at, given| RetireActualLrpRequest {
        actual_lrp_key: key(at, given.actual_lrp_key),
    };
    ClaimActualLrpRequest = ClaimActualLrpRequest |at, given| ClaimActualLrpRequest {
        process_guid: process_guid(at, &given.process_guid),
        index: count(at, "index", given.index),
        actual_lrp_instance_key: instance_key(at, given.actual_lrp_instance_key),
    };
    StartActualLrpRequest = StartActualLrpRequest |at, given| StartActualLrpRequest {
        actual_lrp_key: key(at, given.actual_lrp_key),
        actual_lrp_instance_key: instance_key(at, given.actual_lrp_instance_key),
        actual_lrp_net_info: reached(at, given.actual_lrp_net_info),
        actual_lrp_internal_routes: internal_routes(given.actual_lrp_internal_routes).into_vec(),
        metric_tags: given.metric_tags.into_iter().collect(),
        routable: given.routable,
        availability_zone: given.availability_zone,
    };
    EvacuateRunningActualLrpRequest = EvacuateRunningActualLrpRequest |at, given| {
        EvacuateRunningActualLrpRequest(StartActualLrpRequest {
            actual_lrp_key: key(at, given.actual_lrp_key),
            actual_lrp_instance_key: instance_key(at, given.actual_lrp_instance_key),
            actual_lrp_net_info: reached(at, given.actual_lrp_net_info),
            actual_lrp_internal_routes:
                internal_routes(given.actual_lrp_internal_routes).into_vec(),
            metric_tags: given.metric_tags.into_iter().collect(),
            routable: given.routable,
            availability_zone: given.availability_zone,
        })
    };
    CrashActualLrpRequest = CrashActualLrpRequest |at, given| CrashActualLrpRequest {
        actual_lrp_key: key(at, given.actual_lrp_key),
        actual_lrp_instance_key: instance_key(at, given.actual_lrp_instance_key),
        error_message: given.error_message,
    };
    FailActualLrpRequest = FailActualLrpRequest |at, given| {
        let actual_lrp_key = key(at, given.actual_lrp_key);
        at.not_empty("error_message", &given.error_message);
        FailActualLrpRequest { actual_lrp_key, error_message: given.error_message }
    };
    RemoveActualLrpRequest = RemoveActualLrpRequest |at, given| RemoveActualLrpRequest {
        process_guid: process_guid(at, &given.process_guid),
        index: count(at, "index", given.index),
        actual_lrp_instance_key: given
            .actual_lrp_instance_key
            .map(|given| instance_key(at, Some(given))),
    };
    ActualLrpInstanceRequest = EvacuateClaimedActualLrpRequest |at, given| ActualLrpInstanceRequest {
        actual_lrp_key: key(at, given.actual_lrp_key),
        actual_lrp_instance_key: instance_key(at, given.actual_lrp_instance_key),
    };
    DesiredLrpsRequest = DesiredLrpsRequest |_at, given| DesiredLrpsRequest {
        domain: given.domain,
        process_guids: given.process_guids,
        app_guids: given.app_guids,
    };
    DesireLrpRequest = DesireLrpRequest |at, given| DesireLrpRequest {
        desired_lrp: desire(at, given.desired_lrp),
    };
    UpdateDesiredLrpRequest = UpdateDesiredLrpRequest |at, given| {
        let process_guid = process_guid(at, &given.process_guid);
        let mut read = Default::default();
        at.field("update", |at| {
            at.require(given.update.is_some(), || super::MISSING.to_owned());
            let change = update(at, given.update.unwrap_or_default());
            change.check(at);
            read = change;
        });
        UpdateDesiredLrpRequest { process_guid, update: read }
    };
    DesireTaskRequest = DesireTaskRequest |at, given| DesireTaskRequest {
        task_guid: task_guid(at, &given.task_guid),
        domain: id(at, "domain", &given.domain, Domain::new),
        task_definition: define_task(at, given.task_definition),
    };
    StartTaskRequest = StartTaskRequest |at, given| StartTaskRequest {
        task_guid: task_guid(at, &given.task_guid),
        cell_id: id(at, "cell_id", &given.cell_id, CellId::new),
    };
    FailTaskRequest = FailTaskRequest |at, given| {
        at.not_empty("failure_reason", &given.failure_reason);
        FailTaskRequest {
            task_guid: task_guid(at, &given.task_guid),
            failure_reason: given.failure_reason,
        }
    };
    RejectTaskRequest = RejectTaskRequest |at, given| {
        // The BBS complains of the field's older name.
        at.not_empty("failure_reason", &given.rejection_reason);
        RejectTaskRequest {
            task_guid: task_guid(at, &given.task_guid),
            rejection_reason: given.rejection_reason,
        }
    };
    CompleteTaskRequest = CompleteTaskRequest |at, given| CompleteTaskRequest {
        task_guid: task_guid(at, &given.task_guid),
        cell_id: id(at, "cell_id", &given.cell_id, CellId::new),
        failed: given.failed,
        failure_reason: given.failure_reason,
        result: given.result,
    };
    TasksRequest = TasksRequest |_at, given| TasksRequest {
        domain: given.domain,
        cell_id: given.cell_id,
    };
    // Of the same form: one task, and what is done about one.
    TaskGuidRequest = TaskGuidRequest |at, given| TaskGuidRequest {
        task_guid: task_guid(at, &given.task_guid),
    };
    EventsRequest = EventsByCellId |_at, given| EventsRequest { cell_id: given.cell_id };
}

fn process_guid(at: &mut Checker, given: &str) -> ProcessGuid {
    id(at, "process_guid", given, ProcessGuid::new)
}

fn task_guid(at: &mut Checker, given: &str) -> TaskGuid {
    id(at, "task_guid", given, TaskGuid::new)
}

/// How an instance is reached: without an address it is not.
fn reached(at: &mut Checker, given: Option<m::ActualLrpNetInfo>) -> NetInfo {
    let mut read = NetInfo::default();
    at.field("actual_lrp_net_info", |at| match given {
        None => at.require(false, || super::MISSING.to_owned()),
        Some(given) => {
            at.not_empty("address", &given.address);
            read = net_info(given);
        }
    });
    read
}

/// What is desired, with all its rules: a client is to hear of every one that it breaks.
fn desire(at: &mut Checker, given: Option<m::DesiredLrp>) -> DesiredLrp {
    if given.is_none() {
        needed(at, "desired_lrp", given);
        return desired_lrp(&mut Checker::default(), m::DesiredLrp::default());
    }
    let mut read = None;
    at.field("desired_lrp", |at| {
        let lrp = desired_lrp(at, given.unwrap_or_default());
        lrp.check(at);
        read = Some(lrp);
    });
    read.expect("the walk was made")
}

fn define_task(at: &mut Checker, given: Option<m::TaskDefinition>) -> TaskDefinition {
    let mut read = TaskDefinition::default();
    at.field("task_definition", |at| match given {
        None => at.require(false, || super::MISSING.to_owned()),
        Some(given) => {
            read = task_definition(at, given);
            read.check(at);
        }
    });
    read
}
