//! Tests of the view without definitions. Records are written as `definition/index PRESENCE STATE`.

use super::*;

const STATES: [&str; 4] = ["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED"];

fn id(text: &str) -> DefinitionId {
    DefinitionId::new(text).unwrap()
}

/// The record that is written as `text`.
fn record(text: &str) -> Arc<ActualLrp> {
    let words: Vec<&str> = text.split([' ', '/']).collect();
    let [definition, index, presence, state] = words[..] else { panic!("{text}") };
    let (cell_id, instance_guid) = match state {
        "CLAIMED" | "RUNNING" => ("cell-1", "ig-1"),
        _ => ("", ""),
    };
    let json = serde_json::json!({
        "process_guid": "p", "domain": "d", "definition_id": definition,
        "index": index.parse::<u32>().unwrap(), "presence": presence, "state": state,
        "cell_id": cell_id, "instance_guid": instance_guid,
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

fn records(texts: &[&str]) -> Vec<Arc<ActualLrp>> {
    texts.iter().map(|text| record(text)).collect()
}

/// Every order of the records gives the same view: `expected`.
fn check(active: Option<&str>, given: &[&str], expected: &[&str]) {
    let active = active.map(id);
    for order in orders(records(given)) {
        assert_eq!(resolved(&order, active.as_ref()), records(expected), "{active:?} of {order:?}");
    }
}

/// All orders of a few records, by swapping (Heap's algorithm).
fn orders(mut items: Vec<Arc<ActualLrp>>) -> Vec<Vec<Arc<ActualLrp>>> {
    fn permute(k: usize, items: &mut Vec<Arc<ActualLrp>>, out: &mut Vec<Vec<Arc<ActualLrp>>>) {
        if k <= 1 {
            out.push(items.clone());
            return;
        }
        for at in 0..k {
            permute(k - 1, items, out);
            items.swap(if k.is_multiple_of(2) { at } else { 0 }, k - 1);
        }
    }
    let mut out = Vec::new();
    permute(items.len(), &mut items, &mut out);
    out
}

#[test]
fn no_records_are_no_instances() {
    check(None, &[], &[]);
    check(Some("a"), &[], &[]);
    assert_eq!(groups(&[]), []);
}

#[test]
fn indices_stand_in_their_order_and_each_once() {
    let given = ["a/2 ORDINARY CLAIMED", "a/0 ORDINARY RUNNING", "b/1 ORDINARY CRASHED"];
    let expected = ["a/0 ORDINARY RUNNING", "b/1 ORDINARY CRASHED", "a/2 ORDINARY CLAIMED"];
    for active in [None, Some("a"), Some("b"), Some("c")] {
        check(active, &given, &expected);
    }
}

/// Columns: the state of definition `a`, that of `b`, and who is shown while nothing, `a` and `b`
/// is the active definition.
#[test]
fn every_pair_of_states_of_two_definitions() {
    let rows = [
        ("UNCLAIMED", "UNCLAIMED", "aab"),
        ("UNCLAIMED", "CLAIMED", "aab"),
        ("UNCLAIMED", "RUNNING", "bbb"),
        ("UNCLAIMED", "CRASHED", "aab"),
        ("CLAIMED", "UNCLAIMED", "aab"),
        ("CLAIMED", "CLAIMED", "aab"),
        ("CLAIMED", "RUNNING", "bbb"),
        ("CLAIMED", "CRASHED", "aab"),
        ("RUNNING", "UNCLAIMED", "aaa"),
        ("RUNNING", "CLAIMED", "aaa"),
        ("RUNNING", "RUNNING", "aab"),
        ("RUNNING", "CRASHED", "aaa"),
        ("CRASHED", "UNCLAIMED", "aab"),
        ("CRASHED", "CLAIMED", "aab"),
        ("CRASHED", "RUNNING", "bbb"),
        ("CRASHED", "CRASHED", "aab"),
    ];
    let pairs: Vec<_> = STATES.iter().flat_map(|a| STATES.iter().map(move |b| (*a, *b))).collect();
    assert_eq!(rows.map(|(a, b, _)| (a, b)).to_vec(), pairs, "every pair, once");
    for (a, b, shown) in rows {
        let (a, b) = (format!("a/0 ORDINARY {a}"), format!("b/0 ORDINARY {b}"));
        for (active, shown) in [None, Some("a"), Some("b")].into_iter().zip(shown.chars()) {
            check(active, &[&a, &b], &[if shown == 'a' { &a } else { &b }]);
        }
    }
}

/// One definition beside itself: the BBS's rule for the three presences.
#[test]
fn within_a_definition_the_bbs_decides() {
    for state in STATES {
        let ordinary = format!("a/0 ORDINARY {state}");
        let (suspect, evacuating) = ("a/0 SUSPECT RUNNING", "a/0 EVACUATING RUNNING");
        let over_suspect = if state == "RUNNING" { &ordinary } else { suspect };
        let over_evacuating = match state {
            "RUNNING" | "CRASHED" => &ordinary,
            _ => evacuating,
        };
        for active in [None, Some("a"), Some("b")] {
            check(active, &[&ordinary], &[&ordinary]);
            check(active, &[&ordinary, suspect], &[over_suspect]);
            check(active, &[&ordinary, evacuating], &[over_evacuating]);
            check(active, &[&ordinary, suspect, evacuating], &[over_suspect]);
            check(active, &[suspect, evacuating], &[suspect]);
            check(active, &[evacuating], &[evacuating]);
        }
    }
}

/// Each definition first becomes one record, whatever its presence; then definitions compete.
#[test]
fn suspect_and_evacuating_records_serve_for_their_definition() {
    let rows: [(&[&str], &str, &str); 7] = [
        // What runs on a missing cell, or one being emptied, runs: it is shown before what waits.
        (
            &["a/0 SUSPECT RUNNING", "a/0 ORDINARY CLAIMED", "b/0 ORDINARY CLAIMED"],
            "a/0 SUSPECT RUNNING",
            "a/0 SUSPECT RUNNING",
        ),
        (
            &["a/0 EVACUATING RUNNING", "a/0 ORDINARY UNCLAIMED", "b/0 ORDINARY CLAIMED"],
            "a/0 EVACUATING RUNNING",
            "a/0 EVACUATING RUNNING",
        ),
        // Presence does not decide between definitions that both serve.
        (
            &["a/0 SUSPECT RUNNING", "b/0 ORDINARY RUNNING"],
            "a/0 SUSPECT RUNNING",
            "b/0 ORDINARY RUNNING",
        ),
        (
            &["a/0 ORDINARY RUNNING", "b/0 EVACUATING RUNNING", "b/0 ORDINARY CLAIMED"],
            "a/0 ORDINARY RUNNING",
            "b/0 EVACUATING RUNNING",
        ),
        // A crash hides the evacuating record of its own definition, so another may come first.
        (
            &["a/0 EVACUATING RUNNING", "a/0 ORDINARY CRASHED", "b/0 ORDINARY RUNNING"],
            "b/0 ORDINARY RUNNING",
            "b/0 ORDINARY RUNNING",
        ),
        (
            &["a/0 EVACUATING RUNNING", "a/0 ORDINARY CRASHED", "b/0 ORDINARY CLAIMED"],
            "a/0 ORDINARY CRASHED",
            "b/0 ORDINARY CLAIMED",
        ),
        // A suspect that does not run stands for its definition, but serves nobody.
        (
            &["a/0 SUSPECT CLAIMED", "a/0 ORDINARY CLAIMED", "b/0 SUSPECT RUNNING"],
            "b/0 SUSPECT RUNNING",
            "b/0 SUSPECT RUNNING",
        ),
    ];
    for (given, with_a_active, with_b_active) in rows {
        check(Some("a"), given, &[with_a_active]);
        check(Some("b"), given, &[with_b_active]);
    }
}

#[test]
fn an_active_definition_without_a_record_decides_nothing() {
    let given = ["c/0 ORDINARY CRASHED", "b/0 ORDINARY CLAIMED", "a/1 ORDINARY RUNNING"];
    for active in [None, Some("z")] {
        check(active, &given, &["b/0 ORDINARY CLAIMED", "a/1 ORDINARY RUNNING"]);
    }
    let given = ["c/0 ORDINARY RUNNING", "b/0 ORDINARY RUNNING", "a/0 ORDINARY CLAIMED"];
    check(Some("a"), &given, &["b/0 ORDINARY RUNNING"]);
    check(Some("c"), &given, &["c/0 ORDINARY RUNNING"]);
}

#[test]
fn groups_are_one_per_definition_and_index_in_order() {
    let given = records(&[
        "b/0 ORDINARY CLAIMED",
        "a/1 EVACUATING RUNNING",
        "a/0 SUSPECT RUNNING",
        "a/0 ORDINARY CLAIMED",
        "a/1 ORDINARY RUNNING",
        "a/10 EVACUATING RUNNING",
    ]);
    let group = |instance: &str, evacuating: &str| LrpGroup {
        instance: (!instance.is_empty()).then(|| record(instance)),
        evacuating: (!evacuating.is_empty()).then(|| record(evacuating)),
    };
    let expected = vec![
        ((id("a"), 0), group("a/0 SUSPECT RUNNING", "")),
        ((id("a"), 1), group("a/1 ORDINARY RUNNING", "a/1 EVACUATING RUNNING")),
        ((id("a"), 10), group("", "a/10 EVACUATING RUNNING")),
        ((id("b"), 0), group("b/0 ORDINARY CLAIMED", "")),
    ];
    for order in orders(given) {
        assert_eq!(groups(&order), expected);
    }
}

#[test]
fn what_traffic_may_be_sent_to_comes_before_what_only_runs() {
    let with = |text: &str, routable: bool| {
        let mut json = serde_json::to_value(&*record(text)).unwrap();
        json["routable"] = routable.into();
        Arc::new(serde_json::from_value::<ActualLrp>(json).unwrap())
    };
    let (old, new) = ("a/0 ORDINARY RUNNING", "b/0 ORDINARY RUNNING");
    for (old_routable, new_routable, shown) in
        [(true, false, "a"), (true, true, "b"), (false, true, "b"), (false, false, "b")]
    {
        let records = [with(old, old_routable), with(new, new_routable)];
        let found = resolved(&records, Some(&id("b")));
        assert_eq!(found[0].definition_id, id(shown), "{old_routable} {new_routable}");
    }
}
