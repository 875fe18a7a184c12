//! A container as the executor tells of it: its states, its result, and what may follow what.
//!
//! Nothing here makes a container; the executor keeps the register and asks
//! [`ContainerState::may_become`] before each step. A container may be deleted in any state, which
//! is no transition but its end.

use serde::{Deserialize, Serialize};

use ContainerState::{Completed, Created, Initializing, Reserved, Running};

/// How far a container has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ContainerState {
    /// Room is set aside; there is nothing to see of it on the machine yet.
    Reserved,
    /// It is being made.
    Initializing,
    /// It is made; setup, action and monitor are starting.
    Created,
    /// Its action runs, and its monitor, if it has one, has found it healthy.
    Running,
    /// It has ended; its [`RunResult`] says how.
    Completed,
}

impl ContainerState {
    /// Every state, in the order of a life.
    pub const ALL: [ContainerState; 5] = [Reserved, Initializing, Created, Running, Completed];

    /// Whether `next` may follow. Mirrors `docs/tables/container.md`.
    #[rustfmt::skip]
    pub const fn may_become(self, next: ContainerState) -> bool {
        match (self, next) {
            (Reserved,     Initializing)        => true,  // told to run
            (Initializing, Created | Completed) => true,  // made, or could not be made
            (Created,      Running | Completed) => true,  // healthy, or ended before it was
            (Running,      Completed)           => true,  // ended

            // No step is skipped, none is taken back, none is taken twice.
            (Reserved,     Reserved | Created | Running | Completed)               => false,
            (Initializing, Reserved | Initializing | Running)                      => false,
            (Created,      Reserved | Initializing | Created)                      => false,
            (Running,      Reserved | Initializing | Created | Running)            => false,
            (Completed,    Reserved | Initializing | Created | Running | Completed) => false,
        }
    }
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// What it was to do did not succeed. Not set when it was stopped.
    pub failed: bool,
    /// Why it failed; empty when it did not.
    pub failure_reason: String,
    /// It was told to stop: a shutdown, not a crash.
    pub stopped: bool,
    /// It failed before it was made, so that another try cannot do anything twice.
    pub retryable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::doc::table_under;

    #[test]
    fn the_transitions_are_the_ones_of_the_page() {
        let page = include_str!("../../docs/tables/container.md");
        let table = table_under(page, "The table").unwrap();
        let names = ContainerState::ALL.map(|state| format!("{state:?}"));
        assert_eq!(table.header[0], "from");
        assert_eq!(table.header[1..], names);
        assert_eq!(table.rows.len(), 5);
        let (mut allowed, mut checked) = (0, 0);
        for (state, row) in ContainerState::ALL.into_iter().zip(&table.rows) {
            assert_eq!(row.len(), 6, "{row:?}");
            assert_eq!(row[0], format!("{state:?}"));
            for (next, cell) in ContainerState::ALL.into_iter().zip(&row[1..]) {
                let ours = if state.may_become(next) { "yes" } else { "no" };
                assert_eq!(ours, cell, "{state:?} to {next:?}");
                allowed += usize::from(state.may_become(next));
                checked += 1;
            }
        }
        assert_eq!(allowed, 6);
        println!("table container: {allowed} transitions of the document, {checked} pairs checked");
    }

    #[test]
    fn states_wear_upper_case_in_json() {
        let names = r#"["RESERVED","INITIALIZING","CREATED","RUNNING","COMPLETED"]"#;
        assert_eq!(serde_json::to_string(&ContainerState::ALL).unwrap(), names);
        let read: [ContainerState; 5] = serde_json::from_str(names).unwrap();
        assert_eq!(read, ContainerState::ALL);
    }

    #[test]
    fn a_result_survives_both_encodings() {
        let result = RunResult {
            failed: true,
            failure_reason: "out of memory".into(),
            stopped: false,
            retryable: true,
        };
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
        let bytes = postcard::to_stdvec(&result).unwrap();
        assert_eq!(postcard::from_bytes::<RunResult>(&bytes).unwrap(), result);
    }
}
