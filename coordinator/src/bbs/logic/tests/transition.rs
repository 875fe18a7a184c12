//! Each row of `docs/tables/bbs_transition.md` on a board. The caller is `i1`, the other `i2`.

use volvox_protocol::tables::doc::table_under;

use super::*;

const MARKDOWN: &str = include_str!("../../../../../docs/tables/bbs_transition.md");

fn stage(record: &str) -> Stage {
    if record == "Missing" {
        return Stage::new();
    }
    let mut stage = Stage::with_desired(1);
    match record {
        "Unclaimed" => {}
        "Claimed(Ours)" => drop(stage.does(claim(0, &i1()))),
        "Claimed(Theirs)" => drop(stage.does(claim(0, &i2()))),
        "Running(Ours)" => stage.runs(&i1()),
        "Running(Theirs)" => stage.runs(&i2()),
        "Crashed" => {
            for _ in 0..4 {
                stage.does(claim(0, &i2()));
                stage.does(crash(0, &i2()));
            }
        }
        other => panic!("no record is {other}"),
    }
    stage
}

/// The command, what is there when it is granted, and how it is refused.
fn request(name: &str) -> (Command, &'static str, fn(String) -> Rejection) {
    let elsewhere = running_at("10.0.0.9");
    match name {
        "Claim" => (claim(0, &i1()), "0 CLAIMED ORDINARY i1", Rejection::CannotClaim),
        "Start" => (
            cell_says(CellRequest::StartLrp(key(0), i1(), elsewhere)),
            "0 RUNNING ORDINARY i1",
            Rejection::CannotStart,
        ),
        "Crash" => (crash(0, &i1()), "0 UNCLAIMED ORDINARY", Rejection::CannotCrash),
        "Fail" => (fail(0), "0 UNCLAIMED ORDINARY", Rejection::CannotFail),
        // What is desired begins anew.
        "Remove" => (remove(0, &i1()), "0 UNCLAIMED ORDINARY", Rejection::CannotRemove),
        "RemoveAny" => {
            (Command::RemoveLrp(key(0)), "0 UNCLAIMED ORDINARY", Rejection::CannotRemove)
        }
        other => panic!("nobody asks {other}"),
    }
}

#[test]
fn every_row_of_the_page_is_what_happens_on_a_board() {
    let rows = table_under(MARKDOWN, "The table").unwrap().rows;
    for row in &rows {
        let mut stage = stage(&row[0]);
        let before = stage.shown();
        let (command, granted, refused) = request(&row[1]);
        let verdict = stage.tries(command);
        match (&*row[2], &verdict) {
            ("Apply" | "Create", Ok(outcome)) => {
                assert!(!outcome.changes.is_empty(), "{row:?} wrote nothing");
                assert_eq!(before.is_empty(), row[2] == "Create", "{row:?}");
                assert_eq!(stage.shown(), [granted], "{row:?}");
            }
            ("Nothing", Ok(outcome)) => assert!(outcome.changes.is_empty(), "{row:?}: {outcome:?}"),
            ("NotFound", Err(Rejection::NotFound(_))) => {}
            ("Refuse", Err(rejection)) => {
                assert_eq!(rejection.kind(), refused(String::new()).kind(), "{row:?}");
            }
            (_, verdict) => panic!("{row:?}: {verdict:?}"),
        }
        if verdict.is_err() {
            assert_eq!(stage.shown(), before, "{row:?}");
        }
    }
    assert_eq!(rows.len(), 42);
    let rows = rows.len();
    println!("table bbs_transition on a board: {rows} rows of the document, {rows} plays checked");
}

#[test]
fn a_refusal_says_what_the_record_is_instead() {
    let told = |record: &str, command: Command| stage(record).refuses(command).to_string();
    assert_eq!(
        told("Running(Theirs)", claim(0, &i1())),
        "cannot claim actual LRP: it is RUNNING by instance i2 on cell cell-2"
    );
    assert_eq!(told("Unclaimed", crash(0, &i1())), "cannot crash actual LRP: it is UNCLAIMED");
    assert_eq!(told("Missing", claim(0, &i1())), "actual LRP p/0 could not be found");
    let elsewhere = LrpKey { domain: domain("other"), ..key(0) };
    let start = cell_says(CellRequest::StartLrp(elsewhere, i1(), running()));
    assert_eq!(
        told("Unclaimed", start),
        "cannot start actual LRP: it is of domain \"d\", not \"other\""
    );
}
