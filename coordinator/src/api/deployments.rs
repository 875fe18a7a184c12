//! Deployments: processes with several definitions, and rolling updates.

use std::sync::Arc;

use volvox_protocol::api::{
    LifecycleResponse, LrpDeploymentResponse, LrpDeploymentsResponse, ProcessGuidRequest,
};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::deployment::{
    ActivateLrpDeploymentDefinitionRequest, CreateLrpDeploymentRequest, LrpDeploymentsRequest,
    RollbackDesiredLrpRequest, UpdateLrpDeploymentRequest,
};
use volvox_protocol::validate::Valid;

use super::fields::Only;
use super::list::{self, Tag};
use super::lrps::{deployment, fields};
use super::reply::Failure;
use super::route::{self, Route};
use crate::bbs::command::Command;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let mut all = reading();
    all.extend(changing());
    let process = |request: &ProcessGuidRequest| request.process_guid.to_string();
    all.extend([
        route::order::<ProcessGuidRequest>(
            "/v1/lrp_deployment/delete",
            "DeleteLRPDeployment",
            "Stops every instance and forgets the deployment.",
            process,
            |request| Command::DeleteDeployment(request.process_guid),
        ),
        route::order::<ProcessGuidRequest>(
            "/v1/desired_lrp/cancel_update",
            "CancelUpdateDesiredLRP",
            "Takes an update back: every instance returns to the definition before it.",
            process,
            |request| Command::CancelUpdate(request.process_guid),
        ),
        route::order::<ProcessGuidRequest>(
            "/v1/lrp_deployment/promote",
            "PromoteLRPDeployment",
            "The canaries are good: lets the update go on.",
            process,
            |request| Command::PromoteUpdate(request.process_guid),
        ),
        route::order::<ProcessGuidRequest>(
            "/v1/lrp_deployment/pause",
            "PauseLRPDeployment",
            "Has an update take up no more indices.",
            process,
            |request| Command::PauseUpdate(request.process_guid),
        ),
        route::order::<ProcessGuidRequest>(
            "/v1/lrp_deployment/resume",
            "ResumeLRPDeployment",
            "Lets an update go on that was paused or has stalled.",
            process,
            |request| Command::ResumeUpdate(request.process_guid),
        ),
        route::order::<ActivateLrpDeploymentDefinitionRequest>(
            "/v1/lrp_deployment/activate",
            "ActivateLRPDeploymentDefinition",
            "Goes to a definition that the deployment has.",
            |request| format!("{}/{}", request.process_guid, request.definition_id),
            |request| Command::ActivateDefinition(request.process_guid, request.definition_id),
        ),
        route::order::<RollbackDesiredLrpRequest>(
            "/v1/desired_lrp/rollback",
            "RollbackDesiredLRP",
            "Goes back to an earlier definition, from the deployment or from its history.",
            |request| format!("{}/{}", request.process_guid, request.definition_id),
            |request| Command::Rollback(request.process_guid, request.definition_id),
        ),
    ]);
    all
}

fn reading() -> Vec<Route> {
    vec![
        route::list::<LrpDeploymentsRequest, LrpDeploymentsResponse>(
            "/v1/lrp_deployments/list",
            "LRPDeployments",
            "Every deployment, with its definitions and its update under way.",
            |api, call, request| {
                let fields = fields::<LrpDeployment>(call)?;
                let records = api.bbs.view().snapshot();
                let wanted = |lrp: &Arc<LrpDeployment>| {
                    request.domain.as_ref().is_none_or(|domain| lrp.domain == *domain)
                };
                let found: Vec<Arc<LrpDeployment>> = if request.process_guids.is_empty() {
                    let all = records.processes().filter_map(|(_, it)| it.deployment.as_ref());
                    all.map(|(_, lrp)| Arc::clone(lrp)).filter(wanted).collect()
                } else {
                    let mut guids = request.process_guids;
                    guids.sort();
                    guids.dedup();
                    let some = guids.iter().filter_map(|guid| records.deployment(guid));
                    some.map(|(_, lrp)| Arc::clone(lrp)).filter(wanted).collect()
                };
                let mut tag = Tag::default();
                tag.add(call.query.get("fields"));
                for lrp in &found {
                    tag.add(lrp.modification_tag);
                }
                let encoding = call.encoding;
                let write: list::Write<Arc<LrpDeployment>> = match fields {
                    None => Box::new(move |lrp, text| encoding.append(text, &**lrp)),
                    Some(fields) => {
                        Box::new(move |lrp, text| encoding.append(text, &Only(&**lrp, &fields)))
                    }
                };
                list::respond(&call.headers, encoding, "deployments", found, &tag, write)
            },
        ),
        route::read::<ProcessGuidRequest, LrpDeploymentResponse>(
            "/v1/lrp_deployments/get_by_process_guid",
            "LRPDeploymentByProcessGuid",
            "One deployment, with its definitions and its update under way.",
            |api, request| {
                let deployment = Some(deployment(api, &request.process_guid)?);
                Ok(LrpDeploymentResponse { error: None, deployment })
            },
        ),
    ]
}

fn changing() -> Vec<Route> {
    vec![
        route::change::<CreateLrpDeploymentRequest, LifecycleResponse, _>(
            "/v1/lrp_deployment/create",
            "CreateLRPDeployment",
            "Runs this, from this definition.",
            |request| request.deployment.process_guid.to_string(),
            |api, request| async move {
                let asked = Valid::new(request.deployment)
                    .map_err(|invalid| Failure::within("deployment", invalid))?;
                api.order(Command::CreateDeployment(Box::new(asked))).await
            },
        ),
        route::change::<UpdateLrpDeploymentRequest, LifecycleResponse, _>(
            "/v1/lrp_deployment/update",
            "UpdateLRPDeployment",
            "Changes a deployment. A new definition supersedes an update that is under way.",
            |request| request.process_guid.to_string(),
            |api, request| async move {
                let update = Valid::new(request.update)
                    .map_err(|invalid| Failure::within("update", invalid))?;
                api.order(Command::UpdateDeployment(request.process_guid, Box::new(update))).await
            },
        ),
    ]
}
