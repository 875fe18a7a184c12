//! What can go wrong, in the words of whoever typed the command, and with which code we end.

use std::io;

use volvox_protocol::api::ApiError;
use volvox_protocol::id::ProcessGuid;

/// How the program ends. Part of the contract: `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The other end of our pipe has gone: nothing to say, and nobody to say it to.
    Closed = 0,
    /// It was done, and it failed: a task, a file that cannot be written.
    Failed = 1,
    /// What was asked is not understood or breaks a rule. Nothing has changed.
    Usage = 2,
    /// There is no such app, task, cell, definition.
    NotFound = 3,
    /// The coordinator understood and said no: a conflict, or you may not.
    Refused = 4,
    /// The coordinator cannot be reached, or cannot answer now.
    Unreachable = 5,
    /// What was waited for did not come in time, or cannot come.
    Waited = 6,
}

impl Code {
    /// Its name in the JSON of an error.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Code::Closed => "closed",
            Code::Failed => "failed",
            Code::Usage => "usage",
            Code::NotFound => "not_found",
            Code::Refused => "refused",
            Code::Unreachable => "unreachable",
            Code::Waited => "waited",
        }
    }
}

/// How a person comes to a token. `docs/howto/access.md` tells it at length.
pub(crate) const OWN_TOKEN: &str = "for a token of your own, on the coordinator's machine: `sudo \
    volvox-coordinator token create --name NAME --role admin > FILE`; then show it with \
    --token-file FILE, VOLVOX_TOKEN_FILE, or token_file in ~/.config/volvox/config.toml";

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) code: Code,
    /// What is wrong, with the input that is.
    pub(crate) message: String,
    /// What to do next; empty: the message says it.
    pub(crate) hint: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), hint: String::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(Code::Usage, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::new(Code::Failed, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Failure::new(Code::NotFound, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Failure::new(Code::Refused, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Failure::new(Code::Unreachable, message)
    }

    pub(crate) fn waited(message: impl Into<String>) -> Self {
        Failure::new(Code::Waited, message)
    }

    /// What to do next.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Says in front what it is about.
    #[must_use]
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Another hint for one kind of failure.
    #[must_use]
    pub(crate) fn hint_for(self, code: Code, hint: &str) -> Self {
        if self.code == code { self.hint(hint) } else { self }
    }

    /// In our words, when it is an app that is not there.
    #[must_use]
    pub(crate) fn of_app(self, app: &ProcessGuid) -> Self {
        if self.code != Code::NotFound {
            return self;
        }
        let message = format!("there is no app {app}");
        Failure { message, ..self }.hint("`volvox apps` lists what there is")
    }

    /// What an answer of the coordinator that is no success means for us.
    pub(crate) fn answered(status: u16, error: &ApiError) -> Self {
        let message = error.message.clone();
        match status {
            400 | 413 | 415 => Failure::usage(message),
            401 => Failure::refused(format!("the coordinator does not let us in: {message}"))
                .hint(format!("on its own machine root needs no token (sudo); {OWN_TOKEN}")),
            403 => Failure::refused(message).hint(
                "ask an operator for a token with that role (`volvox-coordinator token create`)",
            ),
            404 if error.kind == "RouteNotFound" => Failure::refused(message)
                .hint("the coordinator does not know this call: compare with `volvox version`"),
            404 => Failure::not_found(message),
            409 => Failure::refused(message).hint(conflict_hint(&error.kind)),
            408 | 429 | 502 | 503 | 504 => Failure::unreachable(message).hint("try again"),
            _ => Failure::failed(format!("the coordinator answered {status}: {message}")),
        }
    }
}

fn conflict_hint(kind: &str) -> &'static str {
    match kind {
        "UpdateInProgress" => "wait for its end (`volvox apps`), or `volvox cancel` it",
        "NoUpdateInProgress" => "`volvox apps` shows which updates are under way",
        "ResourceExists" => "choose another name, or look at what is there",
        _ => "look at what is there now (`volvox ps`), and try again",
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Code::Closed, "");
        }
        Failure::failed(format!("write the result: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::failed(format!("write the result: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_a_code() {
        let error = |kind: &str| ApiError {
            kind: kind.to_owned(),
            message: "m".to_owned(),
            details: Vec::new(),
        };
        for (status, kind, code) in [
            (400, "InvalidRequest", Code::Usage),
            (401, "Unauthorized", Code::Refused),
            (403, "Forbidden", Code::Refused),
            (404, "ResourceNotFound", Code::NotFound),
            (404, "RouteNotFound", Code::Refused),
            (409, "UpdateInProgress", Code::Refused),
            (429, "TooManyRequests", Code::Unreachable),
            (503, "Unavailable", Code::Unreachable),
            (500, "", Code::Failed),
        ] {
            assert_eq!(Failure::answered(status, &error(kind)).code, code, "{status} {kind}");
        }
    }

    #[test]
    fn whoever_is_not_let_in_is_told_how_to_come_in() {
        let hint = Failure::answered(401, &ApiError::default()).hint;
        for words in ["sudo volvox-coordinator token create", "--token-file", "VOLVOX_TOKEN_FILE"] {
            assert!(hint.contains(words), "{hint}");
        }
        assert!(!hint.contains("  "), "{hint}");
    }

    #[test]
    fn a_closed_pipe_is_no_complaint() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.code, closed.code as u8), (Code::Closed, 0));
        assert_eq!(Failure::from(io::Error::other("full")).code, Code::Failed);
    }
}
