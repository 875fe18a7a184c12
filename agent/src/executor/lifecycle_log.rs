//! What the cell tells an application's log about its container.
//!
//! Consumers read these lines, and some programs search for them: they are Diego's, to the letter.
//! The driver writes them under the definition's log source; see [`log_source`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::id::CellId;

/// The log source of a definition that names none.
pub const DEFAULT_LOG_SOURCE: &str = "LOG";

/// The source of a container's log lines: the definition's, or the default.
pub fn log_source(given: &str) -> &str {
    if given.is_empty() { DEFAULT_LOG_SOURCE } else { given }
}

/// One thing that the cell does to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleLine<'a> {
    /// It is about to be made.
    Creating,
    /// It is made.
    Created,
    /// It could not be made, for this reason.
    FailedToCreate(&'a str),
    /// It was told to stop.
    Stopping,
    /// It is about to go.
    Destroying,
    /// It is gone.
    Destroyed,
    /// It could not be taken away.
    FailedToDestroy,
    /// It is to run elsewhere.
    RequestingReplacement,
}

impl LifecycleLine<'_> {
    /// The line for the log.
    pub fn line(self, cell: &CellId, instance: &str) -> String {
        let (what, rest) = match self {
            LifecycleLine::Creating => ("creating container for", None),
            LifecycleLine::Created => ("successfully created container for", None),
            LifecycleLine::FailedToCreate(reason) => {
                ("failed to create container for", Some(reason))
            }
            LifecycleLine::Stopping => ("stopping", None),
            LifecycleLine::Destroying => ("destroying container for", None),
            LifecycleLine::Destroyed => ("successfully destroyed container for", None),
            LifecycleLine::FailedToDestroy => ("failed to destroy container for", None),
            LifecycleLine::RequestingReplacement => ("requesting replacement for", None),
        };
        let reason = rest.map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("Cell {cell} {what} instance {instance}{reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_diegos() {
        let cell = CellId::new("z1-7").unwrap();
        for (narration, line) in [
            (LifecycleLine::Creating, "Cell z1-7 creating container for instance i-1"),
            (LifecycleLine::Created, "Cell z1-7 successfully created container for instance i-1"),
            (
                LifecycleLine::FailedToCreate("no room"),
                "Cell z1-7 failed to create container for instance i-1: no room",
            ),
            (LifecycleLine::Stopping, "Cell z1-7 stopping instance i-1"),
            (LifecycleLine::Destroying, "Cell z1-7 destroying container for instance i-1"),
            (
                LifecycleLine::Destroyed,
                "Cell z1-7 successfully destroyed container for instance i-1",
            ),
            (
                LifecycleLine::FailedToDestroy,
                "Cell z1-7 failed to destroy container for instance i-1",
            ),
            (
                LifecycleLine::RequestingReplacement,
                "Cell z1-7 requesting replacement for instance i-1",
            ),
        ] {
            assert_eq!(narration.line(&cell, "i-1"), line);
        }
        assert_eq!(log_source(""), "LOG");
        assert_eq!(log_source("CELL"), "CELL");
    }
}
