//! The registry, input by input, and at random.

use std::collections::BTreeMap;

use volvox_protocol::id::{InstanceGuid, TaskGuid};
use volvox_protocol::random::SplitMix;

use super::*;

const ROOM: CellCapacity = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 3 };

fn guid(name: &str) -> ContainerGuid {
    InstanceGuid::new(name).unwrap().into()
}

fn room(name: &str, memory_mb: u32, disk_mb: u32) -> Reservation {
    Reservation { guid: guid(name), resources: ContainerResources { memory_mb, disk_mb } }
}

fn failed(reason: &str) -> RunResult {
    RunResult { failed: true, failure_reason: reason.into(), stopped: false, retryable: true }
}

fn stopped() -> RunResult {
    RunResult { stopped: true, ..RunResult::default() }
}

/// Applies the inputs one second apart to a registry, from second 0 on.
fn play(
    registry: &mut ContainerStore,
    inputs: &[StoreInput],
) -> Vec<Result<Vec<StoreOutput>, ExecutorRefusal>> {
    let steps = inputs.iter().zip(0..).map(|(input, second)| {
        let before = registry.clone();
        let answer = registry.apply(Timestamp::from_secs(second), input.clone());
        assert_eq!(check(registry), Vec::<String>::new(), "after {input:?}");
        assert!(answer.is_ok() || *registry == before, "{input:?} was refused and left a trace");
        answer
    });
    steps.collect()
}

/// A registry with container `a`, brought to this state.
fn with(state: ContainerState) -> ContainerStore {
    let mut registry = ContainerStore::new(ROOM, RESERVATION_EXPIRY);
    let mut inputs = vec![StoreInput::Reserve(vec![room("a", 60, 10)])];
    let way = [
        StoreInput::Run(guid("a")),
        StoreInput::Created(guid("a")),
        StoreInput::Running(guid("a")),
        StoreInput::Completed(guid("a"), failed("it fell")),
    ];
    let steps = ContainerState::ALL.iter().position(|it| *it == state).unwrap();
    inputs.extend(way.into_iter().take(steps));
    for answer in play(&mut registry, &inputs) {
        answer.unwrap();
    }
    assert_eq!(registry.container(&guid("a")).unwrap().state, state);
    registry
}

#[test]
fn a_life_goes_through_all_states_and_gives_its_room_back() {
    let a = || guid("a");
    let mut registry = ContainerStore::new(ROOM, RESERVATION_EXPIRY);
    let script = [
        (
            StoreInput::Reserve(vec![room("a", 1, 2)]),
            StoreOutput::Emit(ContainerEvent::Reserved(a())),
        ),
        (StoreInput::Run(a()), StoreOutput::Create(a())),
        (StoreInput::Created(a()), StoreOutput::BeginSteps(a())),
        (StoreInput::Running(a()), StoreOutput::Emit(ContainerEvent::Running(a()))),
        (
            StoreInput::Completed(a(), failed("x")),
            StoreOutput::Emit(ContainerEvent::Completed(a())),
        ),
        (StoreInput::Delete(a()), StoreOutput::Destroy(a())),
        (StoreInput::Destroyed(a()), StoreOutput::Forget(a(), RemovalReason::Deleted)),
    ];
    let inputs: Vec<_> = script.iter().map(|(input, _)| input.clone()).collect();
    for (answer, (input, effect)) in play(&mut registry, &inputs).into_iter().zip(script) {
        assert_eq!(answer, Ok(vec![effect]), "{input:?}");
    }
    assert_eq!(registry, ContainerStore::new(ROOM, RESERVATION_EXPIRY));
}

#[test]
fn a_batch_takes_what_fits_and_returns_the_rest_with_the_reason() {
    let mut registry = ContainerStore::new(ROOM, RESERVATION_EXPIRY);
    let batch = vec![
        room("a", 60, 0),
        room("b", 60, 0),
        room("a", 1, 1),
        room("c", 40, 100),
        room("d", 0, 0),
        room("e", 0, 0),
    ];
    let effects = registry.apply(Timestamp::ZERO, StoreInput::Reserve(batch)).unwrap();
    let told: Vec<_> = effects
        .iter()
        .map(|effect| {
            if let StoreOutput::RefuseReservation(guid, why) = effect {
                return format!("{guid}: {why}");
            }
            let StoreOutput::Emit(ContainerEvent::Reserved(guid)) = effect else {
                panic!("{effect:?}")
            };
            format!("{guid} reserved")
        })
        .collect();
    assert_eq!(
        told,
        [
            "a reserved",
            "b: insufficient resources: memory (wanted 60 MB, 40 MB left)",
            "a: container guid a is not available",
            "c reserved",
            "d reserved",
            "e: insufficient resources: containers (wanted 1, 0 left)",
        ]
    );
    assert_eq!(check(&registry), Vec::<String>::new());
}

#[test]
fn every_step_in_every_state_follows_the_state_table() {
    let a = || guid("a");
    let steps = [
        (StoreInput::Run(a()), ContainerState::Initializing),
        (StoreInput::Created(a()), ContainerState::Created),
        (StoreInput::Running(a()), ContainerState::Running),
        (StoreInput::Completed(a(), RunResult::default()), ContainerState::Completed),
    ];
    for from in ContainerState::ALL {
        for (input, to) in &steps {
            let mut registry = with(from);
            let answer = play(&mut registry, std::slice::from_ref(input)).remove(0);
            let expected = if from.may_become(*to) { *to } else { from };
            assert_eq!(answer.is_ok(), from.may_become(*to), "{from:?} {input:?}");
            assert_eq!(registry.container(&a()).unwrap().state, expected, "{from:?} {input:?}");
        }
    }
}

#[test]
fn stopping_depends_on_how_far_it_has_come() {
    use ContainerState as S;
    let a = || guid("a");
    let ended = StoreOutput::Emit(ContainerEvent::Completed(a()));
    for (state, effects) in [
        (S::Reserved, vec![StoreOutput::Forget(a(), RemovalReason::StoppedBeforeRunning)]),
        (S::Initializing, vec![StoreOutput::AbandonCreate(a()), ended]),
        (S::Created, vec![StoreOutput::CancelSteps(a())]),
        (S::Running, vec![StoreOutput::CancelSteps(a())]),
        (S::Completed, vec![]),
    ] {
        let mut registry = with(state);
        let answers = play(&mut registry, &[StoreInput::Stop(a()), StoreInput::Stop(a())]);
        assert_eq!(answers[0], Ok(effects), "{state:?}");
        if state == S::Reserved {
            assert_eq!(answers[1], Err(ExecutorRefusal::NotFound(a())));
            assert_eq!(registry, ContainerStore::new(ROOM, RESERVATION_EXPIRY));
        } else {
            assert_eq!(answers[1], Ok(vec![]), "a second stop is ignored: {state:?}");
        }
    }
}

#[test]
fn what_was_told_to_stop_has_not_failed() {
    use ContainerState as S;
    let a = || guid("a");
    let cases = [
        (S::Running, vec![StoreInput::Stop(a())], failed("TERM"), stopped()),
        (S::Created, vec![StoreInput::Stop(a())], RunResult::default(), stopped()),
        (S::Created, vec![], stopped(), stopped()),
        (S::Running, vec![StoreInput::Delete(a())], failed("KILL"), stopped()),
        (S::Running, vec![], failed("x"), RunResult { retryable: false, ..failed("x") }),
        (S::Initializing, vec![], failed("x"), failed("x")),
        (S::Running, vec![], RunResult { failed: false, ..failed("x") }, RunResult::default()),
    ];
    for (state, before, given, expected) in cases {
        let mut registry = with(state);
        play(&mut registry, &before);
        play(&mut registry, &[StoreInput::Completed(a(), given.clone())]).remove(0).unwrap();
        assert_eq!(registry.container(&a()).unwrap().result, expected, "{state:?} {given:?}");
    }
}

#[test]
fn deleting_works_in_every_state_and_keeps_the_room_until_it_is_gone() {
    let a = || guid("a");
    for state in ContainerState::ALL {
        let mut registry = with(state);
        let first = play(&mut registry, &[StoreInput::Delete(a())]).remove(0);
        if state == ContainerState::Reserved {
            assert_eq!(first, Ok(vec![StoreOutput::Forget(a(), RemovalReason::Deleted)]));
        } else {
            assert_eq!(first, Ok(vec![StoreOutput::Destroy(a())]), "{state:?}");
            assert_eq!(registry.resources().remaining().memory_mb, 40, "{state:?}");
            // Deleting ended it, so after a failed deletion it is a completed container.
            let completed = state == ContainerState::Completed;
            let ended = StoreOutput::Emit(ContainerEvent::Completed(a()));
            let ended = if completed { vec![] } else { vec![ended] };
            let cannot_be_created = || ExecutorRefusal::InvalidTransition {
                guid: a(),
                from: ContainerState::Completed,
                to: ContainerState::Created,
            };
            let script = [
                (StoreInput::Delete(a()), Ok(vec![])),
                (StoreInput::Run(a()), Err(ExecutorRefusal::Deleting(a()))),
                (StoreInput::Running(a()), Err(ExecutorRefusal::Deleting(a()))),
                (StoreInput::DestroyFailed(a()), Ok(ended)),
                (StoreInput::Created(a()), Err(cannot_be_created())),
                (StoreInput::Destroyed(a()), Err(ExecutorRefusal::NotDeleting(a()))),
                (StoreInput::DestroyFailed(a()), Err(ExecutorRefusal::NotDeleting(a()))),
                (StoreInput::Delete(a()), Ok(vec![StoreOutput::Destroy(a())])),
                (
                    StoreInput::Destroyed(a()),
                    Ok(vec![StoreOutput::Forget(a(), RemovalReason::Deleted)]),
                ),
                (StoreInput::Delete(a()), Err(ExecutorRefusal::NotFound(a()))),
            ];
            let inputs: Vec<_> = script.iter().map(|(input, _)| input.clone()).collect();
            for (answer, (input, expected)) in play(&mut registry, &inputs).iter().zip(&script) {
                assert_eq!(answer, expected, "{state:?} {input:?}");
            }
        }
        assert_eq!(registry, ContainerStore::new(ROOM, RESERVATION_EXPIRY), "{state:?}");
    }
}

#[test]
fn routability_is_told_once_and_only_while_it_runs() {
    let a = || guid("a");
    let again = || Ok(vec![StoreOutput::Emit(ContainerEvent::Running(a()))]);
    let mut registry = with(ContainerState::Created);
    let script = [
        (StoreInput::Routable(a(), true), Ok(vec![])),
        (StoreInput::Running(a()), again()),
        (StoreInput::Routable(a(), true), Ok(vec![])),
        (StoreInput::Routable(a(), false), again()),
        (StoreInput::Routable(a(), true), again()),
    ];
    for (input, expected) in script {
        assert_eq!(play(&mut registry, &[input]).remove(0), expected);
    }
    for state in [ContainerState::Reserved, ContainerState::Initializing, ContainerState::Completed]
    {
        let answer = play(&mut with(state), &[StoreInput::Routable(a(), true)]).remove(0);
        assert_eq!(answer, Err(ExecutorRefusal::NotRoutable { guid: a(), state }));
    }
}

#[test]
fn a_reservation_stands_for_its_time_and_not_longer() {
    let mut registry = ContainerStore::new(ROOM, RESERVATION_EXPIRY);
    let at = Timestamp::from_secs;
    registry.apply(at(10), StoreInput::Reserve(vec![room("a", 1, 1)])).unwrap();
    registry.apply(at(20), StoreInput::Reserve(vec![room("b", 1, 1)])).unwrap();
    registry.apply(at(21), StoreInput::Reserve(vec![room("c", 1, 1)])).unwrap();
    registry.apply(at(22), StoreInput::Run(guid("b"))).unwrap();
    assert_eq!(registry.next_expiry(), Some(at(70)));
    let early = at(70) - Duration::from_nanos(1);
    assert_eq!(registry.apply(early, StoreInput::ExpireReservations), Ok(vec![]));
    let expired = |name| StoreOutput::Forget(guid(name), RemovalReason::Expired);
    assert_eq!(registry.apply(at(70), StoreInput::ExpireReservations), Ok(vec![expired("a")]));
    assert_eq!(registry.next_expiry(), Some(at(81)));
    assert_eq!(registry.apply(at(99), StoreInput::ExpireReservations), Ok(vec![expired("c")]));
    assert_eq!(registry.next_expiry(), None);
    assert_eq!(registry.containers().map(|it| it.guid.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_restart_finds_the_containers_again_even_when_the_cell_shrank() {
    let before = with(ContainerState::Running);
    let text = serde_json::to_string(&before.containers().collect::<Vec<_>>()).unwrap();
    let found: Vec<Container> = serde_json::from_str(&text).unwrap();
    let again = ContainerStore::restore(ROOM, RESERVATION_EXPIRY, found.clone());
    assert_eq!(again, before);
    let small = CellCapacity { memory_mb: 1, disk_mb: 1, containers: 1 };
    let twice = found.iter().chain(&found).cloned();
    let mut shrunk = ContainerStore::restore(small, RESERVATION_EXPIRY, twice);
    assert_eq!(check(&shrunk), Vec::<String>::new());
    assert_eq!(shrunk.resources().remaining().memory_mb, 0);
    play(&mut shrunk, &[StoreInput::Delete(guid("a")), StoreInput::Destroyed(guid("a"))]);
    assert_eq!(shrunk, ContainerStore::new(small, RESERVATION_EXPIRY));
}

#[test]
fn a_task_names_its_container() {
    let task = TaskGuid::new("t-1").unwrap();
    assert_eq!(ContainerGuid::from(&task), guid("t-1"));
}

fn random_input(random: &mut SplitMix) -> StoreInput {
    let name = guid(random.one_of::<&str>(&["a", "b", "c", "d", "e"]));
    let number = |random: &mut SplitMix| *random.one_of(&[0, 1, 30, 60, 100, u32::MAX]);
    match random.below(16) {
        0..=2 => {
            let count = 1 + random.below(3);
            let mut one = || {
                let name = *random.one_of(&["a", "b", "c", "d", "e"]);
                room(name, number(random), number(random))
            };
            StoreInput::Reserve((0..count).map(|_| one()).collect())
        }
        3 | 4 => StoreInput::Run(name),
        5 | 6 => StoreInput::Created(name),
        7 | 8 => StoreInput::Running(name),
        9 => StoreInput::Routable(name, random.once_in(2)),
        10 => {
            let mut yes = || random.once_in(2);
            let (failed, stopped, retryable) = (yes(), yes(), yes());
            let failure_reason = "r".into();
            StoreInput::Completed(name, RunResult { failed, failure_reason, stopped, retryable })
        }
        11 => StoreInput::Stop(name),
        12 => StoreInput::Delete(name),
        13 => StoreInput::Destroyed(name),
        14 => StoreInput::DestroyFailed(name),
        _ => StoreInput::ExpireReservations,
    }
}

fn states(registry: &ContainerStore) -> BTreeMap<ContainerGuid, ContainerState> {
    registry.containers().map(|it| (it.guid.clone(), it.state)).collect()
}

#[test]
fn whatever_happens_the_sums_hold_and_states_move_by_the_table() {
    let (mut refused, mut forgotten) = (0, 0);
    for seed in 0..25_000 {
        let mut random = SplitMix(seed);
        let mut registry = ContainerStore::new(ROOM, RESERVATION_EXPIRY);
        let mut now = Timestamp::ZERO;
        for _ in 0..40 {
            now = now + Duration::from_secs(*random.one_of(&[0, 1, 1, 20]));
            let input = random_input(&mut random);
            let (before, old) = (states(&registry), registry.clone());
            let answer = registry.apply(now, input.clone());
            let told = format!("seed {seed}: {input:?} → {answer:?}");
            assert_eq!(check(&registry), Vec::<String>::new(), "{told}");
            let Ok(effects) = answer else {
                refused += 1;
                assert_eq!(registry, old, "{told}");
                continue;
            };
            let after = states(&registry);
            let gone: Vec<_> = before.keys().filter(|it| !after.contains_key(*it)).collect();
            let said = effects.iter().filter_map(|effect| {
                if let StoreOutput::Forget(guid, _) = effect { Some(guid) } else { None }
            });
            assert_eq!(said.collect::<Vec<_>>(), gone, "{told}");
            forgotten += gone.len();
            for (guid, state) in &after {
                match before.get(guid) {
                    None => assert_eq!(*state, ContainerState::Reserved, "{told}"),
                    Some(from) => assert!(from == state || from.may_become(*state), "{told}"),
                }
            }
        }
    }
    assert!(refused > 10_000 && forgotten > 10_000, "{refused} refused, {forgotten} forgotten");
}
