//! Desired and actual LRPs.

use std::sync::Arc;

use hyper::Response;
use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup};
use volvox_protocol::api::{
    ActualLrpGroupResponse, ActualLrpGroupsRequest, ActualLrpGroupsResponse,
    ActualLrpsByProcessGuidsRequest, ActualLrpsRequest, ActualLrpsResponse, DesireLrpRequest,
    DesiredLrpResponse, DesiredLrpSchedulingInfoResponse, DesiredLrpSchedulingInfosResponse,
    DesiredLrpsRequest, DesiredLrpsResponse, LifecycleResponse, ProcessGuidAndIndexRequest,
    ProcessGuidRequest, RetireActualLrpRequest, UpdateDesiredLrpRequest,
};
use volvox_protocol::definition::MetricTagValue;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::diego::ListEntry as _;
use volvox_protocol::diego::write::Writer;
use volvox_protocol::id::{CellId, ProcessGuid};
use volvox_protocol::resolve;
use volvox_protocol::schema::Schema;
use volvox_protocol::validate::Valid;

use super::Api;
use super::encoding::{Encoding, append_json};
use super::fields::{Fields, ProjectedRecord};
use super::list::{self, Tag};
use super::reply::{ApiFailure, Body};
use super::route::{self, ApiRequest, Route};
use super::trace;
use crate::bbs::command::{Command, Reply};
use crate::bbs::state::{Process, Records};

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let mut all = actual();
    all.extend(desired());
    all
}

fn actual() -> Vec<Route> {
    vec![
        route::list::<ActualLrpsRequest, ActualLrpsResponse>(
            "/v1/actual_lrps/list",
            "ActualLRPs",
            "Every instance record, of every presence.",
            |api, call, request| {
                let records = api.bbs.view().snapshot();
                actual_lrps(call, some_instances(&records, &request))
            },
        ),
        route::list::<ActualLrpsByProcessGuidsRequest, ActualLrpsResponse>(
            "/v1/actual_lrps/list_by_process_guids",
            "ActualLRPsByProcessGuids",
            "The instance records of these processes.",
            |api, call, request| {
                if request.process_guids.is_empty() {
                    return Err(ApiFailure::field("process_guids", "must not be empty"));
                }
                let records = api.bbs.view().snapshot();
                let found = some_processes(&records, &request.process_guids);
                let lrps = found.flat_map(|process| process.instances());
                actual_lrps(call, lrps.map(|slot| Arc::clone(&slot.lrp)).collect())
            },
        ),
        route::list::<ActualLrpGroupsRequest, ActualLrpGroupsResponse>(
            "/v1/actual_lrp_groups/list",
            "ActualLRPGroups",
            "What there is at each index of each definition.",
            |api, call, request| {
                let records = api.bbs.view().snapshot();
                let processes = records.processes().map(|(_, process)| process);
                groups(call, processes, &request.domain, &request.cell_id)
            },
        ),
        route::list::<ProcessGuidRequest, ActualLrpGroupsResponse>(
            "/v1/actual_lrp_groups/list_by_process_guid",
            "ActualLRPGroupsByProcessGuid",
            "What there is at each index of one process.",
            |api, call, request| {
                let records = api.bbs.view().snapshot();
                groups(call, records.process(&request.process_guid).into_iter(), "", "")
            },
        ),
        route::read::<ProcessGuidAndIndexRequest, ActualLrpGroupResponse>(
            "/v1/actual_lrp_groups/get_by_process_guid_and_index",
            "ActualLRPGroupByProcessGuidAndIndex",
            "What there is at one index of the active definition.",
            |api, request| {
                let records = api.bbs.view().snapshot();
                let group = group_at(&records, &request).ok_or_else(|| {
                    let (guid, index) = (&request.process_guid, request.index);
                    ApiFailure::not_found(&format!("instance {index} of process {guid}"))
                })?;
                Ok(ActualLrpGroupResponse { error: None, actual_lrp_group: Some(group) })
            },
        ),
        route::change::<RetireActualLrpRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/retire",
            "RetireActualLRP",
            "Stops one instance; another takes its place for as long as it is desired.",
            |request| {
                let key = &request.actual_lrp_key;
                format!("{}/{}", key.process_guid, key.index)
            },
            |api, request| async move {
                let key = Valid::new(request.actual_lrp_key)
                    .map_err(|invalid| ApiFailure::within("actual_lrp_key", invalid))?;
                api.order(Command::RetireLrp(key.into_inner())).await
            },
        ),
    ]
}

fn desired() -> Vec<Route> {
    let mut all = vec![
        whole_list("/v1/desired_lrps/list.r3", "DesiredLRPs", |lrp| lrp),
        whole_list("/v1/desired_lrps/list.r2", "DesiredLRPs_r2", downgraded),
        one("/v1/desired_lrps/get_by_process_guid.r3", "DesiredLRPByProcessGuid", |lrp| lrp),
        one("/v1/desired_lrps/get_by_process_guid.r2", "DesiredLRPByProcessGuid_r2", downgraded),
    ];
    all.extend([
        route::list::<DesiredLrpsRequest, DesiredLrpSchedulingInfosResponse>(
            "/v1/desired_lrp_scheduling_infos/list",
            "DesiredLRPSchedulingInfos",
            "What placing each LRP needs to know.",
            |api, call, request| {
                let records = api.bbs.view().snapshot();
                let found = some_deployments(&records, &request, &[]);
                let put = |lrp: &LrpDeployment, out: &mut Vec<u8>| {
                    Writer(out).scheduling_info(lrp);
                };
                let show = LrpDeployment::scheduling_info;
                deployments(call, "desired_lrp_scheduling_infos", found, show, put)
            },
        ),
        route::read::<ProcessGuidRequest, DesiredLrpSchedulingInfoResponse>(
            "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
            "DesiredLRPSchedulingInfoByProcessGuid",
            "What placing one LRP needs to know.",
            |api, request| {
                let lrp = deployment(api, &request.process_guid)?;
                let info = Some(lrp.scheduling_info());
                Ok(DesiredLrpSchedulingInfoResponse { error: None, info })
            },
        ),
        route::list::<DesiredLrpsRequest, DesiredLrpsResponse>(
            "/v1/desired_lrp_routing_infos/list",
            "DesiredLRPRoutingInfos",
            "What routing each LRP needs to know: everything else is left empty.",
            |api, call, request| {
                let records = api.bbs.view().snapshot();
                let found = some_deployments(&records, &request, &[]);
                let put = |lrp: &LrpDeployment, out: &mut Vec<u8>| Writer(out).routing_info(lrp);
                deployments(call, "desired_lrps", found, LrpDeployment::routing_info, put)
            },
        ),
        route::change::<DesireLrpRequest, LifecycleResponse, _>(
            "/v1/desired_lrp/desire.r2",
            "DesireDesiredLRP",
            "Run this. Refused when the process is desired already.",
            |request| request.desired_lrp.process_guid.to_string(),
            |api, request| async move {
                let lrp = Valid::new(request.desired_lrp)
                    .map_err(|invalid| ApiFailure::within("desired_lrp", invalid))?;
                api.order(Command::DesireLrp(Box::new(lrp))).await
            },
        ),
        route::change::<UpdateDesiredLrpRequest, LifecycleResponse, _>(
            "/v1/desired_lrp/update",
            "UpdateDesireLRP",
            "Changes what may change without new containers, or begins a rolling update.",
            |request| request.process_guid.to_string(),
            |api, request| async move {
                let update = Valid::new(request.update)
                    .map_err(|invalid| ApiFailure::within("update", invalid))?;
                api.order(Command::UpdateDesiredLrp(request.process_guid, Box::new(update))).await
            },
        ),
        route::order::<ProcessGuidRequest>(
            "/v1/desired_lrp/remove",
            "RemoveDesiredLRP",
            "Stops running this.",
            |request| request.process_guid.to_string(),
            |request| Command::RemoveDesiredLrp(request.process_guid),
        ),
    ]);
    all
}

impl Api {
    /// Has the board do something that has no answer but that it is done.
    pub(super) async fn order(&self, command: Command) -> Result<LifecycleResponse, ApiFailure> {
        match self.bbs.ask_traced(command, trace::current()).await? {
            Reply::Done | Reply::ShouldStart(_) | Reply::KeepContainer(_) | Reply::Converged(_) => {
                Ok(LifecycleResponse { error: None })
            }
        }
    }
}

/// The keys that the reader asked for.
pub(super) fn fields<T: Schema>(call: &ApiRequest) -> Result<Option<Fields>, ApiFailure> {
    // A message has its fields, whatever is asked for.
    let asked = call.query.get("fields").filter(|_| call.encoding == Encoding::Json);
    asked.map(Fields::parse::<T>).transpose()
}

fn actual_lrps(call: &ApiRequest, lrps: Vec<Arc<ActualLrp>>) -> Result<Response<Body>, ApiFailure> {
    let fields = fields::<ActualLrp>(call)?;
    let mut tag = Tag::default();
    tag.add(call.query.get("fields"));
    for lrp in &lrps {
        tag.add((lrp.modification_tag, lrp.presence));
    }
    let encoding = call.encoding;
    let write: list::EntryWriter<Arc<ActualLrp>> = match fields {
        None => Box::new(move |lrp, text| encoding.append(text, &**lrp)),
        Some(fields) => {
            Box::new(move |lrp, text| append_json(text, &ProjectedRecord(&**lrp, &fields)))
        }
    };
    list::respond(&call.headers, encoding, "actual_lrps", lrps, &tag, write)
}

/// The instances that a filter means, by the shortest way to them.
fn some_instances(records: &Records, request: &ActualLrpsRequest) -> Vec<Arc<ActualLrp>> {
    let wanted = |lrp: &&Arc<ActualLrp>| {
        (request.domain.is_empty() || lrp.domain.as_str() == request.domain)
            && (request.process_guid.is_empty()
                || lrp.process_guid.as_str() == request.process_guid)
            && (request.cell_id.is_empty()
                || lrp.cell_id().is_some_and(|cell| cell.as_str() == request.cell_id))
            && request.index.is_none_or(|index| lrp.index == index)
    };
    if !request.process_guid.is_empty() {
        let Ok(guid) = ProcessGuid::new(&request.process_guid) else { return Vec::new() };
        let slots = records.process(&guid).map(Process::instances).unwrap_or_default();
        return slots.iter().map(|slot| &slot.lrp).filter(wanted).cloned().collect();
    }
    if !request.cell_id.is_empty() {
        let Ok(cell) = CellId::new(&request.cell_id) else { return Vec::new() };
        return records.instances_on(&cell).filter(wanted).cloned().collect();
    }
    records.instances().filter(wanted).cloned().collect()
}

/// The processes of these names that there are.
fn some_processes<'a>(records: &'a Records, guids: &[String]) -> impl Iterator<Item = &'a Process> {
    let mut guids: Vec<ProcessGuid> =
        guids.iter().filter_map(|guid| ProcessGuid::new(guid).ok()).collect();
    guids.sort();
    guids.dedup();
    guids.into_iter().filter_map(|guid| records.process(&guid))
}

fn groups<'a>(
    call: &ApiRequest,
    processes: impl Iterator<Item = &'a Process>,
    domain: &str,
    cell: &str,
) -> Result<Response<Body>, ApiFailure> {
    let fields = fields::<LrpGroup>(call)?;
    let mut tag = Tag::default();
    tag.add(call.query.get("fields"));
    let mut found = Vec::new();
    for process in processes {
        let wanted = |lrp: &&Arc<ActualLrp>| {
            (domain.is_empty() || lrp.domain.as_str() == domain)
                && (cell.is_empty() || lrp.cell_id().is_some_and(|it| it.as_str() == cell))
        };
        let lrps = process.instances().iter().map(|slot| &slot.lrp).filter(wanted);
        let lrps = lrps.inspect(|lrp| tag.add((lrp.modification_tag, lrp.presence)));
        found.extend(resolve::groups(lrps).into_iter().map(|(_, group)| group));
    }
    let encoding = call.encoding;
    let write: list::EntryWriter<LrpGroup> = match fields {
        None => Box::new(move |group, text| encoding.append(text, group)),
        Some(fields) => {
            Box::new(move |group, text| append_json(text, &ProjectedRecord(group, &fields)))
        }
    };
    list::respond(&call.headers, encoding, "actual_lrp_groups", found, &tag, write)
}

/// What there is at one index: of the active definition, or while it has nothing there, of the one that
/// serves.
fn group_at(records: &Records, request: &ProcessGuidAndIndexRequest) -> Option<LrpGroup> {
    let process = records.process(&request.process_guid)?;
    let definition = process.definition_at(request.index)?;
    Some(process.group(definition, request.index))
}

/// The deployments that a filter means.
pub(super) fn some_deployments(
    records: &Records,
    request: &DesiredLrpsRequest,
    app_guids: &[String],
) -> Vec<Arc<LrpDeployment>> {
    let wanted = |lrp: &&Arc<LrpDeployment>| {
        (request.domain.is_empty() || lrp.domain.as_str() == request.domain)
            && (app_guids.is_empty()
                || app_guids.iter().any(|app| lrp.process_guid.as_str().starts_with(app.as_str())))
    };
    if request.process_guids.is_empty() {
        return records.deployments().filter(wanted).cloned().collect();
    }
    let found = some_processes(records, &request.process_guids);
    let found = found.filter_map(|process| process.deployment.as_ref().map(|(_, lrp)| lrp));
    found.filter(wanted).cloned().collect()
}

/// A list of what some deployments look like: `show` makes what JSON is written of, `put` writes the same as
/// a message, straight from the record if it can.
pub(super) fn deployments<T: serde::Serialize + Schema>(
    call: &ApiRequest,
    key: &'static str,
    found: Vec<Arc<LrpDeployment>>,
    show: impl Fn(&LrpDeployment) -> T + Send + 'static,
    put: impl Fn(&LrpDeployment, &mut Vec<u8>) + Send + 'static,
) -> Result<Response<Body>, ApiFailure> {
    let fields = fields::<T>(call)?;
    let mut tag = Tag::default();
    tag.add(call.query.get("fields"));
    for lrp in &found {
        tag.add(lrp.modification_tag);
    }
    let encoding = call.encoding;
    let write: list::EntryWriter<Arc<LrpDeployment>> = match (encoding, fields) {
        (Encoding::Protobuf, _) => Box::new(move |lrp, text| {
            put(lrp, text);
            Ok(())
        }),
        (Encoding::Json, None) => Box::new(move |lrp, text| append_json(text, &show(lrp))),
        (Encoding::Json, Some(fields)) => {
            Box::new(move |lrp, text| append_json(text, &ProjectedRecord(&show(lrp), &fields)))
        }
    };
    list::respond(&call.headers, encoding, key, found, &tag, write)
}

/// What is desired of a process.
pub(super) fn deployment(api: &Api, guid: &ProcessGuid) -> Result<Arc<LrpDeployment>, ApiFailure> {
    let records = api.bbs.view().snapshot();
    let found = records.deployment(guid).map(|(_, lrp)| Arc::clone(lrp));
    found.ok_or_else(|| ApiFailure::not_found(&format!("process {guid}")))
}

fn whole_list(path: &'static str, name: &'static str, form: fn(DesiredLrp) -> DesiredLrp) -> Route {
    route::list::<DesiredLrpsRequest, DesiredLrpsResponse>(
        path,
        name,
        "Every desired LRP, whole.",
        move |api, call, request| {
            let records = api.bbs.view().snapshot();
            let found = some_deployments(&records, &request, &request.app_guids);
            let show = move |lrp: &LrpDeployment| form(completed(lrp.project()));
            let put = move |lrp: &LrpDeployment, out: &mut Vec<u8>| (&show(lrp)).put_diego(out);
            deployments(call, "desired_lrps", found, show, put)
        },
    )
}

fn one(path: &'static str, name: &'static str, form: fn(DesiredLrp) -> DesiredLrp) -> Route {
    route::read::<ProcessGuidRequest, DesiredLrpResponse>(
        path,
        name,
        "One desired LRP, whole.",
        move |api, request| {
            let lrp = deployment(api, &request.process_guid)?;
            let desired_lrp = Some(form(completed(lrp.project())));
            Ok(DesiredLrpResponse { error: None, desired_lrp })
        },
    )
}

/// Readers find whose metrics they are in either place, wherever the consumer has put it.
fn completed(mut lrp: DesiredLrp) -> DesiredLrp {
    const SOURCE: &str = "source_id";
    match (lrp.definition.metrics_guid.is_empty(), lrp.metric_tags.get(SOURCE)) {
        (true, Some(MetricTagValue::Static(source))) => {
            lrp.definition.metrics_guid = source.clone();
        }
        (false, None) => {
            let source = MetricTagValue::Static(lrp.definition.metrics_guid.clone());
            lrp.metric_tags.insert(SOURCE.to_owned(), source);
        }
        (true, _) | (false, Some(_)) => {}
    }
    lrp
}

fn downgraded(mut lrp: DesiredLrp) -> DesiredLrp {
    lrp.definition.without_layers();
    lrp
}
