//! What goes one way only comes back through the records inside of it: events, which nobody sends us, and
//! requests, which we send nobody.

use std::sync::Arc;

use proptest::prelude::*;
use prost::Message;
use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpGroup};
use volvox_protocol::api::{
    ClaimActualLrpRequest, CompleteTaskRequest, CrashActualLrpRequest, DesireTaskRequest,
    EvacuateRunningActualLrpRequest, StartActualLrpRequest, UpdateDesiredLrpRequest,
};
use volvox_protocol::cell::CellPresenceJson;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::diego::read::{self, DiegoRequest as _};
use volvox_protocol::diego::{message as m, write};
use volvox_protocol::event::{Crash, Event};
use volvox_protocol::task::Task;
use volvox_protocol::validate::{Checker, Valid};

use super::{LRP, RUNNING, TASK, as_told, like, straight, twists};

fn told<M: Message + Default>(event: &Event) -> M {
    M::decode(&write::event(event, |lrp| lrp, "trace")[..]).unwrap()
}

fn desired(message: Option<m::DesiredLrp>) -> DesiredLrp {
    read::desired_lrp(&mut Checker::default(), message.unwrap())
}

fn instance(message: Option<m::ActualLrp>) -> ActualLrp {
    read::actual_lrp(&mut Checker::default(), message.unwrap())
}

fn group(message: Option<m::ActualLrpGroup>) -> LrpGroup {
    read::group(&mut Checker::default(), message.unwrap())
}

fn task(message: Option<m::Task>) -> Task {
    read::task(&mut Checker::default(), message.unwrap())
}

/// The message of an instance, of which requests have parts.
fn message_of(lrp: &ActualLrp) -> m::ActualLrp {
    m::ActualLrp::decode(&straight(lrp)[..]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn events_of_what_is_desired_come_back(one in twists(), other in twists()) {
        let (Some(one), Some(other)) =
            (like::<DesiredLrp>(LRP, &one), like::<DesiredLrp>(LRP, &other)) else { return Ok(()) };
        let [one, other] = [one, other].map(|lrp| {
            let tag = lrp.modification_tag;
            Arc::new(LrpDeployment::promote(lrp, tag))
        });
        let (was, is) = (as_told(one.project()), as_told(other.project()));
        let created: m::DesiredLrpCreatedEvent = told(&Event::DesiredLrpCreated(Arc::clone(&one)));
        prop_assert_eq!(created.trace_id.as_str(), "trace");
        prop_assert_eq!(&desired(created.desired_lrp), &was);
        let removed: m::DesiredLrpRemovedEvent = told(&Event::DesiredLrpRemoved(Arc::clone(&one)));
        prop_assert_eq!(&desired(removed.desired_lrp), &was);
        let changed: m::DesiredLrpChangedEvent = told(&Event::DesiredLrpChanged(one, other));
        prop_assert_eq!((desired(changed.before), desired(changed.after)), (was, is));
    }

    #[test]
    fn events_of_instances_come_back(one in twists(), other in twists()) {
        let (Some(mut one), Some(mut other)) =
            (like::<ActualLrp>(RUNNING, &one), like::<ActualLrp>(RUNNING, &other)) else { return Ok(()) };
        for lrp in [&mut one, &mut other] {
            lrp.definition_id = (&lrp.process_guid).into();
        }
        let (one, other) = (Arc::new(one), Arc::new(other));
        let created: m::ActualLrpInstanceCreatedEvent =
            told(&Event::InstanceCreated(Arc::clone(&one)));
        prop_assert_eq!(&instance(created.actual_lrp), &*one);
        let removed: m::ActualLrpInstanceRemovedEvent =
            told(&Event::InstanceRemoved(Arc::clone(&one)));
        prop_assert_eq!(&instance(removed.actual_lrp), &*one);
        let changed: m::ActualLrpInstanceChangedEvent =
            told(&Event::InstanceChanged(Arc::clone(&one), Arc::clone(&other)));
        // Keys, internal routes and tags are not told of both.
        for (info, lrp) in [(changed.before, &one), (changed.after, &other)] {
            let (info, whole) = (info.unwrap(), message_of(lrp));
            prop_assert_eq!(info.actual_lrp_net_info, whole.actual_lrp_net_info);
            prop_assert_eq!((info.crash_count, info.since), (whole.crash_count, whole.since));
            prop_assert_eq!((info.state, info.presence), (whole.state, whole.presence));
            prop_assert_eq!(info.modification_tag, whole.modification_tag);
        }
        let both = LrpGroup { instance: Some(Arc::clone(&one)), evacuating: Some(Arc::clone(&other)) };
        let alone = LrpGroup { instance: None, evacuating: Some(other) };
        let created: m::ActualLrpCreatedEvent = told(&Event::GroupCreated(both.clone()));
        prop_assert_eq!(&group(created.actual_lrp_group), &both);
        let changed: m::ActualLrpChangedEvent =
            told(&Event::GroupChanged(both.clone(), alone.clone()));
        prop_assert_eq!((group(changed.before), group(changed.after)), (both, alone));
        let Some(of) = one.instance() else { return Ok(()) };
        let crash = Crash {
            key: one.key(),
            instance: of.clone(),
            crash_count: one.crash_count,
            crash_reason: one.crash_reason.clone(),
            since: one.since,
        };
        let crashed: m::ActualLrpCrashedEvent = told(&Event::Crashed(crash));
        let whole = message_of(&one);
        prop_assert_eq!(crashed.actual_lrp_key, whole.actual_lrp_key);
        prop_assert_eq!(crashed.actual_lrp_instance_key, whole.actual_lrp_instance_key);
        prop_assert_eq!(crashed.crash_reason, whole.crash_reason);
        prop_assert_eq!((crashed.crash_count, crashed.since), (whole.crash_count, whole.since));
    }

    #[test]
    fn events_of_tasks_come_back(one in twists(), other in twists()) {
        let (Some(one), Some(other)) =
            (like::<Task>(TASK, &one), like::<Task>(TASK, &other)) else { return Ok(()) };
        let (one, other) = (Arc::new(one), Arc::new(other));
        let created: m::TaskCreatedEvent = told(&Event::TaskCreated(Arc::clone(&one)));
        prop_assert_eq!(&task(created.task), &*one);
        let changed: m::TaskChangedEvent =
            told(&Event::TaskChanged(Arc::clone(&one), Arc::clone(&other)));
        prop_assert_eq!(&task(changed.before), &*one);
        prop_assert_eq!(&task(changed.after), &*other);
    }

    #[test]
    fn what_a_cell_reports_is_read_as_it_was_meant(twists in twists()) {
        let Some(lrp) = like::<ActualLrp>(RUNNING, &twists) else { return Ok(()) };
        let (Some(of), Some(running)) = (lrp.instance(), lrp.running()) else { return Ok(()) };
        if running.net_info.address.is_empty() {
            return Ok(());
        }
        let whole = message_of(&lrp);
        let mut key = lrp.key();
        key.definition_id = None;
        let start = m::StartActualLrpRequest {
            actual_lrp_key: whole.actual_lrp_key.clone(),
            actual_lrp_instance_key: whole.actual_lrp_instance_key.clone(),
            actual_lrp_net_info: whole.actual_lrp_net_info.clone(),
            actual_lrp_internal_routes: whole.actual_lrp_internal_routes.clone(),
            metric_tags: whole.metric_tags.clone(),
            routable: whole.routable,
            availability_zone: whole.availability_zone.clone(),
        };
        let read = StartActualLrpRequest::from_diego(&start.encode_to_vec()).unwrap();
        let wanted = (key.clone(), of.clone(), running.clone());
        prop_assert_eq!(read.into_parts(), wanted.clone());
        let leave = m::EvacuateRunningActualLrpRequest {
            actual_lrp_key: whole.actual_lrp_key.clone(),
            actual_lrp_instance_key: whole.actual_lrp_instance_key.clone(),
            actual_lrp_net_info: whole.actual_lrp_net_info,
            actual_lrp_internal_routes: whole.actual_lrp_internal_routes,
            metric_tags: whole.metric_tags,
            routable: whole.routable,
            availability_zone: whole.availability_zone,
        };
        let read = EvacuateRunningActualLrpRequest::from_diego(&leave.encode_to_vec()).unwrap();
        prop_assert_eq!(read.0.into_parts(), wanted);
        let claim = m::ClaimActualLrpRequest {
            process_guid: lrp.process_guid.to_string(),
            index: whole.actual_lrp_key.as_ref().unwrap().index,
            actual_lrp_instance_key: whole.actual_lrp_instance_key.clone(),
        };
        let read = ClaimActualLrpRequest::from_diego(&claim.encode_to_vec()).unwrap();
        let holder: &InstanceKey = &read.actual_lrp_instance_key;
        prop_assert_eq!((&read.process_guid, read.index, holder), (&lrp.process_guid, lrp.index, of));
        let crash = m::CrashActualLrpRequest {
            actual_lrp_key: whole.actual_lrp_key,
            actual_lrp_instance_key: whole.actual_lrp_instance_key,
            error_message: whole.crash_reason.clone(),
        };
        let read = CrashActualLrpRequest::from_diego(&crash.encode_to_vec()).unwrap();
        prop_assert_eq!((read.actual_lrp_key, read.error_message), (key, whole.crash_reason));
    }

    #[test]
    fn updates_are_read_as_they_were_meant(twists in twists(), said in any::<[bool; 4]>()) {
        let Some(lrp) = like::<DesiredLrp>(LRP, &twists) else { return Ok(()) };
        let whole = write::desired_lrp(lrp.clone());
        let update = m::DesiredLrpUpdate {
            instances: said[0].then_some(whole.instances),
            routes: whole.routes.filter(|_| said[1]),
            annotation: said[2].then_some(whole.annotation),
            metric_tags: if said[3] { whole.metric_tags } else { Default::default() },
            ..Default::default()
        };
        let request = m::UpdateDesiredLrpRequest {
            process_guid: lrp.process_guid.to_string(),
            update: Some(update),
        };
        let tags = Some(lrp.metric_tags).filter(|tags| said[3] && !tags.is_empty());
        let wanted = DesiredLrpUpdate {
            instances: said[0].then_some(lrp.instances),
            routes: said[1].then_some(lrp.routes),
            annotation: said[2].then_some(lrp.annotation),
            metric_tags: tags,
            ..Default::default()
        };
        match UpdateDesiredLrpRequest::from_diego(&request.encode_to_vec()) {
            Ok(read) => prop_assert_eq!(read.update, wanted),
            Err(error) => prop_assert!(Valid::new(wanted).is_err(), "{error}"),
        }
    }

    #[test]
    fn tasks_are_desired_and_completed_as_they_were_meant(twists in twists()) {
        let Some(task) = like::<Task>(TASK, &twists) else { return Ok(()) };
        let whole = write::task(&task);
        let request = m::DesireTaskRequest {
            task_definition: whole.task_definition,
            task_guid: whole.task_guid.clone(),
            domain: whole.domain,
        };
        match DesireTaskRequest::from_diego(&request.encode_to_vec()) {
            Ok(read) => prop_assert_eq!(&read.task_definition, &*task.definition),
            Err(error) => {
                prop_assert!(Valid::new((*task.definition).clone()).is_err(), "{error}");
            }
        }
        let request = m::CompleteTaskRequest {
            task_guid: whole.task_guid,
            cell_id: "c".into(),
            failed: whole.failed,
            failure_reason: whole.failure_reason,
            result: whole.result,
        };
        let read = CompleteTaskRequest::from_diego(&request.encode_to_vec()).unwrap();
        prop_assert_eq!((read.failed, read.result), (task.failed, task.result));
        prop_assert_eq!((read.task_guid, read.failure_reason), (task.task_guid, task.failure_reason));
    }

    #[test]
    fn a_cell_is_told_with_all_that_it_has(
        texts in prop::array::uniform4("\\PC{0,40}"),
        numbers in any::<[u32; 3]>(),
        tags in prop::collection::vec("\\PC{0,9}", 0..4),
    ) {
        let [address, zone, url, property] = texts;
        let [memory_mb, disk_mb, containers] = numbers;
        let cell: CellPresenceJson = serde_json::from_value(serde_json::json!({
            "cell_id": "c", "rep_address": address, "zone": zone, "rep_url": url,
            "capacity": {"memory_mb": memory_mb, "disk_mb": disk_mb, "containers": containers},
            "rootfs_provider_list": [{"name": "preloaded", "properties": [property]}],
            "placement_tags": tags, "optional_placement_tags": tags,
            "annotations": {"k": property},
        }))
        .unwrap();
        let bytes = write::cell_presence(cell).encode_to_vec();
        let told = m::CellPresence::decode(&bytes[..]).unwrap();
        prop_assert_eq!((told.rep_address, told.zone, told.rep_url), (address, zone, url));
        prop_assert_eq!((&told.placement_tags, &told.optional_placement_tags), (&tags, &tags));
        prop_assert_eq!(&told.rootfs_providers[0].properties[0], &property);
        prop_assert_eq!(&told.annotations["k"], &property);
        // More than the BBS can count is the most that it can.
        let most = |given| i32::try_from(given).unwrap_or(i32::MAX);
        let capacity = told.capacity.unwrap();
        prop_assert_eq!(capacity.memory_mb, most(memory_mb));
        prop_assert_eq!((capacity.disk_mb, capacity.containers), (most(disk_mb), most(containers)));
    }
}
