//! `volvox version`: which release this is, and which the coordinator's.

use serde_json::json;
use volvox_protocol::api::VersionResponse;

use crate::Context;
use crate::args::VersionArgs;
use crate::error::Failure;

const OURS: &str = env!("CARGO_PKG_VERSION");

pub(super) fn run(context: &mut Context, args: &VersionArgs) -> Result<(), Failure> {
    if args.client {
        return context.out.show(&json!({"client": {"version": OURS}}), |out| {
            out.line(&format!("client       {OURS}"))
        });
    }
    // What we know ourselves is said, whatever the coordinator does.
    let asked: Result<VersionResponse, Failure> =
        context.client().and_then(|client| client.get("/version"));
    let server = asked.as_ref().ok();
    let document = json!({"client": {"version": OURS}, "server": server});
    context.out.show(&document, |out| {
        out.line(&format!("client       {OURS}"))?;
        match server {
            None => Ok(()),
            Some(server) => out.line(&format!(
                "coordinator  {} (mesh {}, schema {})",
                server.version, server.mesh, server.schema
            )),
        }
    })?;
    asked.map(|_| ())
}
