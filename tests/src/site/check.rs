//! What must always hold, looked up on the board, in the containers and in the kernel.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use serde_json::json;

use super::{Site, line_of};

impl Site {
    /// Waits until board and cells agree: every record that names a cell has its container there, in
    /// the same state, and every container has its record; and no rule is broken meanwhile.
    pub fn check(&self) -> anyhow::Result<()> {
        self.wait("board and containers agree", |site| {
            site.check_rules().ok()?;
            site.differences().ok()?.is_empty().then_some(())
        })
        .map_err(|error| error.context(format!("{:?}", self.differences())))
    }

    /// Never two ordinary records at one index of a definition.
    pub fn check_rules(&self) -> anyhow::Result<()> {
        let all = self.call("/v1/actual_lrps/list", &json!({}))?;
        let mut seen = BTreeSet::new();
        for lrp in all["actual_lrps"].as_array().into_iter().flatten() {
            if lrp["presence"] == "ORDINARY" {
                let key =
                    format!("{} {} {}", lrp["process_guid"], lrp["definition_id"], lrp["index"]);
                ensure!(seen.insert(key), "two at one index: {}", line_of(lrp));
            }
        }
        Ok(())
    }

    /// Where board and cells differ.
    fn differences(&self) -> anyhow::Result<Vec<String>> {
        let mut recorded = BTreeMap::new();
        let all = self.call("/v1/actual_lrps/list", &json!({}))?;
        for lrp in all["actual_lrps"].as_array().into_iter().flatten() {
            if let (Some(guid), Some(cell)) =
                (lrp["instance_guid"].as_str(), lrp["cell_id"].as_str())
                && !guid.is_empty()
            {
                let state = lrp["state"].as_str().unwrap_or_default().to_owned();
                recorded.insert((cell.to_owned(), guid.to_owned()), state);
            }
        }
        let tasks = self.call("/v1/tasks/list.r2", &json!({}))?;
        for task in tasks["tasks"].as_array().into_iter().flatten() {
            if task["state"] == "Running" {
                let text = |name: &str| task[name].as_str().unwrap_or_default().to_owned();
                recorded.insert((text("cell_id"), text("task_guid")), "RUNNING".to_owned());
            }
        }
        let mut differences = Vec::new();
        let mut here = BTreeSet::new();
        for (name, cell) in &self.cells {
            if cell.agent.is_none() {
                recorded.retain(|(of, _), _| of != name);
                continue;
            }
            for container in self.containers(name)? {
                let guid = container["guid"].as_str().unwrap_or_default().to_owned();
                let state = match container["state"].as_str().unwrap_or_default() {
                    "INITIALIZING" | "CREATED" => "CLAIMED",
                    state => state,
                };
                let state = state.to_owned();
                let key = (name.clone(), guid);
                if recorded.get(&key) != Some(&state) {
                    differences
                        .push(format!("{key:?} is {state}, recorded {:?}", recorded.get(&key)));
                }
                here.insert(key);
            }
        }
        for (key, state) in &recorded {
            if !here.contains(key) {
                differences.push(format!("{key:?} is recorded as {state} and is not there"));
            }
        }
        // What the kernel has: a process that holds each container, and no other.
        for (name, cell) in &self.cells {
            let containers = here.iter().filter(|(of, _)| of == name).count();
            let shims = cell.shims().len();
            if cell.agent.is_some() && shims < containers {
                differences.push(format!("{name} has {containers} containers and {shims} shims"));
            }
            if cell.agent.is_some() && containers == 0 && shims > 0 {
                differences.push(format!("{name} has no container and {shims} shims"));
            }
        }
        Ok(differences)
    }
}
