//! Evacuation: each row of `docs/tables/bbs_evacuate.md` on a board, and the calls that need no
//! table. The instance that leaves is `i1`; β is `i2`, ω is `i3`.

use volvox_protocol::tables::doc::{SILENT, table_under};

use super::*;

const MARKDOWN: &str = include_str!("../../../../../docs/tables/bbs_evacuate.md");

fn evacuate(instance: &InstanceKey) -> Command {
    cell_says(CellRequest::EvacuateRunning(key(0), instance.clone(), running()))
}

fn evacuate_claimed(instance: &InstanceKey) -> Command {
    cell_says(CellRequest::EvacuateClaimed(key(0), instance.clone()))
}

fn evacuate_crashed(instance: &InstanceKey) -> Command {
    cell_says(CellRequest::EvacuateCrashed(key(0), instance.clone(), "exit 1".into()))
}

fn evacuate_stopped(instance: &InstanceKey) -> Command {
    cell_says(CellRequest::EvacuateStopped(key(0), instance.clone()))
}

fn remove_evacuating(instance: &InstanceKey) -> Command {
    cell_says(CellRequest::RemoveEvacuating(key(0), instance.clone()))
}

/// A board on which the ordinary and the evacuating record are as a row has them. Commands lead
/// there, but for two running records: a start takes the evacuating one away, so that pair comes
/// from a store.
fn stage(ordinary: &str, evacuating: &str) -> Stage {
    let mut stage = Stage::with_desired(1);
    let leaving = match evacuating {
        "Missing" => None,
        "Running(Ours)" => Some(i1()),
        "Running(Theirs)" => Some(i2()),
        other => panic!("no evacuating record is {other}"),
    };
    if let Some(leaving) = &leaving {
        stage.runs(leaving);
        stage.does(evacuate(leaving));
    }
    match ordinary {
        "Missing" => drop(stage.does(scale(0))),
        "Unclaimed" => {}
        "UnclaimedWithError" => drop(stage.does(fail(0))),
        "Claimed(Ours)" => drop(stage.does(claim(0, &i1()))),
        "Claimed(Theirs)" => drop(stage.does(claim(0, &i3()))),
        "Running(Ours)" | "Running(Theirs)" => {
            let holder = if ordinary == "Running(Ours)" { i1() } else { i3() };
            stage.does(claim(0, &holder));
            stage.board = reload_with(&stage.board, stage.now, |lrp| {
                if lrp.presence == Presence::Ordinary {
                    lrp.state = LrpState::Running(holder.clone(), running());
                }
            });
        }
        "Crashed" => {
            for _ in 0..4 {
                stage.does(claim(0, &i3()));
                stage.does(crash(0, &i3()));
            }
        }
        other => panic!("no ordinary record is {other}"),
    }
    stage
}

fn shown(stage: &Stage, presence: Presence) -> Option<String> {
    stage.lrp(0, presence).map(|lrp| shape(lrp))
}

#[test]
fn every_row_of_the_page_is_what_happens_on_a_board() {
    let headings = ["No evacuating record", "With an evacuating record", SILENT];
    let mut rows = 0;
    for row in headings.iter().flat_map(|heading| table_under(MARKDOWN, heading).unwrap().rows) {
        let mut stage = stage(&row[0], &row[1]);
        let before = [Presence::Ordinary, Presence::Evacuating].map(|it| shown(&stage, it));
        let outcome = stage.does(evacuate(&i1()));
        let after = [Presence::Ordinary, Presence::Evacuating].map(|it| shown(&stage, it));
        let [ordinary, evacuating] = before;
        let ours = Some("RUNNING EVACUATING i1".to_owned());
        let unclaimed = Some("UNCLAIMED ORDINARY".to_owned());
        let (expected, keep) = match &*row[2] {
            "CreateEvacuating" => ([ordinary, ours], true),
            "CreateEvacuatingAndUnclaim" | "TakeOverEvacuatingAndUnclaim" => {
                ([unclaimed, ours], true)
            }
            "Nothing" => ([ordinary, evacuating], true),
            "DeleteContainer" => ([ordinary, evacuating], false),
            "Unclaim" => ([unclaimed, evacuating], true),
            "RemoveEvacuatingAndDeleteContainer" => ([ordinary, None], false),
            other => panic!("no action is {other}"),
        };
        assert_eq!(after, expected, "{row:?}");
        assert_eq!(outcome.reply, Reply::KeepContainer(keep), "{row:?}");
        let auctioned: &[&str] = if row[2].ends_with("Unclaim") { &["p: 0"] } else { &[] };
        assert_eq!(auctions(&outcome), auctioned, "{row:?}");
        rows += 1;
    }
    assert_eq!(rows, 24);
    let created = table_under(MARKDOWN, "What is created").unwrap().rows;
    for row in &created {
        let mut stage = stage("Unclaimed", "Missing");
        stage.runs(&i1());
        if row[1] == "Evacuating" {
            stage.does(evacuate(&i1()));
            stage.does(remove_evacuating(&i1()));
        }
        stage.does(evacuate(&i1()));
        assert_eq!(row[2], "Running(Ours)");
        assert_eq!(
            shown(&stage, Presence::Evacuating).unwrap(),
            "RUNNING EVACUATING i1",
            "{row:?}"
        );
        rows += 1;
    }
    println!(
        "table bbs_evacuate on a board: {} rows of the document, {rows} plays checked",
        rows - 1
    );
    assert_eq!(rows, 26);
}

#[test]
fn an_evacuating_record_lives_as_long_as_the_evacuation_may_take() {
    let mut stage = stage("Claimed(Theirs)", "Running(Ours)");
    stage.wait(599).converge();
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i3", "0 RUNNING EVACUATING i1"]);
    let outcome = stage.wait(1).converge();
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i3"]);
    assert_eq!(events(&outcome), ["actual_lrp_instance_removed", "actual_lrp_removed"]);
}

#[test]
fn an_evacuating_record_expires_though_its_domain_is_not_fresh() {
    let mut stage = Stage::new();
    stage.does(desire(1));
    stage.runs(&i1());
    stage.does(evacuate(&i1()));
    stage.wait(1).does(claim(0, &i2()));
    stage.does(Command::RemoveDesiredLrp(process()));
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i2", "0 RUNNING EVACUATING i1"]);
    stage.wait(600).converge();
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i2"]);
}

#[test]
fn freshness_is_acted_on_at_once_while_an_evacuating_record_waits_for_its_time() {
    let mut stage = Stage::new();
    stage.does(desire(1));
    stage.runs(&i1());
    stage.does(evacuate(&i1()));
    stage.does(claim(0, &i2()));
    stage.does(Command::RemoveDesiredLrp(process()));
    stage.wait(31).does(fresh("d", 0));
    assert_eq!(effects(&stage.converge()), ["stop 0 i2"]);
}

#[test]
fn the_replacement_of_an_evacuated_instance_takes_its_record_away_when_it_starts() {
    let mut stage = stage("Claimed(Theirs)", "Running(Ours)");
    let outcome = stage.does(start(0, &i3()));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i3"]);
    let told = events(&outcome);
    assert_eq!(
        told,
        [
            "actual_lrp_instance_changed",
            "actual_lrp_changed",
            "actual_lrp_instance_removed",
            "actual_lrp_removed"
        ]
    );
    assert_eq!(stage.does(evacuate(&i1())).reply, Reply::KeepContainer(false));
}

#[test]
fn an_evacuation_tells_of_a_move_and_of_a_new_record() {
    let mut stage = stage("Running(Ours)", "Missing");
    let before = Arc::clone(stage.ordinary());
    let outcome = stage.does(evacuate(&i1()));
    let evacuee = stage.lrp(0, Presence::Evacuating).unwrap();
    let unclaimed = stage.ordinary();
    let told = [
        Event::InstanceChanged(Arc::clone(&before), Arc::clone(evacuee)),
        Event::InstanceCreated(Arc::clone(unclaimed)),
        Event::GroupCreated(LrpGroup::fold([evacuee])),
        Event::GroupChanged(LrpGroup::fold([&before]), LrpGroup::fold([unclaimed])),
    ];
    assert_eq!(outcome.events, told);
    assert_ne!(evacuee.modification_tag.epoch, before.modification_tag.epoch);
    assert_eq!(evacuee.modification_tag.index, 0);
    assert_eq!(unclaimed.modification_tag, before.modification_tag.next());
}

/// The calls for containers that do not run: (ordinary, evacuating, command, records after, auction).
#[test]
fn a_container_that_does_not_run_is_deleted_and_its_records_follow() {
    type Call = fn(&InstanceKey) -> Command;
    type After = &'static [&'static str];
    let calls: [(&str, &str, Call, After, After); 9] = [
        ("Claimed(Ours)", "Missing", evacuate_claimed, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Claimed(Ours)", "Running(Ours)", evacuate_claimed, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Unclaimed", "Running(Ours)", evacuate_claimed, &["0 UNCLAIMED ORDINARY"], &[]),
        ("Running(Ours)", "Missing", evacuate_crashed, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Running(Ours)", "Running(Ours)", evacuate_crashed, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Claimed(Theirs)", "Running(Ours)", evacuate_crashed, &["0 CLAIMED ORDINARY i3"], &[]),
        ("Running(Ours)", "Missing", evacuate_stopped, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Running(Ours)", "Running(Ours)", evacuate_stopped, &["0 UNCLAIMED ORDINARY"], &["p: 0"]),
        ("Missing", "Running(Ours)", evacuate_stopped, &[], &[]),
    ];
    for (ordinary, evacuating, call, after, auction) in calls {
        let mut stage = stage(ordinary, evacuating);
        let outcome = stage.does(call(&i1()));
        assert_eq!(outcome.reply, Reply::KeepContainer(false), "{ordinary} {evacuating}");
        assert_eq!(stage.shown(), after, "{ordinary} {evacuating}");
        assert_eq!(auctions(&outcome), auction, "{ordinary} {evacuating}");
    }
}

#[test]
fn a_crash_during_evacuation_counts_and_is_told_when_nothing_follows_at_once() {
    let mut stage = stage("Running(Ours)", "Missing");
    let outcome = stage.does(evacuate_crashed(&i1()));
    assert_eq!(stage.ordinary().crash_count, 1);
    assert_eq!(events(&outcome)[0], "actual_lrp_instance_removed", "it only moves on");
    for _ in 0..2 {
        stage.runs(&i1());
        stage.does(evacuate_crashed(&i1()));
    }
    stage.runs(&i1());
    let outcome = stage.does(evacuate_crashed(&i1()));
    assert_eq!(stage.shown(), ["0 CRASHED ORDINARY"]);
    assert_eq!(events(&outcome)[0], "actual_lrp_crashed");
}

#[test]
fn calls_about_an_instance_that_has_no_record_are_not_found() {
    for call in [evacuate_claimed, evacuate_crashed, evacuate_stopped] {
        let mut stage = stage("Running(Theirs)", "Missing");
        let rejection = stage.refuses(call(&i1()));
        assert!(matches!(rejection, Rejection::NotFound(_)), "{rejection}");
    }
}

#[test]
fn an_evacuating_record_is_removed_by_its_own_instance_only() {
    let mut stage = stage("Unclaimed", "Running(Ours)");
    assert!(matches!(stage.refuses(remove_evacuating(&i2())), Rejection::CannotRemove(_)));
    stage.does(remove_evacuating(&i1()));
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
    assert!(stage.does(remove_evacuating(&i1())).changes.is_empty());
}

/// With the strategy RECREATE nothing runs twice: an instance moves when all serve.
#[test]
fn recreate_moves_one_instance_at_a_time_and_keeps_no_twin() {
    let mut stage = Stage::new();
    let strategy = UpdateStrategy::Recreate;
    stage.does(desire_this(DesiredLrp { update_strategy: strategy, ..desired("p", "d", 2) }));
    stage.runs(&i1());
    assert_eq!(stage.does(evacuate(&i1())).reply, Reply::KeepContainer(true));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "1 UNCLAIMED ORDINARY"]);
    stage.does(start(1, &i2()));
    let outcome = stage.does(evacuate(&i1()));
    assert_eq!(outcome.reply, Reply::KeepContainer(false));
    assert_eq!(auctions(&outcome), ["p: 0"]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "1 RUNNING ORDINARY i2"]);
    assert_eq!(stage.does(evacuate(&i1())).reply, Reply::KeepContainer(false));
}

#[test]
fn an_undesired_instance_that_is_evacuated_is_not_auctioned() {
    let mut stage = stage("Running(Ours)", "Missing");
    stage.does(Command::RemoveDesiredLrp(process()));
    assert_eq!(auctions(&stage.does(evacuate(&i1()))), [""; 0]);
    stage.wait(1).converge();
    assert_eq!(stage.does(evacuate(&i1())).reply, Reply::KeepContainer(false));
    assert_eq!(stage.shown(), [""; 0]);
}

#[test]
fn a_consumer_sees_one_instance_at_an_index_and_always_the_one_that_serves() {
    let mut stage = Stage::with_desired(1);
    let seen = |stage: &Stage| -> Vec<String> {
        stage.board.records.resolved().map(|lrp| shape(&lrp)).collect()
    };
    assert_eq!(seen(&stage), ["UNCLAIMED ORDINARY"]);
    stage.runs(&i1());
    stage.does(evacuate(&i1()));
    assert_eq!(stage.shown().len(), 2);
    assert_eq!(seen(&stage), ["RUNNING EVACUATING i1"], "the replacement is not there yet");
    stage.does(claim(0, &i2()));
    assert_eq!(seen(&stage), ["RUNNING EVACUATING i1"]);
    stage.does(start(0, &i2()));
    assert_eq!(seen(&stage), ["RUNNING ORDINARY i2"]);
    stage.does(missing("cell-2"));
    assert_eq!(seen(&stage), ["RUNNING SUSPECT i2"], "it may still serve");
}
