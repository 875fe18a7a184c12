//! Plays each row of `docs/tables/bbs_suspect.md` on a board.

use volvox_protocol::tables::doc::{Table, table_under};

use super::*;

const MARKDOWN: &str = include_str!("../../../../../docs/tables/bbs_suspect.md");

/// The headings of the page's tables, and how many rows the seed has under each.
const TABLES: [(&str, usize); 5] = [
    ("The expected way", 4),
    ("When cell-1 comes back", 2),
    ("The replacement does not come up", 4),
    ("Edge cases of convergence", 2),
    ("The missing cell-1 speaks", 5),
];

/// One of the plays that a row stands for: its cells, with one choice made of each `A or B`.
fn plays(row: &[String]) -> Vec<Vec<String>> {
    let choose = |cell: &String, second: bool| {
        let words: Vec<&str> = cell.split(' ').collect();
        let mut chosen: Vec<&str> = Vec::new();
        for (nth, word) in words.iter().enumerate() {
            let left_out = if second {
                words.get(nth + 1) == Some(&"or")
            } else {
                nth > 0 && words[nth - 1] == "or"
            };
            if *word != "or" && !left_out {
                chosen.push(word);
            }
        }
        chosen.join(" ")
    };
    // The last cell is the reason, which is prose.
    let (_, cells) = row.split_last().unwrap();
    let one = |second| cells.iter().map(|cell| choose(cell, second)).collect::<Vec<_>>();
    if one(false) == one(true) { vec![one(false)] } else { vec![one(false), one(true)] }
}

/// A board on which i1 and i2 are as a row has them before.
fn stage(i1_before: &str, i2_before: &str) -> Stage {
    let mut stage = Stage::with_desired(1);
    stage.does(claim(0, &i1()));
    if i1_before.starts_with("RUNNING") {
        stage.does(start(0, &i1()));
    }
    if i1_before.ends_with("SUSPECT") {
        stage.does(missing("cell-1"));
    }
    match i2_before {
        "none" | "UNCLAIMED ORDINARY" => {}
        "CLAIMED ORDINARY" => {
            stage.does(claim(0, &i2()));
        }
        "RUNNING ORDINARY" => {
            stage.does(claim(0, &i2()));
            stage = read_back_running(&stage);
        }
        other => panic!("no way to have i2 {other}"),
    }
    assert_eq!(standing(&stage), [i1_before, i2_before], "before the occurrence");
    stage
}

/// The same records as read back by a new board, with i2 RUNNING beside the suspect.
fn read_back_running(stage: &Stage) -> Stage {
    let board = reload_with(&stage.board, stage.now, |lrp| {
        if lrp.is_held_by(&i2()) {
            lrp.state = LrpState::Running(i2(), running());
        }
    });
    Stage { board, ..stage.clone() }
}

/// Which of the two a record is. On no cell, or elsewhere than on cell-1, it is the replacement.
fn name(lrp: &ActualLrp) -> &'static str {
    if lrp.is_held_by(&i1()) { "i1" } else { "i2" }
}

/// State and presence, such as `RUNNING SUSPECT`.
fn state(lrp: &ActualLrp) -> String {
    shape(lrp).split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// How i1 and i2 stand.
fn standing(stage: &Stage) -> [String; 2] {
    let process = stage.board.records.process(&process()).expect("p is desired");
    ["i1", "i2"].map(|which| {
        let found: Vec<_> = process.instances().iter().map(|slot| &slot.lrp).collect();
        let mut found = found.into_iter().filter(|lrp| name(lrp) == which);
        let one = found.next().map_or("none".to_owned(), |lrp| state(lrp));
        assert!(found.next().is_none(), "two records are {which}");
        one
    })
}

fn occurrence(told: &str) -> Command {
    let of_cell = |told: &str, instance: InstanceKey| match told {
        "ClaimLrp" => claim(0, &instance),
        "StartLrp" => start(0, &instance),
        "CrashLrp" => crash(0, &instance),
        "RemoveLrp" => remove(0, &instance),
        "EvacuateClaimed" => cell_says(CellRequest::EvacuateClaimed(key(0), instance)),
        "EvacuateRunning" => cell_says(CellRequest::EvacuateRunning(key(0), instance, running())),
        "EvacuateCrashed" => {
            cell_says(CellRequest::EvacuateCrashed(key(0), instance, "exit 1".into()))
        }
        "EvacuateStopped" => cell_says(CellRequest::EvacuateStopped(key(0), instance)),
        other => panic!("no cell says {other}"),
    };
    match told.split_once(' ') {
        None if told == "convergence" => Command::ConvergeDue,
        Some((name, "goes missing")) => missing(name),
        Some((name, "comes back")) => present(name),
        Some(("auction", "FailLrp")) => fail(0),
        Some(("cell-1", request)) => of_cell(request, i1()),
        Some(("cell-2", request)) => of_cell(request, i2()),
        other => panic!("{other:?} never occurs"),
    }
}

fn answer(verdict: &Verdict) -> String {
    match verdict {
        Ok(outcome) => match &outcome.reply {
            Reply::Converged(_) => "Converged".to_owned(),
            reply @ (Reply::Done | Reply::ShouldStart(_) | Reply::KeepContainer(_)) => {
                format!("{reply:?}")
            }
        },
        Err(Rejection::CannotStart(_)) => "CannotStart".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

/// What the instance stream and the group stream tell.
fn streams(verdict: &Verdict) -> [String; 2] {
    let (mut instance, mut group) = (Vec::new(), Vec::new());
    let one = |lrp: &ActualLrp| format!("{} {}", name(lrp), state(lrp));
    let both = |before: &ActualLrp, after: &ActualLrp| format!("{} → {}", one(before), one(after));
    for event in verdict.iter().flat_map(|outcome| &outcome.events) {
        match event {
            Event::InstanceCreated(lrp) => instance.push(format!("created {}", one(lrp))),
            Event::InstanceChanged(before, after) => instance.push(both(before, after)),
            Event::InstanceRemoved(lrp) => instance.push(format!("removed {}", one(lrp))),
            Event::Crashed(crash) => {
                instance.push(format!("crashed {}", crash.instance.instance_guid))
            }
            Event::GroupCreated(of) => group.push(format!("created {}", one(only(of)))),
            Event::GroupChanged(before, after) => group.push(both(only(before), only(after))),
            Event::GroupRemoved(of) => group.push(format!("removed {}", one(only(of)))),
            Event::DesiredLrpCreated(_)
            | Event::DesiredLrpChanged(..)
            | Event::DesiredLrpRemoved(_)
            | Event::TaskCreated(_)
            | Event::TaskChanged(..)
            | Event::TaskRemoved(_) => panic!("{event:?} is not about an instance"),
        }
    }
    [instance, group].map(|told| if told.is_empty() { "none".into() } else { told.join(", ") })
}

#[test]
fn every_row_of_the_page_is_what_happens_on_a_board() {
    let (mut rows, mut played) = (0, 0);
    for (heading, stated) in TABLES {
        let Table { rows: found, .. } = table_under(MARKDOWN, heading).unwrap();
        assert_eq!(found.len(), stated, "rows under {heading:?}");
        for row in found {
            rows += 1;
            for play in plays(&row) {
                let [i1, i2, told, reply, i1_after, i2_after, instance, group] = &play[..] else {
                    panic!("{play:?} has {} cells", play.len())
                };
                let mut stage = stage(i1, i2);
                let verdict = stage.tries(occurrence(told));
                let gone = |cell: &str| if cell == "REMOVED" { "none" } else { cell }.to_owned();
                assert_eq!(answer(&verdict), *reply, "answer to {play:?}");
                assert_eq!(standing(&stage), [gone(i1_after), gone(i2_after)], "after {play:?}");
                assert_eq!(
                    streams(&verdict),
                    [instance.clone(), group.clone()],
                    "told of {play:?}"
                );
                played += 1;
            }
        }
    }
    assert_eq!(rows, 17);
    println!("table bbs_suspect: {rows} rows of the document, {played} plays checked");
}

#[test]
fn a_replacement_is_auctioned_in_the_step_that_makes_the_suspect() {
    let mut stage = stage("RUNNING ORDINARY", "none");
    assert_eq!(auctions(&stage.does(missing("cell-1"))), ["p: 0"]);
}

#[test]
fn the_next_replacement_comes_stale_after_the_loss_of_the_last_one() {
    let mut stage = stage("RUNNING SUSPECT", "CLAIMED ORDINARY");
    stage.does(missing("cell-2"));
    stage.wait(29);
    assert_eq!(effects(&stage.converge()), [""; 0]);
    stage.wait(1);
    assert_eq!(effects(&stage.converge()), ["auction p: 0"]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
}

#[test]
fn a_suspect_keeps_its_tag_and_its_age_and_its_replacement_is_a_new_record() {
    let mut stage = stage("RUNNING ORDINARY", "none");
    let before = Arc::clone(stage.ordinary());
    stage.wait(7).does(missing("cell-1"));
    let suspect = stage.lrp(0, Presence::Suspect).unwrap();
    assert_eq!(**suspect, ActualLrp { presence: Presence::Suspect, ..(*before).clone() });
    assert_ne!(stage.ordinary().modification_tag.epoch, before.modification_tag.epoch);
    stage.does(present("cell-1"));
    assert_eq!(*stage.ordinary(), before);
}

#[test]
fn a_suspect_that_says_it_was_stopped_is_believed() {
    let mut stage = stage("RUNNING SUSPECT", "CLAIMED ORDINARY");
    stage.does(remove(0, &i1()));
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i2"]);
}

#[test]
fn where_a_suspect_is_reached_now_is_not_forgotten_when_its_cell_is_back() {
    let mut stage = stage("RUNNING SUSPECT", "CLAIMED ORDINARY");
    let moved = running_at("192.0.2.77");
    let start = CellRequest::StartLrp(key(0), i1(), Arc::clone(&moved));
    let outcome = stage.does(cell_says(start.clone()));
    assert_eq!(events(&outcome), ["actual_lrp_instance_changed", "actual_lrp_changed"]);
    assert!(stage.does(cell_says(start)).changes.is_empty(), "nothing new");
    stage.does(present("cell-1"));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1"]);
    assert_eq!(stage.ordinary().running(), Some(&*moved));
}

#[test]
fn a_suspect_that_claims_is_left_alone() {
    let mut stage = stage("RUNNING SUSPECT", "UNCLAIMED ORDINARY");
    assert!(stage.does(claim(0, &i1())).changes.is_empty());
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
}

#[test]
fn a_crashed_replacement_is_restarted_by_convergence_by_the_usual_waits() {
    let mut stage = stage("RUNNING SUSPECT", "CLAIMED ORDINARY");
    stage.does(crash(0, &i2()));
    assert_eq!(effects(&stage.converge()), ["auction p: 0"]);
    for _ in 0..3 {
        stage.does(claim(0, &i2()));
        stage.does(crash(0, &i2()));
        stage.wait(60).converge();
    }
    assert_eq!(stage.ordinary().crash_count, 4);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
}
