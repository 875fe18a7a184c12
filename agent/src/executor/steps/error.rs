//! How a step ended, and how the ends of several become one.

use serde::{Deserialize, Serialize};
use volvox_protocol::limits::REASON_BYTES;

/// How a step ended.
pub(super) type StepResult = Result<(), StepError>;

/// Why a step did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StepError {
    /// It was told to end, and did.
    Cancelled,
    /// It was told to end, and had to be killed.
    ExceededGracefulShutdown,
    /// A reason that belongs into the application's log.
    Visible(String),
    /// A reason that concerns the cell.
    Internal(String),
}

impl StepError {
    pub(super) fn text(&self) -> &str {
        match self {
            StepError::Cancelled => "cancelled",
            StepError::ExceededGracefulShutdown => "exceeded graceful shutdown interval",
            StepError::Visible(text) | StepError::Internal(text) => text,
        }
    }

    /// The reason, if it belongs into the application's log.
    pub(super) fn visible(&self) -> Option<&str> {
        match self {
            StepError::Visible(text) => Some(text),
            StepError::Cancelled | StepError::ExceededGracefulShutdown | StepError::Internal(_) => {
                None
            }
        }
    }

    /// It ended because somebody wanted it to.
    fn was_wanted(&self) -> bool {
        match self {
            StepError::Cancelled | StepError::ExceededGracefulShutdown => true,
            StepError::Visible(_) | StepError::Internal(_) => false,
        }
    }
}

/// The reason of a failure; empty for a success.
pub(super) fn text_of(outcome: &StepResult) -> &str {
    outcome.as_ref().err().map(StepError::text).unwrap_or_default()
}

/// Several errors as one. Those that are no more than the answer to a cancel say nothing new and
/// are left out; when no other is left, there was no error.
pub(super) fn join(errors: &[StepError]) -> StepResult {
    let own: Vec<_> = errors.iter().filter(|error| !error.was_wanted()).collect();
    let text = || own.iter().map(|error| error.text()).collect::<Vec<_>>().join("; ");
    if own.is_empty() {
        Ok(())
    } else if own.iter().any(|error| error.visible().is_some()) {
        Err(StepError::Visible(text()))
    } else {
        Err(StepError::Internal(text()))
    }
}

const CUT: &str = " (error truncated)";

/// At most [`REASON_BYTES`], at a whole character, and it shows when something is missing.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= REASON_BYTES {
        return text.to_owned();
    }
    let mut end = REASON_BYTES - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_leaves_out_what_was_wanted() {
        use StepError::{Cancelled, ExceededGracefulShutdown as Exceeded, Internal, Visible};
        let visible = |text: &str| Visible(text.into());
        let internal = |text: &str| Internal(text.into());
        for (errors, joined) in [
            (vec![], Ok(())),
            (vec![Cancelled], Ok(())),
            (vec![Cancelled, Exceeded, Cancelled], Ok(())),
            (vec![Cancelled, visible("a"), Exceeded], Err(visible("a"))),
            (vec![visible("a"), internal("b")], Err(visible("a; b"))),
            (vec![internal("b"), internal("c")], Err(internal("b; c"))),
        ] {
            assert_eq!(join(&errors), joined, "{errors:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_whole_character() {
        let fits = "x".repeat(REASON_BYTES);
        assert_eq!(cut(&fits), fits);
        let long = cut(&"ä".repeat(REASON_BYTES));
        assert_eq!(long.len(), REASON_BYTES);
        assert!(long.ends_with("ää (error truncated)"), "{long}");
        assert!(cut(&"x🦠".repeat(REASON_BYTES)).len() <= REASON_BYTES);
    }
}
