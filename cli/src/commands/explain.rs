//! `volvox explain`: why something is where it is, or nowhere.

use serde_json::Value;
use volvox_protocol::api::{ExplainRequest, ExplainResponse};

use crate::Context;
use crate::args::ExplainArgs;
use crate::error::{Code, Failure};
use crate::output::{Output, Style, Table};

pub(super) fn run(context: &mut Context, args: &ExplainArgs) -> Result<(), Failure> {
    let client = context.client()?;
    if let Some(app) = &args.app {
        let deployment = client.deployment(app)?;
        if args.index >= deployment.instances {
            let (index, count) = (args.index, deployment.instances);
            return Err(Failure::not_found(format!(
                "{app} has no instance {index}: it has {count}"
            ))
            .hint("they are counted from 0"));
        }
    }
    let request = ExplainRequest {
        process_guid: args.app.as_ref().map(ToString::to_string).unwrap_or_default(),
        index: args.index,
        task_guid: args.task.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let answer: Result<ExplainResponse, Failure> = client.call("/v1/auction/explain", &request);
    let answer = answer.map_err(|failure| {
        failure.hint_for(
            Code::NotFound,
            "the auction remembers its last rounds only, and those since the coordinator's start",
        )
    })?;
    let what = match (&args.app, &args.task) {
        (Some(app), _) => format!("{app}/{}", args.index),
        (None, Some(task)) => task.to_string(),
        (None, None) => String::new(),
    };
    context.out.show(&answer.explanation, |out| show(out, &what, &answer.explanation))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn show(out: &mut Output, what: &str, told: &Value) -> Result<(), Failure> {
    let verdict = &told["verdict"];
    let round = text(&told["round"]);
    match (verdict["placed"].as_str(), verdict["unplaced"].as_str()) {
        (Some(cell), _) => {
            out.styled(Style::Good, &format!("{what} was placed on {cell} in round {round}"))?;
        }
        (None, Some(why)) => {
            out.styled(Style::Bad, &format!("{what} was not placed in round {round}: {why}"))?;
        }
        (None, None) => out.line(&format!("{what}: round {round}"))?,
    }
    let best = told["best"].as_array().cloned().unwrap_or_default();
    if !best.is_empty() {
        out.line(&format!("{} cells could take it; the best:", text(&told["candidates"])))?;
        let mut table = Table::new(&["CELL", "ZONE", "IN ZONE", "ON CELL", "STARTING", "COST"]);
        for cell in &best {
            let keys = ["cell", "zone", "in_zone", "on_cell", "starting", "cost"];
            table.row(keys.map(|key| text(&cell[key]).into()));
        }
        out.table(&table)?;
    }
    let ruled_out = told["ruled_out"].as_array().cloned().unwrap_or_default();
    if !ruled_out.is_empty() {
        out.line("others, and what ruled them out:")?;
        let mut table = Table::new(&["CELL", "WHY"]);
        for pair in &ruled_out {
            table.row([text(&pair[0]).into(), why(&pair[1]).into()]);
        }
        out.table(&table)?;
    }
    Ok(())
}

/// `{"short": "memory"}` as `short: memory`.
fn why(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let all = map.iter().map(|(key, value)| format!("{key}: {}", why(value)));
            all.collect::<Vec<_>>().join(", ").replace('_', " ")
        }
        Value::String(text) => text.replace('_', " "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons_are_told_in_words() {
        assert_eq!(why(&json!("zone")), "zone");
        assert_eq!(why(&json!({"standing": "not_heard"})), "standing: not heard");
        assert_eq!(why(&json!({"short": {"memory": 3}})), "short: memory: 3");
    }
}
