//! Deaths: of the executor, the agent, a shim, a container's first process, at any time. Each ends in
//! the right state, with nothing lost and nothing left behind. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "executor/cell.rs"]
#[allow(dead_code, reason = "the other tests of the executor use the rest")]
mod cell;
#[path = "executor/program.rs"]
#[allow(dead_code, reason = "the tests of the commands use the rest")]
mod program;
mod stage;

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::control::{ControlReply, ControlRequest};
use volvox_agent::executor::store::ContainerRecords;
use volvox_agent::runtime::machine::ShimTimeouts;
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::task::TaskDefinition;

use cell::{Cell, lrp, sh, task, until};
use program::Agent;

/// Writes a number in every line, for as long as it lives.
fn counting() -> LrpDefinition {
    lrp(sh("i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done"))
}

/// The numbers in a log. There must be no gap and no repetition.
fn numbers(cell: &Cell, guid: &ContainerGuid) -> Vec<u32> {
    let log = cell.log(guid);
    let lines = log.lines().filter_map(|line| line.strip_prefix("APP line "));
    let numbers: Vec<u32> = lines.map(|it| it.parse().unwrap()).collect();
    let expected: Vec<u32> = (0..u32::try_from(numbers.len()).unwrap()).collect();
    assert_eq!(numbers, expected);
    numbers
}

#[test]
fn an_executor_that_starts_again_has_lost_no_exit_and_no_line() {
    let name = "an_executor_that_starts_again_has_lost_no_exit_and_no_line";
    let Some(mut cell) = Cell::new(name) else { return };
    let counting = cell.start_lrp("counting", counting());
    // Ends when the file is there, which is while no executor runs.
    let waits = "until test -e /home/vcap/go; do sleep 0.05; done";
    let ending = cell.start_lrp("ending", lrp(sh(&format!("{waits}; exit 11"))));
    let result = TaskDefinition {
        result_file: "/home/vcap/result".into(),
        ..task(sh(&format!("{waits}; printf done > /home/vcap/result")))
    };
    let working = cell.start_task("working", result);
    for guid in [&counting, &ending, &working] {
        cell.reaches(guid, ContainerState::Running);
    }
    let before = cell.pids(&counting);
    cell.executor = None;
    for guid in [&ending, &working] {
        let root = std::path::PathBuf::from(format!("/proc/{}/root", cell.pids(guid).0));
        std::fs::write(root.join("home/vcap/go"), "").unwrap();
    }
    let lines = numbers(&cell, &counting).len();
    until("more lines came while no executor ran", || {
        (numbers(&cell, &counting).len() > lines + 20).then_some(())
    });
    until("the others have ended", || {
        let shims = volvox_agent::runtime::shim::Shims::new(
            &cell.config.state.join("containers"),
            &cell.config.shim,
        );
        let ended = |guid: &ContainerGuid| {
            let status = shims.attach(guid.as_str()).unwrap().status().unwrap();
            status.running.is_empty()
        };
        (ended(&ending) && ended(&working)).then_some(())
    });
    cell.open();
    assert_eq!(cell.view(&counting).container.state, ContainerState::Running);
    assert_eq!(cell.pids(&counting), before, "it is the same container");
    assert_eq!(cell.ends(&ending).failure_reason, "APP: Exited with status 11");
    assert!(!cell.ends(&working).failed);
    assert_eq!(cell.view(&working).task_result, "done");
    cell.executor().stop(counting.clone()).unwrap();
    assert!(cell.ends(&counting).stopped, "it can be stopped as ever");
    assert!(numbers(&cell, &counting).len() > lines);
}

#[test]
fn the_death_of_a_shim_or_of_a_first_process_is_the_containers_failure() {
    let name = "the_death_of_a_shim_or_of_a_first_process_is_the_containers_failure";
    let Some(mut cell) = Cell::new(name) else { return };
    let guids: Vec<_> = (0..4).map(|nth| cell.start_lrp(&format!("c{nth}"), counting())).collect();
    for guid in &guids {
        cell.reaches(guid, ContainerState::Running);
    }
    let die = |pid: i32| kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    die(cell.pids(&guids[0]).1);
    let reason = cell.ends(&guids[0]).failure_reason;
    assert!(reason.starts_with("missing container"), "{reason}");
    die(cell.pids(&guids[1]).0);
    assert_eq!(cell.ends(&guids[1]).failure_reason, "APP: Exited with status 137");
    // The same while nobody looks.
    let (shim, init) = (cell.pids(&guids[2]).1, cell.pids(&guids[3]).0);
    cell.executor = None;
    die(shim);
    die(init);
    cell.open();
    let reason = cell.ends(&guids[2]).failure_reason;
    assert!(reason.starts_with("missing container"), "{reason}");
    let reason = cell.ends(&guids[3]).failure_reason;
    assert!(reason.contains("137") || reason.starts_with("missing container"), "{reason}");
    for guid in guids {
        cell.executor().delete(guid).unwrap();
    }
}

/// A shim that is alive and does not answer could not be told to stop its container, and nobody would
/// hear of its end.
#[test]
fn a_shim_that_hangs_is_ended_and_its_container_has_failed() {
    let name = "a_shim_that_hangs_is_ended_and_its_container_has_failed";
    let silence =
        ShimTimeouts { answer_within: Duration::from_secs(3), quiet_for: Duration::from_secs(2) };
    let made = Cell::with(name, |machine, _| machine.silence = silence);
    let Some(mut cell) = made else { return };
    let names = ["quiet", "stopped", "deleted", "brief", "unseen"];
    let guids = names.map(|name| cell.start_lrp(name, counting()));
    for guid in &guids {
        cell.reaches(guid, ContainerState::Running);
    }
    let [quiet, stopped, deleted, brief, unseen] = &guids;
    let pids = guids.each_ref().map(|guid| cell.pids(guid));
    let send = |nth: usize, signal| kill(Pid::from_raw(pids[nth].1), signal).unwrap();
    for nth in 0..4 {
        send(nth, Signal::SIGSTOP);
    }
    send(3, Signal::SIGCONT);
    cell.executor().stop(stopped.clone()).unwrap();
    cell.executor().delete(deleted.clone()).unwrap();
    let is_gone = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|it| it.is_empty() || it.starts_with(" Z"))
    };
    let reason = cell.ends(quiet).failure_reason;
    assert!(reason.starts_with("missing container"), "{reason}");
    assert!(cell.ends(stopped).stopped, "it was to end, and has");
    assert!(pids[..3].iter().all(|it| is_gone(it.1)), "a shim is left");
    until("nothing of it runs on", || pids[..3].iter().all(|it| is_gone(it.0)).then_some(()));
    assert!(cell.executor().container(deleted.clone()).unwrap().is_none());
    assert!(!cell.container_folder(deleted).exists());
    assert_eq!(cell.view(brief).container.state, ContainerState::Running);
    assert_eq!(cell.pids(brief), pids[3], "it is the same container");
    // The same while nobody looks.
    cell.executor = None;
    send(4, Signal::SIGSTOP);
    cell.open();
    let reason = cell.ends(unseen).failure_reason;
    assert!(reason.starts_with("missing container"), "{reason}");
    assert!(is_gone(pids[4].1), "the shim is left");
    assert_eq!(cell.view(brief).container.state, ContainerState::Running);
    cell.executor().stop(brief.clone()).unwrap();
    assert!(cell.ends(brief).stopped, "it can be stopped as ever");
}

/// Two shims hang when an agent starts, of a container that it knows and of one that it does not. They go
/// on when a third container is gone, and not before: whoever waits for one of them first never sees that.
#[test]
fn a_shim_that_hangs_at_a_start_holds_up_no_other() {
    let name = "a_shim_that_hangs_at_a_start_holds_up_no_other";
    // Longer than the test may take: nobody is to be ended because it hangs.
    let silence = ShimTimeouts { answer_within: 2 * cell::PATIENCE, ..ShimTimeouts::default() };
    let made = Cell::with(name, |machine, _| machine.silence = silence);
    let Some(mut cell) = made else { return };
    let guids = ["known", "unknown-1", "unknown-2"].map(|it| cell.start_lrp(it, counting()));
    for guid in &guids {
        cell.reaches(guid, ContainerState::Running);
    }
    let [known, hangs, goes] = &guids;
    let (pids, shims) = (cell.pids(known), [cell.pids(known).1, cell.pids(hangs).1]);
    let folder = cell.container_folder(goes);
    cell.executor = None;
    let records = ContainerRecords::open(&cell.folder.path().join("run")).unwrap();
    records.forget(hangs).unwrap();
    records.forget(goes).unwrap();
    drop(records);
    for shim in shims {
        kill(Pid::from_raw(shim), Signal::SIGSTOP).unwrap();
    }
    let watcher = std::thread::spawn(move || {
        let deadline = std::time::Instant::now() + cell::PATIENCE;
        let mut is_gone = false;
        while !is_gone && std::time::Instant::now() < deadline {
            is_gone = !folder.exists();
            stage::pause();
        }
        // In any case, so that the test ends.
        for shim in shims {
            kill(Pid::from_raw(shim), Signal::SIGCONT).unwrap();
        }
        is_gone
    });
    cell.open();
    assert!(watcher.join().unwrap(), "it waited for those that hung");
    assert_eq!(cell.view(known).container.state, ContainerState::Running);
    assert_eq!(cell.pids(known), pids, "it is the same container");
    assert!(!cell.container_folder(hangs).exists(), "it is known to nobody");
}

/// Starts, stops and deletes at random while agents are killed at random: what was acknowledged is
/// there afterwards, and deleting it all leaves nothing.
#[test]
fn an_agent_killed_at_any_time_under_load_loses_nothing() {
    const ROUNDS: usize = 12;
    let name = "an_agent_killed_at_any_time_under_load_loses_nothing";
    let Some(mut cell) = Cell::new(name) else { return };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    let mut acknowledged: Vec<ContainerGuid> = Vec::new();
    for round in 0..ROUNDS {
        let mut client = agent.client();
        let pid = Pid::from_raw(i32::try_from(agent.child.id()).unwrap());
        // One comes to run, so that there is something to find again.
        let (owner, work) = cell.work(&format!("r{round}"), counting());
        let guid = owner.container();
        let start = volvox_agent::control::Start { owner, work };
        client.ask(&ControlRequest::Start(Box::new(start))).unwrap();
        until("it runs", || match client.ask(&ControlRequest::Show(guid.clone())).unwrap() {
            ControlReply::Container(Some(view)) => {
                (view.container.state == ContainerState::Running).then_some(())
            }
            other => panic!("{other:?}"),
        });
        acknowledged.push(guid);
        // Dies somewhere in the middle of this round's calls.
        let killer = std::thread::spawn(move || {
            let wait = std::time::Duration::from_millis(u64::try_from(20 + round * 17).unwrap());
            let (_hold, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv_timeout(wait);
            let _ = kill(pid, Signal::SIGKILL);
        });
        for nth in 0..4 {
            let (owner, work) = cell.work(&format!("r{round}-{nth}"), counting());
            let guid = owner.container();
            let start = volvox_agent::control::Start { owner, work };
            match client.ask(&ControlRequest::Start(Box::new(start))) {
                Ok(_) => acknowledged.push(guid.clone()),
                Err(_) => break,
            }
            if nth % 4 == 3 {
                // Whether it goes when the agent dies before it answers, cannot be known.
                acknowledged.pop();
                let _ = client.ask(&ControlRequest::Delete(guid));
            }
        }
        killer.join().unwrap();
        agent.child.wait().unwrap();
        agent = Agent::start(&cell);
    }
    let mut client = agent.client();
    let mut running = 0;
    for guid in &acknowledged {
        let ControlReply::Container(found) =
            client.ask(&ControlRequest::Show(guid.clone())).unwrap()
        else {
            panic!("no answer")
        };
        // What was acknowledged is known. What was being made, or about to be started, when the
        // agent died has failed and says so; the rest runs.
        let view = found.unwrap_or_else(|| panic!("{guid} was forgotten"));
        let result = view.container.result;
        assert!(!result.failed || result.failure_reason.contains("restarted"), "{result:?}");
        running += usize::from(view.container.state == ContainerState::Running);
    }
    assert!(running >= ROUNDS, "{running} of {} run", acknowledged.len());
    let ControlReply::Containers(all) = client.ask(&ControlRequest::List).unwrap() else {
        panic!("no answer")
    };
    assert!(all.len() >= acknowledged.len());
    for view in all {
        client.ask(&ControlRequest::Delete(view.container.guid)).unwrap();
    }
    drop(client);
    drop(agent);
    until("nothing is left", || cell.leftovers().is_empty().then_some(()));
    cell.open();
}
