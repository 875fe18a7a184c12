//! Downloads and uploads. The driver moves the bytes; here are the order and the words.

use crate::container::step::StepEvent;
use serde::{Deserialize, Serialize};
use volvox_protocol::action::{DownloadAction, UploadAction};

use super::context::StepContext;
use super::error::{StepError, StepResult, cut};
use super::message::{LogStream, StepId, StepInput, TransferFailure, Transferred};
use crate::container::text;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transfer {
    what: What,
    source: String,
    state: TransferState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    Download(DownloadAction),
    Upload(UploadAction),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum TransferState {
    New,
    Underway(StepId),
    /// Told to break off. What it wrote so far lies in the container, so its end is waited for.
    Cancelled(StepId),
    Ended(StepResult),
}

impl Transfer {
    pub(super) fn new(what: What, source: String) -> Self {
        Transfer { what, source, state: TransferState::New }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        let (verb, _) = self.verbs();
        self.progress(turn, |artifact| format!("{verb} {artifact}..."));
        self.state = TransferState::Underway(match &self.what {
            What::Download(it) => turn.download(it, &self.source),
            What::Upload(it) => turn.upload(it, &self.source),
        });
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        let StepInput::Event(StepEvent::TransferDone { step, result }) = input else { return };
        match self.state {
            TransferState::Underway(own) if own == *step => {
                self.state = TransferState::Ended(self.done(turn, result));
            }
            TransferState::Cancelled(own) if own == *step => {
                let outcome = result.as_ref().map_err(|_| StepError::Cancelled).map(|_| ());
                self.state = TransferState::Ended(outcome);
            }
            TransferState::New
            | TransferState::Underway(_)
            | TransferState::Cancelled(_)
            | TransferState::Ended(_) => {}
        }
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        match self.state {
            TransferState::New => self.state = TransferState::Ended(Err(StepError::Cancelled)),
            TransferState::Underway(step) => {
                turn.cancel_transfer(step);
                self.state = TransferState::Cancelled(step);
            }
            TransferState::Cancelled(_) | TransferState::Ended(_) => {}
        }
    }

    /// Nobody waits for the end of a transfer to call a container running.
    pub(super) fn is_ready(&self) -> bool {
        self.state != TransferState::New
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        if let TransferState::Ended(outcome) = &self.state { Some(outcome) } else { None }
    }

    fn done(
        &self,
        turn: &mut StepContext<'_>,
        result: &Result<Transferred, TransferFailure>,
    ) -> Result<(), StepError> {
        match result {
            Ok(moved) => {
                let (_, past) = self.verbs();
                let size = match moved {
                    Transferred::Bytes(bytes) => format!(" ({})", text::size(*bytes)),
                    Transferred::FromCache => String::new(),
                };
                self.progress(turn, |artifact| format!("{past} {artifact}{size}"));
                Ok(())
            }
            Err(failure) => {
                let text = failure_text(failure, self.artifact());
                turn.log(&self.source, LogStream::Err, cut(&text));
                Err(StepError::Visible(text))
            }
        }
    }

    /// Says how far it is, if the transfer has a name to say it with.
    fn progress(&self, turn: &mut StepContext<'_>, line: impl FnOnce(&str) -> String) {
        if !self.artifact().is_empty() {
            turn.log(&self.source, LogStream::Out, line(self.artifact()));
        }
    }

    fn artifact(&self) -> &str {
        match &self.what {
            What::Download(it) => &it.artifact,
            What::Upload(it) => &it.artifact,
        }
    }

    fn verbs(&self) -> (&'static str, &'static str) {
        match self.what {
            What::Download(_) => ("Downloading", "Downloaded"),
            What::Upload(_) => ("Uploading", "Uploaded"),
        }
    }
}

fn failure_text(failure: &TransferFailure, artifact: &str) -> String {
    let named = |word: &str| {
        if artifact.is_empty() { String::new() } else { format!(" {word}{artifact}") }
    };
    let upload = |what: &str| format!("{what}{}", named("for "));
    match failure {
        TransferFailure::Fetch => format!("Downloading{} failed", named("")),
        TransferFailure::Copy(error) => {
            format!("Copying{} into the container failed: {error}", named(""))
        }
        TransferFailure::ParseUrl => upload("Failed to parse URL"),
        TransferFailure::CreateTempDir => upload("Failed to create temp dir"),
        TransferFailure::EstablishStream => upload("Failed to establish stream from container"),
        TransferFailure::FindFirstItem => upload("Failed to find first item in tar stream"),
        TransferFailure::CreateTempFile => upload("Failed to create temp file"),
        TransferFailure::CopyStream => upload("Failed to copy stream contents into temp file"),
        TransferFailure::UploadPayload => upload("Failed to upload payload"),
    }
}
