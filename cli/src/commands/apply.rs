//! `volvox apply`: makes apps be as files say. `run` comes here too.
//!
//! What is there is read first, and only what differs is sent: so the same file applied twice
//! changes nothing, and `--dry-run` shows exactly what would be sent.

use serde_json::{Value, json};
use volvox_protocol::api::{
    DesiredLrpSchedulingInfosResponse, DesiredLrpsRequest, DomainsResponse, LifecycleResponse,
    NoRequest, UpsertDomainRequest,
};
use volvox_protocol::deployment::{
    ActivateLrpDeploymentDefinitionRequest, CreateLrpDeploymentRequest, LrpDeployment,
    LrpDeploymentUpdate, RolloutPolicy, UpdateLrpDeploymentRequest,
};
use volvox_protocol::id::{DefinitionId, Domain};

use crate::Context;
use crate::appfile::{self, App};
use crate::args::{ApplyArgs, Waiting};
use crate::client::Client;
use crate::diff::{self, Change};
use crate::error::{Code, Failure};
use crate::output::{Output, Style, count};
use crate::wait;

/// What is to be done about one app.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// It is not there.
    Create,
    /// It is as it should be.
    Nothing,
    /// This differs; a definition that the deployment has in use is only activated.
    Update { update: Box<LrpDeploymentUpdate>, activate: Option<DefinitionId> },
}

impl Plan {
    const fn word(&self) -> &'static str {
        match self {
            Plan::Create => "created",
            Plan::Nothing => "unchanged",
            Plan::Update { .. } => "updated",
        }
    }
}

pub(super) fn run(context: &mut Context, args: &ApplyArgs) -> Result<(), Failure> {
    let mut apps: Vec<App> = Vec::new();
    for file in &args.files {
        apps.extend(appfile::read_apps(file)?);
    }
    for (nth, app) in apps.iter().enumerate() {
        let name = &app.asked.process_guid;
        if apps[..nth].iter().any(|known| known.asked.process_guid == *name) {
            return Err(Failure::usage(format!("app {name} is in several of the files")));
        }
    }
    all(context, apps, args.dry_run, args.waiting)
}

/// Makes apps be as they are wanted: all are sent before any is waited for.
pub(super) fn all(
    context: &mut Context,
    apps: Vec<App>,
    dry_run: bool,
    waiting: Waiting,
) -> Result<(), Failure> {
    let client = context.client()?;
    let out = &mut context.out;
    let mut planned = Vec::with_capacity(apps.len());
    for mut app in apps {
        let found = client.find_deployment(&app.asked.process_guid)?;
        let plan = plan(&mut app, found.as_deref())?;
        let changes = changes(&app, found.as_deref());
        planned.push((app, plan, changes, found));
    }
    if !dry_run {
        keep_fresh(&client, out, planned.iter().map(|(app, ..)| &app.asked.domain))?;
    }
    for (app, plan, changes, found) in &planned {
        if !dry_run {
            carry_out(&client, app, plan)?;
        }
        if let Some(roll) = found.as_ref().and_then(|it| it.roll.as_ref())
            && matches!(plan, Plan::Update { activate, update } if activate.is_some() || update.definition.is_some())
        {
            let (name, to) = (&app.asked.process_guid, &app.asked.definition_id);
            let from = &roll.previous_definition_id;
            out.note(&format!("{name}: {to} supersedes the update from {from} that is under way"))?;
        }
        report(out, app, plan, changes, dry_run)?;
    }
    out.finish()?;
    if waiting.wait && !dry_run {
        for (app, ..) in &planned {
            let (name, id) = (&app.asked.process_guid, &app.asked.definition_id);
            wait::for_app(&client, out, name, Some(id), waiting.limit)?;
        }
    }
    Ok(())
}

/// Decides what is to be done, and under which id the definition is known.
fn plan(app: &mut App, found: Option<&LrpDeployment>) -> Result<Plan, Failure> {
    let Some(found) = found else { return Ok(Plan::Create) };
    let asked = &mut app.asked;
    let name = asked.process_guid.clone();
    if !app.says_instances {
        asked.instances = found.instances;
    }
    if asked.domain != found.domain {
        let (from, to) = (&found.domain, &asked.domain);
        return Err(Failure::refused(format!("{name} is of domain {from:?}, not {to:?}"))
            .hint(format!("say domain = {from:?}, or remove it first: `volvox stop {name}`")));
    }
    if asked.update_strategy != found.update_strategy {
        return Err(Failure::refused(format!("{name}: the strategy of an app cannot be changed"))
            .hint(format!("remove it first: `volvox stop {name} --wait`")));
    }
    let mut update = LrpDeploymentUpdate::default();
    let mut activate = None;
    if found.active_definition().as_ref() == Some(&asked.definition) {
        asked.definition_id = found.active_definition_id.clone();
    } else {
        let known = || found.definitions.iter();
        let same = known().find(|(_, known)| known.unpack() == asked.definition);
        let taken = known().any(|(id, _)| *id == asked.definition_id);
        match same {
            Some((id, _)) => {
                asked.definition_id = id.clone();
                activate = Some(id.clone());
            }
            None if taken && app.says_definition_id => {
                let id = &asked.definition_id;
                return Err(Failure::refused(format!(
                    "{name} has another definition that is called {id}"
                ))
                .hint("give the new one another definition_id, or none: it gets one by itself"));
            }
            None => {
                update.definition_id = Some(asked.definition_id.clone());
                update.definition = Some(Box::new(asked.definition.clone()));
            }
        }
    }
    update.instances = (asked.instances != found.instances).then_some(asked.instances);
    update.routes = (asked.routes != found.routes.get()).then(|| asked.routes.clone());
    update.annotation = (*asked.annotation != *found.annotation).then(|| asked.annotation.clone());
    update.metric_tags =
        (asked.metric_tags != found.metric_tags.get()).then(|| asked.metric_tags.clone());
    let rollout = asked.rollout.unwrap_or_default();
    update.rollout = (rollout != found.policy()).then_some(rollout);
    if update == LrpDeploymentUpdate::default() && activate.is_none() {
        return Ok(Plan::Nothing);
    }
    Ok(Plan::Update { update: Box::new(update), activate })
}

/// What differs, for people: the definition's keys beside the others, as in a file.
fn changes(app: &App, found: Option<&LrpDeployment>) -> Vec<Change> {
    let flat = |definition: Value, rest: Value| {
        let mut all = definition;
        if let (Value::Object(all), Value::Object(rest)) = (&mut all, rest) {
            all.extend(rest);
        }
        all
    };
    let asked = &app.asked;
    let after = flat(
        json!(asked.definition),
        json!({
            "instances": asked.instances, "routes": asked.routes, "annotation": asked.annotation,
            "metric_tags": asked.metric_tags, "rollout": asked.rollout.unwrap_or_default(),
        }),
    );
    let before = found.map(|found| {
        flat(
            json!(found.active_definition().unwrap_or_default()),
            json!({
                "instances": found.instances, "routes": found.routes.get(),
                "annotation": found.annotation, "metric_tags": found.metric_tags.get(),
                "rollout": found.policy(),
            }),
        )
    });
    diff::diff(&before.unwrap_or_else(|| json!({"rollout": RolloutPolicy::default()})), &after)
}

fn carry_out(client: &Client, app: &App, plan: &Plan) -> Result<(), Failure> {
    let name = app.asked.process_guid.clone();
    let about = |failure: Failure| failure.about(name.as_str());
    match plan {
        Plan::Nothing => {}
        Plan::Create => {
            let request = CreateLrpDeploymentRequest { deployment: app.asked.clone() };
            let _: LifecycleResponse =
                client.call("/v1/lrp_deployment/create", &request).map_err(|failure| {
                    let hint = "somebody was faster: apply it again";
                    about(failure.hint_for(Code::Refused, hint))
                })?;
        }
        Plan::Update { update, activate } => {
            if **update != LrpDeploymentUpdate::default() {
                let process_guid = name.clone();
                let request =
                    UpdateLrpDeploymentRequest { process_guid, update: (**update).clone() };
                let _: LifecycleResponse =
                    client.call("/v1/lrp_deployment/update", &request).map_err(about)?;
            }
            if let Some(definition_id) = activate.clone() {
                let request = ActivateLrpDeploymentDefinitionRequest {
                    process_guid: name.clone(),
                    definition_id,
                };
                let _: LifecycleResponse =
                    client.call("/v1/lrp_deployment/activate", &request).map_err(about)?;
            }
        }
    }
    Ok(())
}

fn report(
    out: &mut Output,
    app: &App,
    plan: &Plan,
    changes: &[Change],
    dry_run: bool,
) -> Result<(), Failure> {
    let (name, id) = (&app.asked.process_guid, &app.asked.definition_id);
    if out.is_json() {
        return out.entry(&json!({
            "app": name, "action": plan.word(), "dry_run": dry_run, "definition_id": id,
            "instances": app.asked.instances, "changes": changes,
        }));
    }
    let word = match (plan, dry_run) {
        (Plan::Create, true) => "would be created",
        (Plan::Update { .. }, true) => "would be updated",
        (plan, _) => plan.word(),
    };
    let instances = count(app.asked.instances, "instance");
    out.line(&format!("{name} {word} ({id}, {instances})"))?;
    // A new app is all changes; they are worth a look only when that is what was asked for.
    if dry_run || *plan != Plan::Create {
        for (style, line) in diff::lines(changes) {
            out.styled(style, &line)?;
        }
    }
    Ok(())
}

/// Sees to the domains. One that is new is ours, and fresh for ever: else nothing in it could ever
/// be stopped. One that has apps and is not fresh is somebody's who has stopped vouching for it; to
/// vouch for what they left there is not ours to do.
fn keep_fresh<'a>(
    client: &Client,
    out: &mut Output,
    domains: impl Iterator<Item = &'a Domain>,
) -> Result<(), Failure> {
    let mut wanted: Vec<&Domain> = domains.collect();
    wanted.sort();
    wanted.dedup();
    let fresh: DomainsResponse = client.call("/v1/domains/list", &NoRequest {})?;
    for domain in wanted.into_iter().filter(|it| !fresh.domains.contains(it)) {
        let request = DesiredLrpsRequest { domain: domain.to_string(), ..Default::default() };
        let there: DesiredLrpSchedulingInfosResponse =
            client.call("/v1/desired_lrp_scheduling_infos/list", &request)?;
        if there.infos.is_empty() {
            let request = UpsertDomainRequest { domain: domain.clone(), ttl: 0 };
            let _: LifecycleResponse = client.call("/v1/domains/upsert", &request)?;
            out.note(&format!("domain {domain:?} is new: it is fresh from now on, for ever"))?;
        } else {
            out.note(&format!(
                "domain {domain:?} is not fresh, so what should go may stay: whoever keeps it has \
                 stopped, or `volvox domain upsert {domain}` says that it is complete"
            ))?;
        }
    }
    Ok(())
}

/// Shows changes, for `diff` too.
pub(super) fn show_changes(out: &mut Output, changes: &[Change]) -> Result<(), Failure> {
    if changes.is_empty() {
        return out.styled(Style::Dim, "  nothing differs");
    }
    for (style, line) in diff::lines(changes) {
        out.styled(style, &line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
