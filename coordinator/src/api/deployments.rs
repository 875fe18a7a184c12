//! Deployments: processes with several definitions, and rolling updates.

use volvox_protocol::api::{
    DesiredLrpsRequest, LifecycleResponse, LrpDeploymentResponse, LrpDeploymentsResponse,
    ProcessGuidRequest,
};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::deployment::{
    ActivateLrpDeploymentDefinitionRequest, CreateLrpDeploymentRequest, LrpDeploymentsRequest,
    RollbackDesiredLrpRequest, UpdateLrpDeploymentRequest,
};
use volvox_protocol::validate::Valid;

use super::lrps::{deployment, deployments, some_deployments};
use super::reply::ApiFailure;
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
            "Every deployment, with its definitions and its update under way, without its history.",
            |api, call, request| {
                let request = DesiredLrpsRequest {
                    domain: request.domain.map(String::from).unwrap_or_default(),
                    process_guids: request.process_guids.into_iter().map(String::from).collect(),
                    app_guids: Vec::new(),
                };
                let found = some_deployments(&api.bbs.view().snapshot(), &request, &[]);
                // The BBS has no messages for these, and protobuf does not come here.
                deployments(call, "deployments", found, LrpDeployment::without_history, |_, _| {})
            },
        ),
        route::read::<ProcessGuidRequest, LrpDeploymentResponse>(
            "/v1/lrp_deployments/get_by_process_guid",
            "LRPDeploymentByProcessGuid",
            "One deployment, with its definitions, its update under way and its history.",
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
                    .map_err(|invalid| ApiFailure::within("deployment", invalid))?;
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
                    .map_err(|invalid| ApiFailure::within("update", invalid))?;
                api.order(Command::UpdateDeployment(request.process_guid, Box::new(update))).await
            },
        ),
    ]
}
