//! All phases, on a clock that is set by hand.

use volvox_protocol::container::RunResult;
use volvox_protocol::id::InstanceGuid;

use super::*;
use crate::executor::container_store::{Container, Deletion};
use crate::executor::resources::ContainerResources;
use crate::executor::workload::Owner;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(1_000 + seconds)
}

fn view(guid: &ContainerGuid, state: ContainerState, reason: Option<&str>) -> ContainerView {
    let failure_reason = reason.unwrap_or_default().to_owned();
    let failed = reason.is_some();
    let name = InstanceGuid::new(guid.as_str()).unwrap();
    ContainerView {
        container: Container {
            guid: guid.clone(),
            state,
            since: at(0),
            resources: ContainerResources { memory_mb: 1, disk_mb: 1 },
            routable: false,
            stopped: false,
            deletion: Deletion::NotAsked,
            result: RunResult { failed, failure_reason, ..RunResult::default() },
        },
        owner: Owner::Local(name),
        network: None,
        task_result: String::new(),
    }
}

struct Tester {
    test: SelfTest,
}

impl Tester {
    fn new() -> Self {
        Tester { test: SelfTest::new(at(0), SelfTestSettings::default(), 7) }
    }

    /// A test begins. Gives its container.
    fn begin(&mut self, now: Timestamp) -> ContainerGuid {
        assert!(self.test.next_wake() <= now);
        match &self.test.poll_outputs(now)[..] {
            [SelfTestOutput::Begin(guid)] => {
                assert!(guid.as_str().starts_with(PREFIX) && self.test.next_wake() > now);
                guid.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn ends(&mut self, now: Timestamp, guid: &ContainerGuid, reason: Option<&str>) {
        self.test.saw(now, guid, Some(&view(guid, ContainerState::Running, None)));
        assert!(self.test.poll_outputs(now).is_empty());
        self.test.saw(now, guid, Some(&view(guid, ContainerState::Completed, reason)));
        assert_eq!(self.test.poll_outputs(now), [SelfTestOutput::Delete(guid.clone())]);
    }

    /// One test that fails. Gives what is said about it.
    fn fail(&mut self, now: Timestamp) -> Vec<SelfTestOutput> {
        let guid = self.begin(now);
        self.ends(now, &guid, Some("no route"));
        self.test.saw(now, &guid, None);
        self.test.poll_outputs(now)
    }

    fn pass(&mut self, now: Timestamp) -> Vec<SelfTestOutput> {
        let guid = self.begin(now);
        self.ends(now, &guid, None);
        self.test.saw(now, &guid, None);
        self.test.poll_outputs(now)
    }
}

fn failed(reason: &str) -> SelfTestOutput {
    SelfTestOutput::Failed(reason.to_owned())
}

#[test]
fn one_that_passes_says_nothing_and_the_next_comes_in_ten_minutes() {
    let mut tester = Tester::new();
    let first = tester.begin(at(0));
    tester.ends(at(1), &first, None);
    tester.test.saw(at(2), &first, None);
    assert!(tester.test.poll_outputs(at(2)).is_empty() && tester.test.failures() == 0);
    assert_eq!(tester.test.next_wake(), at(602));
    assert!(tester.test.poll_outputs(at(601)).is_empty());
    assert_ne!(tester.begin(at(602)), first, "a new name each time");
}

#[test]
fn three_failures_make_the_cell_unhealthy_and_a_success_heals_it() {
    let mut tester = Tester::new();
    assert_eq!(tester.fail(at(0)), [failed("no route")]);
    assert_eq!(tester.test.next_wake(), at(10), "a failure is looked at again soon");
    assert_eq!(tester.fail(at(10)), [failed("no route")]);
    assert_eq!(tester.fail(at(20)), [failed("no route"), SelfTestOutput::Healthy(false)]);
    assert_eq!(tester.fail(at(30)), [failed("no route")], "said once");
    assert_eq!(tester.test.failures(), 4);
    assert_eq!(tester.pass(at(40)), [SelfTestOutput::Healthy(true)]);
    assert_eq!(tester.test.failures(), 0);
    // A success in between begins the count anew.
    let mut tester = Tester::new();
    tester.fail(at(0));
    tester.fail(at(10));
    assert!(tester.pass(at(20)).is_empty());
    assert_eq!(tester.fail(at(620)), [failed("no route")]);
}

#[test]
fn each_step_has_its_time() {
    let mut tester = Tester::new();
    let guid = tester.begin(at(0));
    assert_eq!(tester.test.next_wake(), at(30));
    tester.test.saw(at(1), &guid, Some(&view(&guid, ContainerState::Created, None)));
    assert!(tester.test.poll_outputs(at(29)).is_empty());
    assert_eq!(tester.test.poll_outputs(at(30)), [SelfTestOutput::Delete(guid.clone())]);
    assert_eq!(tester.test.next_wake(), at(60));
    tester.test.saw(at(31), &guid, None);
    let said = tester.test.poll_outputs(at(31));
    assert_eq!(said, [failed("a container did not run and end within 30s")]);
}

#[test]
fn one_that_cannot_be_taken_away_fails_and_no_other_is_made() {
    let mut tester = Tester::new();
    let guid = tester.begin(at(0));
    tester.ends(at(1), &guid, None);
    let mut healthy = Vec::new();
    for round in 1..5 {
        let now = at(1 + round * 30);
        assert!(tester.test.poll_outputs(at(round * 30)).is_empty());
        let said = tester.test.poll_outputs(now);
        assert!(said.contains(&SelfTestOutput::Delete(guid.clone())), "{said:?}");
        assert!(!said.iter().any(|it| matches!(it, SelfTestOutput::Begin(_))));
        healthy.extend(said.into_iter().filter(|it| matches!(it, SelfTestOutput::Healthy(_))));
        // Its views are not those of a leftover.
        tester.test.saw(now, &guid, Some(&view(&guid, ContainerState::Completed, None)));
        assert!(tester.test.poll_outputs(now).is_empty() && tester.test.next_wake() > now);
    }
    assert_eq!((tester.test.failures(), healthy), (4, vec![SelfTestOutput::Healthy(false)]));
    tester.test.saw(at(200), &guid, None);
    assert!(tester.test.poll_outputs(at(200)).is_empty());
    assert_eq!(tester.pass(at(210)), [SelfTestOutput::Healthy(true)]);
}

#[test]
fn one_that_vanishes_has_failed() {
    let mut tester = Tester::new();
    let guid = tester.begin(at(0));
    tester.test.saw(at(1), &guid, None);
    assert_eq!(tester.test.poll_outputs(at(1)), [failed("its container vanished")]);
}

#[test]
fn a_full_cell_is_not_tested_and_not_judged() {
    let mut tester = Tester::new();
    tester.fail(at(0));
    tester.begin(at(10));
    tester.test.no_room(at(10));
    assert!(tester.test.poll_outputs(at(10)).is_empty());
    assert_eq!((tester.test.failures(), tester.test.next_wake()), (1, at(610)));
}

#[test]
fn one_that_cannot_be_begun_has_failed_and_what_is_left_of_it_goes() {
    let mut tester = Tester::new();
    let guid = tester.begin(at(0));
    tester.test.not_begun(at(0), "the executor is busy".to_owned());
    assert_eq!(tester.test.poll_outputs(at(0)), [failed("the executor is busy")]);
    tester.test.saw(at(1), &guid, Some(&view(&guid, ContainerState::Reserved, None)));
    assert_eq!(tester.test.poll_outputs(at(1)), [SelfTestOutput::Delete(guid)]);
}

#[test]
fn what_an_earlier_agent_left_is_removed_and_nothing_else() {
    let mut tester = Tester::new();
    let own = tester.begin(at(0));
    let named = |name: &str| ContainerGuid::from(InstanceGuid::new(name).unwrap());
    let (left, others) = (named("self-test-old-1"), named("by-hand"));
    for guid in [&left, &others, &left] {
        tester.test.saw(at(1), guid, Some(&view(guid, ContainerState::Running, None)));
    }
    assert_eq!(
        tester.test.poll_outputs(at(1)),
        [SelfTestOutput::Delete(left.clone())],
        "asked once"
    );
    tester.test.saw(at(2), &left, None);
    assert!(tester.test.poll_outputs(at(2)).is_empty());
    tester.ends(at(3), &own, None);
}
