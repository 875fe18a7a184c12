//! What operators and their tools ask: is it alive, is it ready, which release, how much of everything.

use std::sync::Arc;

use hyper::Response;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::json;
use volvox_protocol::api::VersionResponse;

use super::Api;
use super::access::Role;
use super::reply::{ApiFailure, Body, full};
use super::route::{self, ApiRequest, ResponseKind, Route};
use super::{metrics, openapi};
use crate::bbs::store::SCHEMA_VERSION;

const TEXT: &str = "text/plain; charset=utf-8";
/// What Prometheus calls its text.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let mut all: Vec<Route> = ["/livez", "/health"]
        .into_iter()
        .zip(["Live", "Health"])
        .map(|(path, name)| {
            let about = "Whether the process answers. Open to all.";
            let mut live = route::own(path, name, about, ResponseKind::Text(TEXT), |_, _| async {
                text(StatusCode::OK, TEXT, "ok\n")
            });
            live.role = None;
            live
        })
        .collect();
    all.extend(["/readyz", "/ready"].into_iter().zip(["ReadyVerbose", "Ready"]).map(
        |(path, name)| {
            let about =
                "Whether calls can be served; with `verbose`, why not. Open to all but for that.";
            let mut ready =
                route::own(path, name, about, ResponseKind::Text(TEXT), |api, call| async move {
                    ready(&api, &call).await
                });
            ready.role = None;
            ready.parameters =
                &[("verbose", "true: each part, one line each; needs the role read")];
            ready.statuses = &[400, 401, 503];
            ready
        },
    ));
    all.push(route::own(
        "/metrics",
        "Metrics",
        "Counts and times, for Prometheus.",
        ResponseKind::Text(METRICS),
        |api, _| async move {
            match tokio::task::spawn_blocking(move || metrics::text(&api)).await {
                Ok(Ok(metrics)) => text(StatusCode::OK, METRICS, &metrics),
                Ok(Err(_)) | Err(_) => Err(ApiFailure::busy("the metrics could not be written")),
            }
        },
    ));
    all.push(route::own(
        "/openapi.json",
        "OpenApi",
        "This document.",
        ResponseKind::Json,
        |api, _| async move { route::json(&openapi::document(&api)) },
    ));
    let mut version = route::own(
        "/version",
        "Version",
        "Which release this is.",
        ResponseKind::Record(<VersionResponse as volvox_protocol::schema::Schema>::schema),
        |_, _| async move { route::json(&version()) },
    );
    version.role = Some(Role::Read);
    all.push(version);
    all
}

/// Which release this is.
pub(crate) fn version() -> VersionResponse {
    VersionResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mesh: volvox_mesh::transport::VERSIONS.map(|version| version.to_string()).join(", "),
        schema: SCHEMA_VERSION.unsigned_abs(),
    }
}

fn text(status: StatusCode, kind: &'static str, body: &str) -> Result<Response<Body>, ApiFailure> {
    let mut response = Response::new(full(body.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// The parts that must be there for calls to be served, and whether each is.
async fn parts(api: &Arc<Api>) -> Vec<(&'static str, Result<String, String>)> {
    let records = api.bbs.view().snapshot();
    let board = format!("{} instances, {} tasks", records.instance_count(), records.task_count());
    let mut parts = vec![
        (
            "started",
            if api.is_ready() { Ok(String::new()) } else { Err("starting or stopping".into()) },
        ),
        ("board", Ok(board)),
    ];
    if let Some(cells) = &api.cells {
        parts.extend(super::cells::parts(cells));
    }
    parts.extend(super::cells::mesh_part(api).await);
    parts
}

async fn ready(api: &Arc<Api>, call: &ApiRequest) -> Result<Response<Body>, ApiFailure> {
    let parts = parts(api).await;
    let is_ready = parts.iter().all(|(_, state)| state.is_ok());
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if !call.query.is_on("verbose")? {
        return text(status, TEXT, if is_ready { "ready\n" } else { "not ready\n" });
    }
    if call.caller.is_none() {
        return Err(ApiFailure::unauthorized("details need a token with the role read"));
    }
    let mut lines = String::new();
    for (name, state) in parts {
        let (sign, told) = match state {
            Ok(told) => ('+', told),
            Err(told) => ('-', told),
        };
        lines += format!("[{sign}] {name} {told}").trim_end();
        lines.push('\n');
    }
    lines += if is_ready { "ready\n" } else { "not ready\n" };
    text(status, TEXT, &lines)
}

/// What stands at the head of the document.
pub(super) fn info() -> serde_json::Value {
    json!({
        "title": "Volvox coordinator",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "The board of a Volvox fleet: what is desired, what there is, what changes.",
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    })
}
