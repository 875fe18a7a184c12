//! Callbacks, step by step: what is asked and called after each outcome.

use volvox_protocol::id::Domain;
use volvox_protocol::task::{TaskDefinition, TaskState};

use super::*;

const START: Timestamp = Timestamp::from_secs(1_000);

fn guid(name: &str) -> TaskGuid {
    TaskGuid::new(name).unwrap()
}

/// The task of this name that was made in the first second.
fn key(name: &str) -> Key {
    (guid(name), Timestamp::from_secs(1))
}

/// A task that has ended, of this name, made at this second, with this URL.
fn task(name: &str, made_s: u64, url: &str) -> Arc<Task> {
    let definition =
        TaskDefinition { completion_callback_url: url.to_owned(), ..TaskDefinition::default() };
    Arc::new(Task {
        task_guid: guid(name),
        domain: Domain::new("d").unwrap(),
        definition: Arc::new(definition),
        state: TaskState::Completed,
        cell_id: None,
        created_at: Timestamp::from_secs(made_s),
        updated_at: Timestamp::from_secs(made_s),
        first_completed_at: Timestamp::from_secs(made_s),
        result: String::new(),
        failed: false,
        failure_reason: String::new(),
        rejection_count: 0,
        rejection_reason: String::new(),
    })
}

fn ask(name: &str, question: BoardCall) -> CallbackOutput {
    CallbackOutput::Ask(key(name), question)
}

/// Brings a task to its first call.
fn calling(callbacks: &mut Callbacks, task: &Arc<Task>) {
    let key = key_of(task);
    let asked = callbacks.start(Arc::clone(task));
    assert_eq!(asked, [CallbackOutput::Ask(key.clone(), BoardCall::Resolving)]);
    assert_eq!(callbacks.answered(&key, Ok(())), [CallbackOutput::Call(Arc::clone(task))]);
}

fn new() -> Callbacks {
    Callbacks::new(CallbackSettings::default())
}

fn no() -> Result<(), String> {
    Err("no".to_owned())
}

#[test]
fn a_consumer_is_told_and_its_task_deleted() {
    let mut callbacks = new();
    let task = task("t", 1, "http://one/");
    calling(&mut callbacks, &task);
    let told = callbacks.called(START, START, &key("t"), CallResult::Yes);
    assert_eq!(told, [ask("t", BoardCall::Delete)]);
    assert_eq!(callbacks.answered(&key("t"), Ok(())), []);
    assert_eq!(callbacks.counts(), Counts { delivered: 1, failed: 0, pending: 0 });
    assert!(callbacks.hosts.is_empty());
    assert_eq!(callbacks.at_work, 0);
}

#[test]
fn one_that_is_not_ours_is_not_called() {
    let mut callbacks = new();
    callbacks.start(task("t", 1, "http://one/"));
    let effects = callbacks.answered(&key("t"), no());
    assert_eq!(effects, [CallbackOutput::NotOurs(guid("t"), "no".to_owned())]);
    assert_eq!(callbacks.counts().pending, 0);
}

#[test]
fn one_that_is_being_told_of_is_not_taken_on_twice() {
    let mut callbacks = new();
    let task = task("t", 1, "http://one/");
    calling(&mut callbacks, &task);
    assert_eq!(callbacks.start(Arc::clone(&task)), []);
    callbacks.called(START, START, &key("t"), CallResult::Yes);
    assert_eq!(callbacks.answered(&key("t"), Ok(())), [], "and not afterwards");
}

#[test]
fn pauses_double_and_the_last_try_gives_up() {
    let mut callbacks = new();
    let task = task("t", 1, "http://user:secret@one/done?key=secret");
    calling(&mut callbacks, &task);
    let mut now = START;
    for (tries, pause_ms) in [(1, 500), (2, 1_000)] {
        let effects = callbacks.called(now, now, &key("t"), CallResult::by_status(503));
        let [CallbackOutput::Failed(failure)] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!((failure.attempts, failure.given_up), (tries, false));
        assert_eq!((&*failure.url, &*failure.reason), ("http://one/done", "status 503"));
        now = now + Duration::from_millis(pause_ms);
        assert_eq!(callbacks.next_wake(), now);
        assert_eq!(callbacks.wake(now - Duration::from_nanos(1)), []);
        assert_eq!(callbacks.wake(now), [CallbackOutput::Call(Arc::clone(&task))]);
    }
    let effects = callbacks.called(now, now, &key("t"), CallResult::Again("time-out".to_owned()));
    assert!(matches!(&effects[..], [CallbackOutput::Failed(it)] if it.given_up), "{effects:?}");
    assert_eq!(callbacks.counts(), Counts { delivered: 0, failed: 3, pending: 0 });
}

#[test]
fn what_will_not_work_is_given_up_at_once() {
    let mut callbacks = new();
    calling(&mut callbacks, &task("t", 1, "http://one/"));
    let effects =
        callbacks.called(START, START, &key("t"), CallResult::No("no such host".to_owned()));
    assert!(matches!(&effects[..], [CallbackOutput::Failed(it)] if it.given_up), "{effects:?}");
    assert_eq!(callbacks.counts().pending, 0);
}

#[test]
fn every_status_but_two_means_heard() {
    assert!(matches!(CallResult::by_status(503), CallResult::Again(_)));
    assert!(matches!(CallResult::by_status(504), CallResult::Again(_)));
    for status in [200, 302, 404, 500, 502] {
        assert_eq!(CallResult::by_status(status), CallResult::Yes, "{status}");
    }
}

#[test]
fn a_task_that_convergence_took_back_is_resolved_again_and_deleted() {
    let mut callbacks = new();
    calling(&mut callbacks, &task("t", 1, "http://one/"));
    callbacks.called(START, START, &key("t"), CallResult::Yes);
    assert_eq!(callbacks.answered(&key("t"), no()), [ask("t", BoardCall::Resolving)]);
    assert_eq!(callbacks.answered(&key("t"), no()), [ask("t", BoardCall::Delete)]);
    let effects = callbacks.answered(&key("t"), no());
    assert_eq!(effects, [CallbackOutput::NotDeleted(guid("t"), "no".to_owned())]);
    assert_eq!(callbacks.counts().pending, 0, "convergence asks again");
}

#[test]
fn a_newer_task_of_the_name_is_another_task() {
    let (old, newer) = (task("t", 1, "http://one/"), task("t", 2, "http://two/"));
    let mut callbacks = new();
    calling(&mut callbacks, &old);
    // It waits for nobody, and each has its own outcome.
    calling(&mut callbacks, &newer);
    let told = callbacks.called(START, START, &key_of(&old), CallResult::Yes);
    assert_eq!(told, [ask("t", BoardCall::Delete)]);
    callbacks.answered(&key_of(&old), no());
    callbacks.answered(&key_of(&old), no());
    let over = callbacks.answered(&key_of(&old), no());
    assert_eq!(over, [CallbackOutput::NotDeleted(guid("t"), "no".to_owned())]);
    let told = callbacks.called(START, START, &key_of(&newer), CallResult::Yes);
    assert_eq!(told, [CallbackOutput::Ask(key_of(&newer), BoardCall::Delete)]);
    assert_eq!(callbacks.answered(&key_of(&newer), Ok(())), []);
    assert_eq!(callbacks.counts(), Counts { delivered: 2, failed: 0, pending: 0 });
}

#[test]
fn the_board_is_asked_about_the_task_itself_not_its_name() {
    let first = Timestamp::from_secs(1);
    let asked = BoardCall::Resolving.about(key("t"));
    assert!(matches!(asked, Command::ResolvingTask(_, TaskRef::MadeAt(made)) if made == first));
    let asked = BoardCall::Delete.about(key("t"));
    assert!(matches!(asked, Command::DeleteTask(_, TaskRef::MadeAt(made)) if made == first));
}

#[test]
fn one_host_has_so_many_calls_and_does_not_hold_up_the_others() {
    let mut callbacks = new();
    let names: Vec<String> = (0..20).map(|nth| format!("t{nth:02}")).collect();
    for name in &names {
        callbacks.start(task(name, 1, "http://slow/"));
    }
    assert_eq!(callbacks.at_work, PER_HOST);
    assert_eq!(
        callbacks.start(task("other", 1, "http://fast/")),
        [ask("other", BoardCall::Resolving)]
    );
    // Who leaves lets in the one that has waited longest; a pause gives the place back too.
    callbacks.answered(&key("t00"), Ok(()));
    let effects = callbacks.called(START, START, &key("t00"), CallResult::by_status(503));
    assert_eq!(effects[1..], [ask("t16", BoardCall::Resolving)]);
    let effects = callbacks.answered(&key("t01"), no());
    assert_eq!(effects[1..], [ask("t17", BoardCall::Resolving)]);
    // The one that paused is behind those that wait.
    assert_eq!(callbacks.wake(START + Duration::from_secs(1)), []);
    let effects = callbacks.answered(&key("t02"), no());
    assert_eq!(effects[1..], [ask("t18", BoardCall::Resolving)]);
}

#[test]
fn only_so_many_are_called_at_once() {
    let mut callbacks =
        Callbacks::new(CallbackSettings { at_once: 2, ..CallbackSettings::default() });
    for nth in 0..4 {
        callbacks.start(task(&format!("t{nth}"), 1, &format!("http://h{nth}/")));
    }
    assert_eq!(callbacks.at_work, 2);
    let effects = callbacks.answered(&key("t1"), no());
    assert_eq!(effects[1..], [ask("t2", BoardCall::Resolving)]);
}

#[test]
fn what_finds_no_place_is_left_to_convergence() {
    let mut callbacks = new();
    for nth in 0..QUEUE {
        callbacks.start(task(&format!("t{nth}"), 1, "http://one/"));
    }
    assert_eq!(callbacks.counts().pending, QUEUE);
    assert_eq!(callbacks.start(task("more", 1, "http://two/")), []);
    assert_eq!(callbacks.counts().pending, QUEUE);
}
