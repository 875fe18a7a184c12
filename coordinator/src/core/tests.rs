//! Tests of the coordinator as one value: what leaves it, when, and what it does when the disk lets it
//! down.

use std::net::SocketAddr;

use serde_json::json;
use volvox_mesh::identity::{MemberId, MemberIdentity};
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
use volvox_protocol::cell::CellLoad;
use volvox_protocol::cell_rpc::RetryLater;
use volvox_protocol::id::{Domain, InstanceGuid, ProcessGuid, TaskGuid};

use super::*;
use crate::auction::logic::tests::{capacity, cell as some_cell};
use crate::bbs::logic::check::check;
use crate::bbs::settings::BoardSettings;
use crate::callback::logic::CallResult;
use crate::cells::admission::PUT_OFF;
use crate::cells::logic::Listed;

const HOUR: Duration = Duration::from_secs(3_600);

/// A coordinator with a disk that takes everything, unless a test says otherwise.
struct Stage {
    core: Core,
    now: Now,
    random: SplitMix,
    replies: u64,
}

fn stage() -> Stage {
    stage_with(Converge::WhenTold)
}

fn stage_with(converge: Converge) -> Stage {
    let now = Now { ran: Timestamp::from_secs(10), machine: Timestamp::from_secs(1_000_000) };
    let settings = CoreSettings { converge, ..CoreSettings::default() };
    let core = Core::new(now, settings, Board::new(BoardSettings::default()));
    Stage { core, now, random: SplitMix(1), replies: 0 }
}

impl Stage {
    fn pass(&mut self, time: Duration) {
        self.now.ran = self.now.ran + time;
        self.now.machine = self.now.machine + time;
    }

    fn input(&mut self, command: Command) -> CoreInput {
        self.replies += 1;
        CoreInput::Command { reply: ReplyId(self.replies), command, trace: None }
    }

    fn report(&mut self, requests: Vec<CellRequest>, deadline: Timestamp) -> CoreInput {
        self.replies += 1;
        CoreInput::Report { reply: ReplyId(self.replies), requests, deadline }
    }

    fn step(&mut self, inputs: Vec<CoreInput>) -> Transaction {
        let mut inputs = VecDeque::from(inputs);
        let transaction = self.core.step(self.now, &mut self.random, &mut inputs);
        assert!(inputs.is_empty(), "all of it fits into one transaction");
        transaction
    }

    /// One whole turn: what was heard, one transaction that the disk takes or refuses.
    fn turn(&mut self, inputs: Vec<CoreInput>, saved: Result<(), StoreError>) -> Vec<CoreOutput> {
        let mut outputs = self.core.hear(self.now, []);
        let transaction = self.step(inputs);
        outputs.extend(self.core.committed(self.now, transaction, saved));
        let board = self.core.board_time(self.now);
        assert_eq!(check(self.core.board(), board), [""; 0]);
        outputs
    }

    fn call(&mut self, command: Command) -> Result<Reply, CallError> {
        self.call_saved(command, Ok(()))
    }

    fn call_saved(
        &mut self,
        command: Command,
        saved: Result<(), StoreError>,
    ) -> Result<Reply, CallError> {
        let input = self.input(command);
        let outputs = self.turn(vec![input], saved);
        let reply = outputs.into_iter().find_map(|output| {
            let CoreOutput::Reply(ReplyId(id), result) = output else { return None };
            (id == self.replies).then_some(result)
        });
        reply.expect("each command is answered")
    }

    /// Cells that are there and have room.
    fn cells(&mut self, names: &[&str]) {
        let listed = names.iter().map(|name| listed(name, true)).collect();
        self.core.hear(self.now, [Signal::Members(listed)]);
    }

    fn presence(&self, name: &str) -> Option<CellPresence> {
        self.core.board().presence(&cell(name))
    }
}

fn failure() -> StoreError {
    StoreError::Commit { reason: "the disk is full".to_owned() }
}

fn cell(name: &str) -> CellId {
    CellId::new(name).unwrap()
}

fn identity(name: &str) -> Arc<MemberIdentity> {
    let mut member = [0; 16];
    member[..name.len()].copy_from_slice(name.as_bytes());
    Arc::new(MemberIdentity {
        member: MemberId(member),
        kind: MemberKind::Cell,
        name: cell(name),
        public_key: [0; 32],
        not_before: Timestamp::ZERO,
        not_after: Timestamp::NEVER,
    })
}

fn listed(name: &str, is_there: bool) -> Listed {
    let room = capacity(1_000, 1_000, 100);
    let load = CellLoad {
        cell_id: cell(name),
        version: 1,
        free: room,
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch: 0,
        digest: 0,
    };
    Listed {
        identity: identity(name),
        is_there,
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        info: Some(some_cell(name, "z", room).info),
        load: Some(load),
    }
}

fn present(name: &str) -> Signal {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    Signal::Member(MemberEvent::Present { identity: identity(name), generation: 1, address })
}

fn missing(name: &str) -> Signal {
    Signal::Member(MemberEvent::Missing { identity: identity(name), left: false })
}

fn desire(process: &str, instances: u32) -> Command {
    let desired = json!({
        "process_guid": process, "domain": "d", "instances": instances, "rootfs": "preloaded:linux",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    Command::DesireLrp(Box::new(serde_json::from_value(desired).unwrap()))
}

fn desire_task(task: &str) -> Command {
    let definition = json!({
        "rootfs": "preloaded:linux", "completion_callback_url": "http://consumer/done",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    let definition = Box::new(serde_json::from_value(definition).unwrap());
    Command::DesireTask(TaskGuid::new(task).unwrap(), Domain::new("d").unwrap(), definition)
}

fn key(process: &str) -> LrpKey {
    LrpKey {
        process_guid: ProcessGuid::new(process).unwrap(),
        index: 0,
        domain: Domain::new("d").unwrap(),
        definition_id: None,
    }
}

fn instance(on: &str) -> InstanceKey {
    InstanceKey { instance_guid: InstanceGuid::new("i1").unwrap(), cell_id: cell(on) }
}

fn claim(process: &str, on: &str) -> CellRequest {
    CellRequest::ClaimLrp(key(process), instance(on))
}

fn start(process: &str, on: &str) -> CellRequest {
    let running = Running {
        net_info: NetInfo { address: "192.0.2.1".into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z".into(),
    };
    CellRequest::StartLrp(key(process), instance(on), Arc::new(running))
}

fn says(request: CellRequest) -> Command {
    Command::Cell(Valid::new(request).unwrap())
}

fn names(outputs: &[CoreOutput]) -> Vec<&'static str> {
    let name = |output: &CoreOutput| match output {
        CoreOutput::Reply(_, Ok(_)) => "reply",
        CoreOutput::Reply(_, Err(_)) => "refusal",
        CoreOutput::Answers(..) => "answers",
        CoreOutput::Explained(..) => "explained",
        CoreOutput::Send(_) => "send",
        CoreOutput::Events { .. } => "events",
        CoreOutput::Resync { .. } => "resync",
        CoreOutput::Call(_) => "call",
        CoreOutput::PublishCell(..) => "cell",
        CoreOutput::Notice(_) => "notice",
    };
    outputs.iter().map(name).collect()
}

fn sent(outputs: &[CoreOutput]) -> Vec<&Dispatch> {
    let mut sent = Vec::new();
    for output in outputs {
        if let CoreOutput::Send(dispatch) = output {
            sent.push(dispatch);
        }
    }
    sent
}

fn answers(outputs: Vec<CoreOutput>) -> Vec<CellAnswer> {
    let answers = |output| if let CoreOutput::Answers(_, all) = output { Some(all) } else { None };
    outputs.into_iter().find_map(answers).expect("the report was answered")
}

#[test]
fn nothing_leaves_before_its_commit_and_then_events_come_before_the_answer() {
    let mut stage = stage();
    stage.cells(&["a"]);
    let input = stage.input(desire("p", 1));
    let transaction = stage.step(vec![input]);
    assert!(!transaction.changes().is_empty());
    assert_eq!(names(&stage.core.hear(stage.now, [])), [""; 0], "no order, no event, no answer");
    assert_eq!(stage.core.view().snapshot().instance_count(), 0);
    let outputs = stage.core.committed(stage.now, transaction, Ok(()));
    assert_eq!(names(&outputs), ["events", "reply"]);
    assert_eq!(stage.core.view().snapshot().instance_count(), 1, "a caller sees what it wrote");
    assert_eq!(stage.core.next_wake(stage.now), stage.now.ran, "a round is due at once");
    let outputs = stage.core.hear(stage.now, []);
    let [dispatch] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(dispatch.cell, cell("a"));
    assert!(
        matches!(&dispatch.orders.orders[..], [CellOrder::Work(batch)] if batch.lrps.len() == 1)
    );
}

#[test]
fn what_could_not_be_saved_has_not_happened_but_what_was_refused_was() {
    let mut stage = stage();
    stage.cells(&["a"]);
    stage.call(desire("kept", 1)).unwrap();
    let inputs = vec![stage.input(desire("p", 1)), stage.input(desire("kept", 1))];
    let outputs = stage.turn(inputs, Err(failure()));
    let results: Vec<String> = outputs
        .iter()
        .filter_map(|output| {
            if let CoreOutput::Reply(_, Err(CallError::Store(_))) = output {
                return Some("not saved".to_owned());
            }
            if let CoreOutput::Reply(_, Err(CallError::Rejected(Rejection::Exists(_)))) = output {
                return Some("exists".to_owned());
            }
            let is_told = matches!(output, CoreOutput::Events { .. } | CoreOutput::Reply(..));
            is_told.then(|| format!("{output:?}"))
        })
        .collect();
    assert_eq!(results, ["not saved", "exists"]);
    assert_eq!(stage.core.view().snapshot().instance_count(), 1);
    stage.call(desire("p", 1)).unwrap();
}

#[test]
fn cells_are_followed_and_orders_sent_while_a_commit_takes_ten_seconds() {
    let mut stage = stage();
    stage.cells(&["a", "b", "d"]);
    stage.call(desire("p", 1)).unwrap();
    let outputs = stage.core.hear(stage.now, []);
    let (first, at) = (sent(&outputs)[0].id, sent(&outputs)[0].cell.clone());
    let lost = if at == cell("a") { "b" } else { "a" };
    let input = stage.input(desire("q", 1));
    let transaction = stage.step(vec![input]);
    // It is under way. Meanwhile a cell comes, another is lost, and one refuses its work.
    stage.pass(Duration::from_secs(4));
    assert!(stage.core.next_wake(stage.now) > stage.now.ran, "it does not spin");
    let outputs = stage.core.hear(stage.now, [present("c"), missing(lost)]);
    assert!(stage.core.is_there(&cell("c")) && !stage.core.is_there(&cell(lost)));
    assert!(names(&outputs).contains(&"cell"), "readers of cells see it: {outputs:?}");
    stage.pass(Duration::from_secs(3));
    let failed = OrderAnswer::Failed("no".into());
    let outputs = stage.core.hear(stage.now, [Signal::Delivered(first, Ok(vec![failed]))]);
    assert_eq!(sent(&outputs).len(), 1, "the work goes elsewhere: {outputs:?}");
    stage.pass(Duration::from_secs(3));
    assert!(stage.now.ran < transaction.deadline(), "ten seconds are not too long");
    assert_eq!(stage.presence(lost), Some(CellPresence::Present), "the board has not moved");
    let outputs = stage.core.committed(stage.now, transaction, Ok(()));
    assert!(names(&outputs).ends_with(&["events", "reply"]), "{outputs:?}");
    stage.turn(vec![], Ok(()));
    assert_eq!(stage.presence(lost), Some(CellPresence::Missing));
    assert_eq!(stage.presence("c"), Some(CellPresence::Present));
}

#[test]
fn what_the_mesh_said_outlives_a_commit_that_failed() {
    let mut stage = stage();
    stage.cells(&["a"]);
    stage.call(desire("p", 1)).unwrap();
    stage.call(says(start("p", "a"))).unwrap();
    stage.core.hear(stage.now, [missing("a")]);
    stage.turn(vec![], Err(failure()));
    assert_eq!(stage.presence("a"), Some(CellPresence::Missing));
    assert_eq!(stage.core.view().snapshot().instance_count(), 1, "nothing of it has happened");
    stage.call(Command::ConvergeDue).unwrap();
    assert_eq!(stage.core.view().snapshot().instance_count(), 2, "the replacement has been made");
}

#[test]
fn while_the_database_cannot_be_read_nothing_is_decided_and_the_mesh_is_heard() {
    let mut stage = stage();
    stage.cells(&["a"]);
    stage.call(desire("p", 1)).unwrap();
    stage.core.reload_failed(stage.now, &failure());
    assert!(!stage.core.is_reload_due(stage.now));
    stage.core.hear(stage.now, [present("b"), missing("a")]);
    let before = stage.core.view().snapshot_at().1;
    let refused = stage.call(desire("p", 1)).unwrap_err();
    assert!(refused.to_string().contains("tried again soon"), "not that it exists: {refused}");
    let report = stage.report(vec![claim("p", "b")], Timestamp::NEVER);
    let put_off = answers(stage.turn(vec![report], Ok(())));
    assert_eq!(put_off, [CellAnswer::Later(RetryLater::NotSaved)]);
    assert_eq!(stage.core.view().snapshot_at().1, before, "nothing was shown");
    stage.pass(FIRST_PAUSE);
    assert!(stage.core.is_reload_due(stage.now));
    let outputs = stage.core.reloaded(stage.now, Board::new(BoardSettings::default()));
    assert_eq!(names(&outputs), ["resync", "notice", "send"], "all cells that are there sync");
    assert_eq!(sent(&outputs)[0].orders.orders, [CellOrder::Sync]);
    assert_eq!(stage.presence("a"), Some(CellPresence::Missing));
    assert_eq!(stage.presence("b"), Some(CellPresence::Present));
    stage.call(desire("p", 1)).unwrap();
}

#[test]
fn a_report_is_applied_in_its_order_and_put_off_as_a_whole() {
    let mut stage = stage();
    stage.cells(&["a"]);
    stage.call(desire("p", 1)).unwrap();
    let both = || vec![claim("p", "a"), start("p", "a")];
    let late = stage.report(both(), stage.now.ran - Duration::from_secs(1));
    assert_eq!(answers(stage.turn(vec![late], Ok(()))), [PUT_OFF, PUT_OFF]);
    let not_saved = stage.report(both(), stage.now.ran);
    let later = CellAnswer::Later(RetryLater::NotSaved);
    assert_eq!(answers(stage.turn(vec![not_saved], Err(failure()))), [later.clone(), later]);
    let in_time = stage.report(both(), stage.now.ran);
    assert_eq!(answers(stage.turn(vec![in_time], Ok(()))), [CellAnswer::Done, CellAnswer::Done]);
    let records = stage.core.view().snapshot();
    assert!(records.instances().all(|lrp| lrp.state.is_running()));
}

#[test]
fn a_command_that_brings_very_much_does_not_take_the_rest_with_it() {
    let mut stage = stage();
    let mut inputs =
        VecDeque::from([stage.input(desire("many", 25_000)), stage.input(desire("few", 1))]);
    let transaction = stage.core.step(stage.now, &mut stage.random, &mut inputs);
    assert_eq!(inputs.len(), 1, "the second one waits for the next transaction");
    stage.core.committed(stage.now, transaction, Ok(()));
    stage.turn(inputs.into(), Ok(()));
    assert_eq!(stage.core.view().snapshot().instance_count(), 25_001);
}

#[test]
fn work_without_a_cell_is_told_to_the_board_once() {
    let mut stage = stage();
    stage.call(desire("p", 2)).unwrap();
    stage.core.hear(stage.now, []);
    assert!(!stage.core.has_pending(), "nobody could have said which cells there are");
    stage.cells(&[]);
    assert!(stage.core.has_pending());
    stage.turn(vec![], Ok(()));
    let records = stage.core.view().snapshot();
    assert!(records.instances().all(|lrp| !lrp.placement_error().is_empty()));
    assert_eq!(names(&stage.turn(vec![], Ok(()))), [""; 0], "and not again");
}

#[test]
fn a_consumer_is_called_after_its_task_was_resolved_and_then_it_is_forgotten() {
    let mut stage = stage();
    stage.call(desire_task("t")).unwrap();
    let outputs = stage.turn_of(Command::CancelTask(TaskGuid::new("t").unwrap()));
    assert!(!names(&outputs).contains(&"call"), "the board has not resolved it: {outputs:?}");
    let outputs = stage.turn(vec![], Ok(()));
    let call =
        outputs.iter().find_map(|it| if let CoreOutput::Call(it) = it { Some(it) } else { None });
    let key = crate::callback::logic::key_of(call.expect("it is resolved, so it is called"));
    stage.core.hear(stage.now, [Signal::Called(key, CallResult::Yes)]);
    stage.turn(vec![], Ok(()));
    assert_eq!(stage.core.view().snapshot().tasks().count(), 0);
    assert_eq!(stage.core.callbacks().counts().pending, 0);
}

#[test]
fn an_answer_that_is_not_one_to_each_order_is_none() {
    let mut stage = stage();
    stage.cells(&["a"]);
    stage.call(desire("p", 1)).unwrap();
    let outputs = stage.core.hear(stage.now, []);
    let id = sent(&outputs)[0].id;
    stage.core.hear(stage.now, [Signal::Delivered(id, Ok(vec![]))]);
    assert!(stage.core.orders_are_idle());
    // The cell may have it: nobody else gets it before convergence asks.
    assert_eq!(stage.core.work_waiting(), 0);
    // What comes again says nothing new.
    assert_eq!(names(&stage.core.hear(stage.now, [Signal::Delivered(id, Ok(vec![]))])), [""; 0]);
}

#[test]
fn a_clock_that_is_set_moves_no_pause_and_ends_no_hold() {
    let mut stage = stage_with(Converge::Itself(HOUR));
    stage.cells(&["a"]);
    stage.turn(vec![], Ok(()));
    assert!(!stage.core.is_settled());
    stage.now.machine = stage.now.machine + HOUR;
    stage.core.hear(stage.now, []);
    assert!(!stage.core.is_settled(), "nobody has waited for cells yet");
    stage.pass(Duration::from_secs(600));
    stage.core.hear(stage.now, []);
    assert!(stage.core.is_settled());
}

impl Stage {
    fn turn_of(&mut self, command: Command) -> Vec<CoreOutput> {
        let input = self.input(command);
        self.turn(vec![input], Ok(()))
    }
}
