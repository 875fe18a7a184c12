//! Step trees, played: inputs in, effects out, both as short texts.
//!
//! A script has one line per input: `input => effect | effect`. Ids count from 1 through steps and
//! timers alike. Firing a timer moves the time to when it is due.

mod actions;
mod cancel;
mod golden;
mod health;
mod random;
mod tree;

use crate::container::exit::End;
use crate::container::exit::Exit;
use crate::container::spec::LogStream;
use crate::container::spec::OutputTarget;
use crate::container::step::CheckOutcome;
use crate::container::step::StepEvent;
use crate::container::step::StepSignal;
use crate::container::step::TransferFailure;
use crate::container::step::Transferred;
use std::collections::BTreeMap;

use volvox_protocol::action::*;
use volvox_protocol::definition::{Check, HttpCheck, TcpCheck};

use super::*;

pub(super) fn run(path: &str) -> Action {
    Action::Run(Box::new(RunAction { path: path.into(), ..RunAction::default() }))
}

pub(super) fn quiet_run(path: &str) -> Action {
    let run = RunAction { path: path.into(), suppress_log_output: true, ..RunAction::default() };
    Action::Run(Box::new(run))
}

pub(super) fn download(artifact: &str) -> Action {
    let artifact = artifact.into();
    Action::Download(Box::new(DownloadAction { artifact, ..DownloadAction::default() }))
}

pub(super) fn upload(artifact: &str) -> Action {
    let artifact = artifact.into();
    Action::Upload(Box::new(UploadAction { artifact, ..UploadAction::default() }))
}

pub(super) fn timeout(timeout_ms: u64, action: Action) -> Action {
    let action = Some(action);
    Action::Timeout(Box::new(TimeoutAction { action, timeout_ms, ..TimeoutAction::default() }))
}

pub(super) fn progress(action: Action) -> Action {
    Action::EmitProgress(Box::new(EmitProgressAction {
        action: Some(action),
        start_message: "going".into(),
        success_message: "went".into(),
        failure_message_prefix: "went wrong".into(),
        log_source: "P".into(),
    }))
}

pub(super) fn tried(action: Action) -> Action {
    Action::Try(Box::new(TryAction { action: Some(action), ..TryAction::default() }))
}

pub(super) fn parallel(actions: Vec<Action>) -> Action {
    Action::Parallel(Box::new(ParallelAction { actions, ..ParallelAction::default() }))
}

pub(super) fn serial_of(actions: Vec<Action>) -> Action {
    Action::Serial(Box::new(SerialAction { actions, ..SerialAction::default() }))
}

pub(super) fn codependent(actions: Vec<Action>) -> Action {
    Action::Codependent(Box::new(CodependentAction { actions, ..CodependentAction::default() }))
}

pub(super) fn tcp(port: u32, interval_ms: u64) -> Check {
    Check::Tcp(TcpCheck { port, interval_ms, ..TcpCheck::default() })
}

pub(super) fn http(port: u32, request_timeout_ms: u64) -> Check {
    Check::Http(HttpCheck { port, request_timeout_ms, path: "/ok".into(), ..HttpCheck::default() })
}

/// A container with this action and nothing else.
pub(super) fn only(action: Action) -> StepSpec {
    StepSpec { action: Some(action), log_source: "APP".into(), ..StepSpec::default() }
}

/// Plays the script, and compares the effects of each line.
pub(super) fn check(spec: &StepSpec, script: &str) {
    let mut tree = StepTree::new(spec, StepSettings::default());
    let mut now = Timestamp::from_secs(1_000);
    let mut timers = BTreeMap::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, expected) = line.split_once("=>").expect("a line is `input => effects`");
        let input = parse(input.trim());
        if let StepInput::TimerFired(timer) = &input {
            let due = timers.remove(timer).unwrap_or(now);
            now = now.max(due);
        }
        let effects = tree.apply(now, input);
        for effect in &effects {
            if let StepOutput::StartTimer { timer, after } = effect {
                timers.insert(*timer, now + *after);
            }
        }
        let shown: Vec<_> = effects.iter().map(show).collect();
        assert_eq!(shown.join(" | "), expected.trim(), "\nafter `{line}`\nof {script}");
    }
}

/// Plays each script on the same container.
pub(super) fn check_all(spec: &StepSpec, scripts: &[&str]) {
    scripts.iter().for_each(|script| check(spec, script));
}

fn parse(text: &str) -> StepInput {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let step = StepId(number.parse().unwrap_or(0));
    let transfer = |result| StepInput::Event(StepEvent::TransferDone { step, result });
    let found = |outcome| StepInput::Event(StepEvent::CheckResult { step, outcome });
    match verb {
        "begin" => StepInput::Begin,
        "cancel" => StepInput::Cancel,
        "started" => StepInput::Event(StepEvent::ProcessStarted(step)),
        "nospawn" => StepInput::Event(StepEvent::SpawnFailed { step, error: rest.into() }),
        "exit" => {
            let (status, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let (out_of_memory, out_of_disk) = (rest == "oom", rest == "ood");
            let output = if out_of_memory || out_of_disk { "" } else { rest }.to_owned();
            let status = status.parse().expect("an exit status");
            let exit = Exit::new(step.0, End::Status(status));
            let exit = Exit { out_of_memory, out_of_disk, output, ..exit };
            StepInput::Event(StepEvent::ProcessExited(exit))
        }
        "moved" => transfer(Ok(Transferred::Bytes(rest.parse().expect("a size")))),
        "cached" => transfer(Ok(Transferred::FromCache)),
        "unfetched" => transfer(Err(TransferFailure::Fetch)),
        "uncopied" => transfer(Err(TransferFailure::Copy(rest.into()))),
        "unsent" => transfer(Err(TransferFailure::UploadPayload)),
        "fire" => StepInput::TimerFired(TimerId(step.0)),
        "pass" => found(CheckOutcome::Passed),
        "fail" => found(CheckOutcome::Failed(rest.into())),
        "cannot" => found(CheckOutcome::CouldNotRun(rest.into())),
        other => panic!("no input `{other}`"),
    }
}

fn show(effect: &StepOutput) -> String {
    match effect {
        StepOutput::Spawn { step, run, output, .. } => match output {
            OutputTarget::Log => format!("spawn {} {}", step.0, run.path),
            OutputTarget::Discard => format!("spawn {} {} discard", step.0, run.path),
            OutputTarget::Capture => format!("spawn {} {} capture", step.0, run.path),
        },
        StepOutput::Signal { step, signal: StepSignal::Term } => format!("term {}", step.0),
        StepOutput::Signal { step, signal: StepSignal::Kill } => format!("kill {}", step.0),
        StepOutput::StartDownload { step, .. } => format!("download {}", step.0),
        StepOutput::StartUpload { step, .. } => format!("upload {}", step.0),
        StepOutput::CancelTransfer { step } => format!("abort {}", step.0),
        StepOutput::StartTimer { timer, after } => format!("timer {} {after:?}", timer.0),
        StepOutput::CancelTimer { timer } => format!("untimer {}", timer.0),
        StepOutput::RunCheck { step, check, timeout } => match check {
            Check::Tcp(it) => format!("check {} tcp {} {timeout:?}", step.0, it.port),
            Check::Http(it) => format!("check {} http {} {timeout:?}", step.0, it.port),
        },
        StepOutput::CancelCheck { step } => format!("uncheck {}", step.0),
        StepOutput::Log { source, stream: LogStream::Out, text } => format!("{source}: {text}"),
        StepOutput::Log { source, stream: LogStream::Err, text } => format!("{source}! {text}"),
        StepOutput::Ready => "ready".into(),
        StepOutput::Routable(true) => "routable".into(),
        StepOutput::Routable(false) => "unroutable".into(),
        StepOutput::Finished(result) if *result == RunResult::default() => "done".into(),
        StepOutput::Finished(RunResult { stopped: true, failed: false, .. }) => "stopped".into(),
        StepOutput::Finished(result) => format!("failed {}", result.failure_reason),
    }
}
