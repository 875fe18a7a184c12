//! The bodies of the HTTP API, with the BBS's names: what a consumer sends and what it is answered.
//!
//! Every answer may have an `error` instead of its content. A filter that is empty or left out does
//! not filter. Rules about what is inside are the records' own.

mod certificate;
mod rep;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::actual_lrp::{ActualLrp, LrpGroup, LrpKey};
use crate::cell::{CellCapacity, CellPresenceJson};
use crate::deployment::LrpDeployment;
use crate::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo, DesiredLrpUpdate};
use crate::id::{CellId, Domain, ProcessGuid, TaskGuid};
use crate::record::record;
use crate::schema::{Components, Schema};
use crate::task::{Task, TaskDefinition};
use crate::time::Timestamp;

pub use certificate::{IssueCertificateRequest, IssueCertificateResponse};
pub use rep::{
    ActualLrpInstanceRequest, ClaimActualLrpRequest, CompleteTaskRequest, CrashActualLrpRequest,
    EvacuateRunningActualLrpRequest, EvacuationResponse, FailActualLrpRequest, FailTaskRequest,
    RejectTaskRequest, RemoveActualLrpRequest, StartActualLrpRequest, StartTaskRequest,
    StartTaskResponse,
};

record! {
    /// Why a call failed.
    #[derive(Default)]
    pub struct ApiError {
        /// The kind, by the BBS's name for it.
        kind: String = "type" required,
        /// What was wrong and, where there is one, the way out.
        message: String = "message" required,
        /// For bad input: each field that broke a rule.
        details: Vec<FieldError> = "details" omit,
    }
}

record! {
    /// One field of a request that broke a rule.
    #[derive(Default)]
    pub struct FieldError {
        /// Where in the body, such as `desired_lrp.action.run.path`.
        path: String = "path" required,
        /// The rule.
        rule: String = "rule" required,
    }
}

record! {
    /// The answer to a call that has nothing to say but whether it failed.
    #[derive(Default)]
    pub struct LifecycleResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
    }
}

record! {
    /// Whether the board answers.
    #[derive(Default)]
    pub struct PingResponse {
        /// It does.
        available: bool = "available" always,
    }
}

/// A call with nothing to say: its body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRequest {}

impl Schema for NoRequest {
    fn schema(_: &mut Components) -> serde_json::Value {
        crate::schema::object(Vec::new(), &[])
    }
}

// ---- domains and cells ----

record! {
    /// Says that a domain is fresh.
    pub struct UpsertDomainRequest {
        /// Which.
        domain: Domain = "domain" required,
        /// For how many seconds; 0: for ever.
        ttl: u32 = "ttl" always,
    }
}

record! {
    /// The domains that are fresh.
    #[derive(Default)]
    pub struct DomainsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// By name.
        domains: Vec<Domain> = "domains" omit,
    }
}

record! {
    /// The cells that are there.
    #[derive(Default)]
    pub struct CellsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// By id.
        cells: Vec<CellPresenceJson> = "cells" omit,
    }
}

record! {
    /// Names a cell.
    pub struct CellRequestBody {
        /// Which.
        cell_id: CellId = "cell_id" required,
    }
}

record! {
    /// The cells as the coordinator last heard of them.
    #[derive(Default)]
    pub struct CellStatesResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// By id.
        cells: Vec<CellState> = "cells" omit,
        /// While the replacement of vanished cells is held: until when.
        held_until: Option<Timestamp> = "held_until" omit,
        /// While the replacement of vanished cells is held: how many they are.
        held_cells: u32 = "held_cells" omit,
    }
}

record! {
    /// Names an instance, or a task.
    #[derive(Default)]
    pub struct ExplainRequest {
        /// The instance's process.
        process_guid: String = "process_guid" omit,
        /// The instance's index.
        index: u32 = "index" omit,
        /// The task.
        task_guid: String = "task_guid" omit,
    }
}

record! {
    /// Why something is where it is, or nowhere.
    #[derive(Default)]
    pub struct ExplainResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// The round that decided, its verdict, the best cells, and what ruled out the others.
        explanation: serde_json::Value = "explanation" omit,
    }
}

record! {
    /// How one cell is doing.
    pub struct CellState {
        /// Which.
        cell_id: CellId = "cell_id" required,
        /// Its zone.
        zone: String = "zone" always,
        /// All of its room.
        total: CellCapacity = "total" always,
        /// The room that it last said was free.
        free: CellCapacity = "free" always,
        /// Containers that are being started.
        starting: u32 = "starting" always,
        /// Whether it hands its work over.
        evacuating: bool = "evacuating" always,
        /// Whether its self-test passes.
        healthy: bool = "healthy" always,
        /// Instances that the board has there.
        instances: u32 = "instances" always,
        /// Tasks that the board has there.
        tasks: u32 = "tasks" always,
    }
}

// ---- actual LRPs ----

record! {
    /// Which instances are meant. Filters are ANDed.
    #[derive(Default)]
    pub struct ActualLrpsRequest {
        /// Of this domain.
        domain: String = "domain" always,
        /// On this cell.
        cell_id: String = "cell_id" always,
        /// Of this process.
        process_guid: String = "process_guid" always,
        /// At this index.
        index: Option<u32> = "index" omit,
    }
}

record! {
    /// Which processes' instances are meant.
    #[derive(Default)]
    pub struct ActualLrpsByProcessGuidsRequest {
        /// At least one.
        process_guids: Vec<String> = "process_guids" required,
    }
}

record! {
    /// Instances.
    #[derive(Default)]
    pub struct ActualLrpsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each record.
        actual_lrps: Vec<Arc<ActualLrp>> = "actual_lrps" omit,
    }
}

record! {
    /// Which groups are meant. Filters are ANDed.
    #[derive(Default)]
    pub struct ActualLrpGroupsRequest {
        /// Of this domain.
        domain: String = "domain" always,
        /// With a record on this cell.
        cell_id: String = "cell_id" always,
    }
}

record! {
    /// Names a process.
    pub struct ProcessGuidRequest {
        /// Which.
        process_guid: ProcessGuid = "process_guid" required,
    }
}

record! {
    /// Names an index of a process.
    pub struct ProcessGuidAndIndexRequest {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Which index.
        index: u32 = "index" always,
    }
}

record! {
    /// Groups: what there is at each index of each definition.
    #[derive(Default)]
    pub struct ActualLrpGroupsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each index.
        actual_lrp_groups: Vec<LrpGroup> = "actual_lrp_groups" omit,
    }
}

record! {
    /// One group.
    #[derive(Default)]
    pub struct ActualLrpGroupResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// What there is at the index.
        actual_lrp_group: Option<LrpGroup> = "actual_lrp_group" omit,
    }
}

record! {
    /// Stops one instance; another takes its place.
    pub struct RetireActualLrpRequest {
        /// Which.
        actual_lrp_key: LrpKey = "actual_lrp_key" required,
    }
}

// ---- desired LRPs ----

record! {
    /// Which desired LRPs are meant. Filters are ANDed.
    #[derive(Default)]
    pub struct DesiredLrpsRequest {
        /// Of this domain.
        domain: String = "domain" always,
        /// These.
        process_guids: Vec<String> = "process_guids" omit,
        /// Those whose guid begins with one of these. Only the list of whole records looks at it.
        app_guids: Vec<String> = "app_guids" omit,
    }
}

record! {
    /// Desired LRPs.
    #[derive(Default)]
    pub struct DesiredLrpsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each process.
        desired_lrps: Vec<DesiredLrp> = "desired_lrps" omit,
    }
}

record! {
    /// One desired LRP.
    #[derive(Default)]
    pub struct DesiredLrpResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// It.
        desired_lrp: Option<DesiredLrp> = "desired_lrp" omit,
    }
}

record! {
    /// What placing needs to know.
    #[derive(Default)]
    pub struct DesiredLrpSchedulingInfosResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each process.
        infos: Vec<DesiredLrpSchedulingInfo> = "desired_lrp_scheduling_infos" omit,
    }
}

record! {
    /// What placing one LRP needs to know.
    #[derive(Default)]
    pub struct DesiredLrpSchedulingInfoResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// It.
        info: Option<DesiredLrpSchedulingInfo> = "desired_lrp_scheduling_info" omit,
    }
}

record! {
    /// Run this.
    pub struct DesireLrpRequest {
        /// What.
        desired_lrp: DesiredLrp = "desired_lrp" required,
    }
}

record! {
    /// Change this.
    pub struct UpdateDesiredLrpRequest {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// What becomes of it.
        update: DesiredLrpUpdate = "update" always,
    }
}

// ---- deployments; their requests are beside the deployment ----

record! {
    /// One deployment.
    #[derive(Default)]
    pub struct LrpDeploymentResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// It.
        deployment: Option<Arc<LrpDeployment>> = "deployment" omit,
    }
}

record! {
    /// Deployments.
    #[derive(Default)]
    pub struct LrpDeploymentsResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each process.
        deployments: Vec<Arc<LrpDeployment>> = "deployments" omit,
    }
}

// ---- tasks ----

record! {
    /// Which tasks are meant. Filters are ANDed.
    #[derive(Default)]
    pub struct TasksRequest {
        /// Of this domain.
        domain: String = "domain" always,
        /// On this cell.
        cell_id: String = "cell_id" always,
    }
}

record! {
    /// Names a task.
    pub struct TaskGuidRequest {
        /// Which.
        task_guid: TaskGuid = "task_guid" required,
    }
}

record! {
    /// Run this once.
    pub struct DesireTaskRequest {
        /// What.
        task_definition: TaskDefinition = "task_definition" required,
        /// Under which name.
        task_guid: TaskGuid = "task_guid" required,
        /// Whose it is.
        domain: Domain = "domain" required,
    }
}

record! {
    /// Tasks.
    #[derive(Default)]
    pub struct TasksResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// One for each.
        tasks: Vec<Arc<Task>> = "tasks" omit,
    }
}

record! {
    /// One task.
    #[derive(Default)]
    pub struct TaskResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// It.
        task: Option<Arc<Task>> = "task" omit,
    }
}

record! {
    /// Callbacks that did not succeed at once.
    #[derive(Default)]
    pub struct CallbacksResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// The latest first.
        callbacks: Vec<CallbackFailure> = "callbacks" omit,
    }
}

record! {
    /// The last failure of one task's callback.
    pub struct CallbackFailure {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Where it was to be told, without what may be secret in it.
        url: String = "url" always,
        /// How often it was tried.
        attempts: u32 = "attempts" always,
        /// When it last failed.
        failed_at: Timestamp = "failed_at" always,
        /// What came back.
        reason: String = "reason" always,
        /// Whether it has been given up.
        given_up: bool = "given_up" always,
    }
}

// ---- events ----

record! {
    /// Which events are wanted.
    #[derive(Default)]
    pub struct EventsRequest {
        /// Those of this cell. Desired LRPs are told whatever the cell.
        cell_id: String = "cell_id" omit,
    }
}

// ---- logs and terminals ----

record! {
    /// Whose log is meant: of a process all instances, or one; or a task.
    #[derive(Default)]
    pub struct LogsRequest {
        /// The process.
        process_guid: String = "process_guid" omit,
        /// Only at this index.
        index: Option<u32> = "index" omit,
        /// Only this instance.
        instance_guid: String = "instance_guid" omit,
        /// The task, in place of a process.
        task_guid: String = "task_guid" omit,
        /// Go on with what comes; of a process also with instances that come.
        follow: bool = "follow" omit,
        /// Of what there is, the last so many lines of each instance.
        tail: Option<u32> = "tail" omit,
        /// Only lines that were written then or later.
        since: Timestamp = "since" omit,
    }
}

record! {
    /// One line of a log; or, with `error`, why there are no more of an instance.
    #[derive(Default)]
    pub struct LogEntry {
        /// When it was written.
        time: Timestamp = "time" always,
        /// `out` or `err`.
        stream: String = "stream" always,
        /// Whose it is: the definition's log source, or the cell's.
        source: String = "source" always,
        /// The instance's index.
        index: u32 = "index" always,
        /// The instance; of a task, its guid.
        instance_guid: String = "instance_guid" always,
        /// What it says. What is not UTF-8 is replaced.
        message: String = "message" always,
        /// Why there are no more lines of this instance.
        error: Option<ApiError> = "error" omit,
    }
}

record! {
    /// A program to run with a terminal in an instance, or in a task.
    #[derive(Default)]
    pub struct ExecRequest {
        /// The process.
        process_guid: String = "process_guid" omit,
        /// Its index.
        index: u32 = "index" omit,
        /// Only this instance: where one replaces another there are two at an index.
        instance_guid: String = "instance_guid" omit,
        /// The task, in place of a process.
        task_guid: String = "task_guid" omit,
        /// The program and its arguments.
        command: Vec<String> = "command" required,
        /// Who runs it, by the container's own names; left out: root.
        user: String = "user" omit,
        /// Where it starts; left out: the user's home.
        dir: String = "dir" omit,
        /// More of its environment, `NAME=value`.
        env: Vec<String> = "env" omit,
        /// Lines of the terminal; left out: 24.
        rows: u32 = "rows" omit,
        /// Characters of a line; left out: 80.
        columns: u32 = "columns" omit,
    }
}

// ---- members of the mesh ----

record! {
    /// Makes a line with which machines join.
    pub struct JoinTokenRequest {
        /// What they will be.
        role: MemberRole = "role" always,
        /// For exactly this cell; empty: for any.
        cell_id: String = "cell_id" omit,
        /// Whether a live member of that name is expelled. Needs a cell id.
        replace: bool = "replace" omit,
        /// How often it may be used; 0: once.
        uses: u32 = "uses" omit,
        /// For how many seconds it may be used; 0: a day.
        lifetime_s: u32 = "lifetime_s" omit,
        /// For people.
        label: String = "label" omit,
        /// Where the joining machine finds the coordinator, `host:port` each; empty: where it says that
        /// it is.
        addresses: Vec<String> = "addresses" omit,
    }
}

/// What a member of the mesh is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberRole {
    /// It runs containers.
    #[default]
    Cell,
    /// It holds the board.
    Coordinator,
}

impl Schema for MemberRole {
    fn schema(_: &mut Components) -> serde_json::Value {
        serde_json::json!({ "type": "string", "enum": ["cell", "coordinator"] })
    }
}

record! {
    /// A new line to join with. It is shown once.
    #[derive(Default)]
    pub struct JoinTokenResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// Names the token.
        id: String = "id" omit,
        /// The line.
        join_token: String = "join_token" omit,
        /// Until when it may be used.
        expires_at: Timestamp = "expires_at" omit,
    }
}

record! {
    /// The tokens there are, without their secrets.
    #[derive(Default)]
    pub struct JoinTokensResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// The tokens.
        join_tokens: Vec<JoinTokenInfo> = "join_tokens" omit,
    }
}

record! {
    /// A token, without its secret.
    pub struct JoinTokenInfo {
        /// Names it.
        id: String = "id" required,
        /// What its members will be.
        role: MemberRole = "role" always,
        /// For exactly this cell; empty: for any.
        cell_id: String = "cell_id" omit,
        /// How often it may still be used.
        uses_left: u32 = "uses_left" always,
        /// When it was made.
        created_at: Timestamp = "created_at" always,
        /// Until when it may be used.
        expires_at: Timestamp = "expires_at" always,
        /// For people.
        label: String = "label" omit,
    }
}

record! {
    /// Names a join token.
    pub struct JoinTokenIdRequest {
        /// Which.
        id: String = "id" required,
    }
}

record! {
    /// Names a member of the mesh, by one of the two.
    #[derive(Default)]
    pub struct MemberRequest {
        /// Its number.
        member_id: String = "member_id" omit,
        /// Its cell id.
        cell_id: String = "cell_id" omit,
    }
}

record! {
    /// The members that were ever let in.
    #[derive(Default)]
    pub struct MembersResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// By number.
        members: Vec<MemberInfo> = "members" omit,
    }
}

record! {
    /// One member of the mesh.
    pub struct MemberInfo {
        /// Its number.
        member_id: String = "member_id" required,
        /// What it is for.
        role: MemberRole = "role" always,
        /// Its cell id, or a coordinator's name.
        name: String = "name" always,
        /// When it joined.
        joined_at: Timestamp = "joined_at" always,
        /// When its newest certificate ends.
        certificate_until: Timestamp = "certificate_until" always,
        /// When it was expelled; left out: it was not.
        revoked_at: Option<Timestamp> = "revoked_at" omit,
    }
}

record! {
    /// Which release this is.
    #[derive(Default)]
    pub struct VersionResponse {
        /// The release.
        version: String = "version" always,
        /// The version of the mesh's protocol.
        mesh: String = "mesh" always,
        /// The version of the database.
        schema: u32 = "schema" always,
    }
}
