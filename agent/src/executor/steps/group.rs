//! Several steps at once: parallel, codependent, and the action with what stands beside it.
//!
//! A group waits for all of its members. What the end of one means to the others is said for each
//! member, because an action that became a daemon and a sidecar that left are not the same.

use serde::{Deserialize, Serialize};

use super::context::StepContext;
use super::error::{StepError, StepResult, join};
use super::message::StepInput;
use super::step::Step;

/// What the end of a member means to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OnEnd {
    /// Nothing, be it a success or an error. A member of a parallel action.
    LeavesOthers,
    /// A success means nothing: it may have become a daemon that a monitor looks after. An error
    /// cancels the others.
    MayBecomeDaemon,
    /// It cancels the others. A success is no error.
    CancelsOthers,
    /// It cancels the others, and a success is an error. A member of a codependent action.
    MustNotEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    members: Vec<GroupMember>,
    /// In the order in which they came: the first one is mostly the cause of the others.
    errors: Vec<StepError>,
    cancelled: bool,
    outcome: Option<StepResult>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct GroupMember {
    step: Step,
    on_end: OnEnd,
    /// Its end was seen.
    counted: bool,
}

impl Group {
    pub(super) fn new(members: Vec<(Step, OnEnd)>) -> Self {
        let member = |(step, on_end)| GroupMember { step, on_end, counted: false };
        let members = members.into_iter().map(member).collect();
        Group { members, errors: Vec::new(), cancelled: false, outcome: None }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.members.iter_mut().for_each(|member| member.step.begin(turn));
        self.look(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        self.members.iter_mut().for_each(|member| member.step.handle(turn, input));
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.cancel_members(turn);
        self.look(turn);
    }

    /// What is on its way out does not become ready by the end of a member.
    pub(super) fn is_ready(&self) -> bool {
        !self.cancelled && self.members.iter().all(|member| member.step.is_ready())
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    fn cancel_members(&mut self, turn: &mut StepContext<'_>) {
        if !self.cancelled {
            self.cancelled = true;
            self.members.iter_mut().for_each(|member| member.step.cancel(turn));
        }
    }

    /// Counts the members that have ended. A cancel may end further ones, hence the loop.
    fn look(&mut self, turn: &mut StepContext<'_>) {
        while let Some(member) = self.members.iter_mut().find(|it| it.has_news()) {
            member.counted = true;
            let end = member.step.outcome().cloned().unwrap_or(Ok(()));
            let on_end = member.on_end;
            let failed = end.is_err();
            self.errors.extend(end.err());
            let cancels = match on_end {
                OnEnd::LeavesOthers => false,
                OnEnd::MayBecomeDaemon => failed,
                OnEnd::CancelsOthers => true,
                OnEnd::MustNotEnd => {
                    // Once the group is being cancelled, leaving is what is wanted.
                    if !failed && !self.cancelled {
                        self.errors.push(StepError::Visible("Codependent step exited".into()));
                    }
                    true
                }
            };
            if cancels {
                self.cancel_members(turn);
            }
        }
        if self.members.iter().all(|member| member.counted) {
            self.outcome = Some(join(&self.errors));
        }
    }
}

impl GroupMember {
    fn has_news(&self) -> bool {
        !self.counted && self.step.outcome().is_some()
    }
}
