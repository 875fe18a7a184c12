//! Every row of both tables: container and record are there, a coordinator is met.

use volvox_protocol::container::RunResult;
use volvox_protocol::tables::Whose::{Ours, Theirs};
use volvox_protocol::tables::rep_lrp::{ContainerPhase as C, LrpAction, LrpView as L, rep_lrp};
use volvox_protocol::tables::rep_task::{
    TaskAction, TaskContainerView as T, TaskView as V, rep_task,
};

use super::machine::Deletes;
use super::*;

fn record(view: L) -> Option<RecordState> {
    Some(match view {
        L::Missing => return None,
        L::Unclaimed => RecordState::Unclaimed,
        L::Claimed(Ours) => RecordState::Claimed(ours()),
        L::Claimed(Theirs) => RecordState::Claimed(theirs()),
        L::Running(Ours) => RecordState::Running(ours()),
        L::Running(Theirs) => RecordState::Running(theirs()),
        L::Crashed => RecordState::Crashed,
    })
}

fn put_container(stage: &mut Stage, owner: &Owner, states: &[ContainerState], is_stopped: bool) {
    for state in states {
        stage.machine.put(stage.now, owner.clone(), *state);
        if *state == ContainerState::Completed && is_stopped {
            let stopped = RunResult { stopped: true, ..RunResult::default() };
            stage.machine.complete(stage.now, &owner.container(), stopped);
        }
    }
}

/// The states in which a container has this view.
fn states(view: C) -> Vec<ContainerState> {
    match view {
        C::Absent => vec![],
        C::Reserved => vec![ContainerState::Reserved],
        C::Starting => vec![ContainerState::Initializing, ContainerState::Created],
        C::Running => vec![ContainerState::Running],
        C::Crashed | C::Shutdown => vec![ContainerState::Completed],
    }
}

/// A stage on which both are there, and nobody has been met.
fn lrp_stage(container: C, state: Option<ContainerState>, lrp: L) -> Stage {
    let mut stage = Stage::new();
    let states: Vec<ContainerState> = state.into_iter().collect();
    put_container(&mut stage, &owner(0, "ours"), &states, container == C::Shutdown);
    if !matches!(container, C::Absent | C::Reserved) {
        stage.assign(0, "ours");
    }
    if let Some(state) = record(lrp) {
        stage.board.put(0, state);
    }
    stage
}

fn check_lrp(container: C, state: Option<ContainerState>, lrp: L) {
    let (action, likelihood) = rep_lrp(container, lrp);
    let mut stage = lrp_stage(container, state, lrp);
    stage.meet();
    let row = format!("{container:?} × {lrp:?}: {action:?}");
    let unchanged = record(lrp);
    let runs = Some(ContainerState::Initializing);
    let (said, left, becomes): (&[&str], _, _) = match action {
        LrpAction::Nothing => (&[], state, unchanged),
        LrpAction::Delete => (&[], None, unchanged),
        LrpAction::ClaimThenRun => (&["claim"], runs, Some(RecordState::Claimed(ours()))),
        LrpAction::Run => (&[], runs, unchanged),
        LrpAction::Claim => (&["claim"], state, Some(RecordState::Claimed(ours()))),
        LrpAction::Start => (&["start"], state, Some(RecordState::Running(ours()))),
        LrpAction::CrashThenDelete => (&["crash"], None, Some(RecordState::Crashed)),
        LrpAction::RemoveThenDelete | LrpAction::Remove => (&["remove"], None, None),
    };
    assert_eq!(stage.said(), said, "{row}");
    assert_eq!(stage.state(&guid("ours")), left, "{row}");
    assert_eq!(stage.board.state(0), becomes.as_ref(), "{row}");
    let surprised = likelihood == Likelihood::Inconceivable;
    assert_eq!(stage.rep.inconceivable() > 0, surprised, "{row}");
    // And so it stays.
    let deletes = stage.deletes();
    stage.wait(PASS * 3);
    assert!(stage.said().is_empty() && stage.deletes() == deletes, "{row}");
    assert_eq!(stage.state(&guid("ours")), left, "{row}");
    if left.is_none() {
        stage.knows_nothing();
    }
    assert!(stage.agrees(), "{row}");
}

#[test]
fn every_row_of_the_lrp_table_is_done_and_then_rests() {
    let mut rows = 0;
    for container in C::ALL {
        for lrp in L::ALL {
            rows += 1;
            let states = states(container);
            if states.is_empty() {
                check_lrp(container, None, lrp);
            }
            states.into_iter().for_each(|state| check_lrp(container, Some(state), lrp));
        }
    }
    assert_eq!(rows, 42);
}

/// The first deletion does not succeed, so that the next decision is made on what is believed.
fn decide_on_belief(stage: &mut Stage) {
    stage.machine.deletes = Deletes::Busy;
    stage.meet();
    assert_eq!(stage.deletes(), 1);
    stage.machine.deletes = Deletes::AtOnce;
    stage.holds = true;
    stage.wait(PASS);
    assert_eq!(stage.deletes(), 1, "a belief is no reason");
    assert!(matches!(stage.asks.front(), Some(Ask::Sync(_, asked)) if asked.own
        == volvox_protocol::cell_rpc::OwnRecords::None));
}

#[test]
fn what_lives_is_deleted_only_after_its_record_was_read_again() {
    for container in [C::Starting, C::Running] {
        for lrp in L::ALL.into_iter().filter(|it| rep_lrp(container, *it).0 == LrpAction::Delete) {
            let state = states(container)[0];
            let mut stage = lrp_stage(container, Some(state), lrp);
            decide_on_belief(&mut stage);
            stage.holds = false;
            stage.settle();
            assert_eq!(stage.deletes(), 2, "{container:?} × {lrp:?}");
            stage.knows_nothing();

            // The record becomes ours between the decision and the read.
            let mut stage = lrp_stage(container, Some(state), lrp);
            decide_on_belief(&mut stage);
            let claimed = container == C::Starting;
            let becomes = if claimed { RecordState::Claimed } else { RecordState::Running };
            stage.board.put(0, becomes(ours()));
            stage.holds = false;
            stage.wait(PASS);
            assert_eq!(stage.deletes(), 1, "{container:?} × {lrp:?}");
            assert_eq!(stage.state(&guid("ours")), Some(state));
            assert!(stage.said().is_empty() && stage.agrees());
        }
    }
}

#[test]
fn half_of_a_name_is_not_ours() {
    let halves = [on(cell(), "another"), on(theirs().cell_id, "ours")];
    for half in halves {
        let mut stage = lrp_stage(C::Starting, Some(ContainerState::Created), L::Missing);
        stage.board.put(0, RecordState::Claimed(half.clone()));
        stage.meet();
        assert_eq!(stage.state(&guid("ours")), None, "{half:?}");
        stage.knows_nothing();
    }
}

fn task_record(view: V) -> Option<(TaskState, Option<CellId>)> {
    let of = |whose| Some(if whose == Ours { cell() } else { theirs().cell_id });
    Some(match view {
        V::Missing => return None,
        V::Pending => (TaskState::Pending, None),
        V::Running(whose) => (TaskState::Running, of(whose)),
        V::Completed(whose) => (TaskState::Completed, of(whose)),
        V::Resolving(whose) => (TaskState::Resolving, of(whose)),
    })
}

fn task_states(view: T) -> Vec<ContainerState> {
    match view {
        T::Absent => vec![],
        T::Reserved => vec![ContainerState::Reserved],
        T::Active => {
            vec![ContainerState::Initializing, ContainerState::Created, ContainerState::Running]
        }
        T::Completed => vec![ContainerState::Completed],
    }
}

fn task_stage(state: Option<ContainerState>, view: V) -> Stage {
    let mut stage = Stage::new();
    let states: Vec<ContainerState> = state.into_iter().collect();
    put_container(&mut stage, &task_owner(), &states, false);
    if let Some((state, cell)) = task_record(view) {
        stage.board.put_task(&task(), state, cell);
    }
    stage
}

fn check_task(container: T, state: Option<ContainerState>, view: V) {
    let (action, likelihood) = rep_task(container, view);
    let mut stage = task_stage(state, view);
    stage.meet();
    let row = format!("{container:?} × {view:?}: {action:?}");
    let unchanged = task_record(view);
    let ends = Some((TaskState::Completed, Some(cell())));
    let starts = Some((TaskState::Running, Some(cell())));
    let runs = Some(ContainerState::Initializing);
    let (said, left, becomes): (&[&str], _, _) = match action {
        TaskAction::Nothing => (&[], state, unchanged),
        TaskAction::Delete => (&[], None, unchanged),
        TaskAction::StartThenRun => (&["start task"], runs, starts),
        TaskAction::Start => (&["start task"], state, starts),
        TaskAction::CompleteThenDelete | TaskAction::CompleteFailed => {
            (&["complete task"], None, ends)
        }
    };
    assert_eq!(stage.said(), said, "{row}");
    let guid = ContainerGuid::from(&task());
    assert_eq!(stage.state(&guid), left, "{row}");
    let record = stage.board.tasks.get(&task()).map(|it| (it.state, it.cell.clone()));
    assert_eq!(record, becomes, "{row}");
    let surprised = likelihood == Likelihood::Inconceivable;
    assert_eq!(stage.rep.inconceivable() > 0, surprised, "{row}");
    let deletes = stage.deletes();
    stage.wait(PASS * 3);
    assert!(stage.said().is_empty() && stage.deletes() == deletes, "{row}");
    assert_eq!(stage.state(&guid), left, "{row}");
    if left.is_none() {
        stage.knows_nothing();
    }
    // A reservation of a task that was started counts on one side only: it must not last.
    assert_eq!(stage.agrees(), left != Some(ContainerState::Reserved), "{row}");
}

#[test]
fn every_row_of_the_task_table_is_done_and_then_rests() {
    let mut rows = 0;
    for container in T::ALL {
        for view in V::ALL {
            rows += 1;
            let states = task_states(container);
            if states.is_empty() {
                check_task(container, None, view);
            }
            states.into_iter().for_each(|state| check_task(container, Some(state), view));
        }
    }
    assert_eq!(rows, 32);
}

#[test]
fn a_task_that_runs_is_deleted_only_after_its_record_was_read_again() {
    for view in V::ALL.into_iter().filter(|it| rep_task(T::Active, *it).0 == TaskAction::Delete) {
        let mut stage = task_stage(Some(ContainerState::Running), view);
        decide_on_belief(&mut stage);
        stage.holds = false;
        stage.settle();
        assert_eq!(stage.deletes(), 2, "{view:?}");
        stage.knows_nothing();

        let mut stage = task_stage(Some(ContainerState::Running), view);
        decide_on_belief(&mut stage);
        stage.board.put_task(&task(), TaskState::Running, Some(cell()));
        stage.holds = false;
        stage.wait(PASS);
        assert_eq!(stage.deletes(), 1, "{view:?}");
        assert!(stage.said().is_empty() && stage.agrees());
    }
}
