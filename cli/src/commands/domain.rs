//! `volvox domain`: whose apps are complete and current.

use serde_json::json;
use volvox_protocol::api::{DomainsResponse, LifecycleResponse, NoRequest, UpsertDomainRequest};
use volvox_protocol::time::span;

use crate::Context;
use crate::args::DomainCommand;
use crate::error::Failure;
use crate::output::Table;

pub(super) fn run(context: &mut Context, command: DomainCommand) -> Result<(), Failure> {
    let client = context.client()?;
    match command {
        DomainCommand::List => {
            let all: DomainsResponse = client.call("/v1/domains/list", &NoRequest {})?;
            context.out.show(&json!({"domains": all.domains}), |out| {
                let mut table = Table::new(&["FRESH DOMAIN"]);
                for domain in &all.domains {
                    table.row([domain.as_str().into()]);
                }
                out.table(&table)
            })
        }
        DomainCommand::Upsert { domain, ttl } => {
            // Less than a second would be read as for ever.
            let seconds = ttl.as_millis().div_ceil(1_000);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let request = UpsertDomainRequest { domain: domain.clone(), ttl: seconds };
            let _: LifecycleResponse = client.call("/v1/domains/upsert", &request)?;
            let document = json!({"domain": domain, "ttl": seconds, "action": "upserted"});
            context.out.show(&document, |out| {
                let span = if seconds == 0 { "ever".to_owned() } else { span::show(ttl) };
                out.line(&format!("domain {domain} is fresh for {span}"))
            })
        }
    }
}
