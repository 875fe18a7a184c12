//! Desire, update, remove: what consumers want, and what follows at once.

use volvox_protocol::definition::{MetricTagValue, MetricTags, RouteValue, Routes};
use volvox_protocol::id::DefinitionId;

use super::*;

fn routes(router: &str) -> Routes {
    Routes::from([(router.to_owned(), RouteValue::new("[1]").unwrap())])
}

fn tags(name: &str, value: &str) -> MetricTags {
    MetricTags::from([(name.to_owned(), MetricTagValue::Static(value.to_owned()))])
}

fn remove_desired() -> Command {
    Command::RemoveDesiredLrp(process())
}

#[test]
fn a_desire_creates_all_instances_and_asks_for_their_starts_in_one_request() {
    let mut stage = Stage::new();
    let outcome = stage.does(desire(3));
    assert_eq!(effects(&outcome), ["auction p: 0 1 2"]);
    let one = ["actual_lrp_instance_created", "actual_lrp_created"];
    let told = [&["desired_lrp_created"][..], &one, &one, &one].concat();
    assert_eq!(events(&outcome), told);
    let all = ["0 UNCLAIMED ORDINARY", "1 UNCLAIMED ORDINARY", "2 UNCLAIMED ORDINARY"];
    assert_eq!(stage.shown(), all);
}

#[test]
fn a_start_request_says_what_the_definition_needs() {
    let mut lrp = desired("p", "d", 1);
    lrp.definition.disk_mb = 128;
    lrp.definition.placement_tags = vec!["gpu".into()];
    let outcome = Stage::new().does(desire_this(lrp));
    let [BoardEffect::RequestAuction(starts, _)] = &outcome.effects[..] else {
        panic!("{outcome:?}")
    };
    let needs = &starts[0].requirements;
    assert_eq!((needs.memory_mb, needs.disk_mb), (64, 128));
    assert_eq!(
        (&*needs.rootfs, &needs.placement_tags[..]),
        ("preloaded:linux", &["gpu".into()][..])
    );
    assert_eq!((&starts[0].domain, starts[0].definition_id.as_str()), (&domain("d"), "p"));
}

#[test]
fn a_second_desire_of_the_same_process_is_refused() {
    let mut stage = Stage::with_desired(1);
    assert_eq!(stage.refuses(desire(2)).to_string(), "desired LRP p already exists");
}

#[test]
fn an_update_or_removal_of_what_is_not_desired_is_refused() {
    let mut stage = Stage::new();
    for command in [scale(1), remove_desired()] {
        assert_eq!(stage.refuses(command).to_string(), "desired LRP p could not be found");
    }
}

#[test]
fn a_desire_leaves_alone_what_runs_already() {
    let mut stage = Stage::new();
    stage.does(start(0, &i1()));
    assert_eq!(auctions(&stage.does(desire(2))), ["p: 1"]);
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "1 UNCLAIMED ORDINARY"]);
}

#[test]
fn a_desire_in_another_domain_takes_over_what_runs_already() {
    let mut stage = Stage::new();
    stage.does(start(0, &i1()));
    let before = Arc::clone(stage.ordinary());
    let outcome = stage.does(desire_this(desired("p", "elsewhere", 1)));
    let after = ActualLrp {
        domain: domain("elsewhere"),
        modification_tag: before.modification_tag.next(),
        ..(*before).clone()
    };
    assert_eq!(**stage.ordinary(), after);
    assert!(outcome.events.contains(&Event::InstanceChanged(before, Arc::new(after))));
    // The cell's container was made for another domain: it is told so, and starts over.
    assert!(matches!(stage.refuses(start(0, &i1())), Rejection::CannotStart(_)));
    assert_eq!(auctions(&stage.does(remove(0, &i1()))), ["p: 0"]);
}

#[test]
fn scaling_up_creates_only_the_new_indices() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    assert_eq!(effects(&stage.does(scale(3))), ["auction p: 1 2"]);
    let all = ["0 RUNNING ORDINARY i1", "1 UNCLAIMED ORDINARY", "2 UNCLAIMED ORDINARY"];
    assert_eq!(stage.shown(), all);
}

#[test]
fn scaling_down_stops_what_is_on_a_cell_and_removes_the_rest() {
    let mut stage = Stage::with_desired(4);
    stage.does(claim(1, &i1()));
    stage.does(start(2, &i2()));
    let outcome = stage.does(scale(1));
    assert_eq!(effects(&outcome), ["stop 2 i2", "stop 1 i1"]);
    assert_eq!(
        stage.shown(),
        ["0 UNCLAIMED ORDINARY", "1 CLAIMED ORDINARY i1", "2 RUNNING ORDINARY i2"]
    );
    for (index, instance) in [(1, i1()), (2, i2())] {
        assert_eq!(effects(&stage.does(remove(index, &instance))), [""; 0]);
    }
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
}

#[test]
fn scaling_down_does_not_ask_whether_the_domain_is_fresh() {
    let mut stage = Stage::new();
    stage.does(desire(2));
    stage.does(start(1, &i1()));
    assert_eq!(effects(&stage.does(scale(0))), ["stop 1 i1"]);
    assert_eq!(stage.shown(), ["1 RUNNING ORDINARY i1"]);
}

#[test]
fn an_update_that_does_not_name_instances_stops_none() {
    let mut stage = Stage::new();
    stage.does(desire(1));
    stage.does(start(0, &i1()));
    stage.does(start(3, &i2()));
    let note = DesiredLrpUpdate { annotation: Some("note".into()), ..Default::default() };
    let outcome = stage.does(update(note));
    assert_eq!(effects(&outcome), [""; 0]);
    assert_eq!(events(&outcome), ["desired_lrp_changed"]);
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "3 RUNNING ORDINARY i2"]);
    assert_eq!(effects(&stage.does(scale(1))), ["stop 3 i2"], "in so many words");
}

#[test]
fn an_instance_scaled_away_that_crashes_is_not_started_again() {
    let mut stage = Stage::with_desired(2);
    stage.does(start(1, &i1()));
    stage.does(scale(1));
    assert_eq!(effects(&stage.does(crash(1, &i1()))), [""; 0]);
    stage.converge();
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
}

#[test]
fn removing_stops_every_instance_and_suspects_and_leaves_evacuating_ones() {
    let mut stage = Stage::with_desired(3);
    stage.runs(&i1());
    stage.does(start(1, &i2()));
    stage.does(cell_says(CellRequest::EvacuateRunning(key(1), i2(), running())));
    stage.does(start(2, &i3()));
    stage.does(missing("cell-1"));
    let outcome = stage.does(remove_desired());
    assert_eq!(effects(&outcome), ["stop 2 i3"]);
    assert_eq!(stage.shown(), ["1 RUNNING EVACUATING i2", "2 RUNNING ORDINARY i3"]);
    assert_eq!(
        events(&outcome),
        [
            "desired_lrp_removed",
            "actual_lrp_instance_changed",
            "actual_lrp_instance_removed",
            "actual_lrp_removed",
            "actual_lrp_instance_removed",
            "actual_lrp_removed",
            "actual_lrp_instance_removed",
        ],
        "2 is to stop, 1 goes, and so does 0, of which readers of groups saw the suspect only"
    );
}

#[test]
fn an_instance_that_starts_with_tags_of_yesterday_is_told_of_those_of_today() {
    let mut stage = Stage::with_desired(1);
    stage.does(claim(0, &i1()));
    let change = DesiredLrpUpdate { metric_tags: Some(tags("a", "b")), ..Default::default() };
    assert!(effects(&stage.does(update(change))).is_empty(), "it does not run yet");
    let outcome = stage.does(start(0, &i1()));
    assert_eq!(effects(&outcome), ["update 0 i1"], "what it says was fetched before");
    let mut now = Running::clone(&running());
    now.metric_tags = [("a".to_owned(), "b".to_owned())].into_iter().collect();
    let again = CellRequest::StartLrp(key(0), i1(), Arc::new(now));
    assert!(effects(&stage.does(cell_says(again))).is_empty(), "now it says what it should");
}

#[test]
fn what_was_removed_can_be_desired_again() {
    let mut stage = Stage::with_desired(1);
    let first = stage.board.records.deployment(&process()).unwrap().1.modification_tag;
    stage.does(remove_desired());
    stage.does(desire(1));
    let second = stage.board.records.deployment(&process()).unwrap().1.modification_tag;
    assert!(second.succeeds(first) && second.index == 0);
}

/// (what is updated, what the cells of running instances are told)
#[test]
fn running_instances_are_told_of_new_tags_and_internal_routes_and_of_nothing_else() {
    let none = DesiredLrpUpdate::default;
    let cases: [(DesiredLrpUpdate, &[&str]); 6] = [
        (none(), &[]),
        (DesiredLrpUpdate { annotation: Some("note".into()), ..none() }, &[]),
        (DesiredLrpUpdate { routes: Some(routes("cf-router")), ..none() }, &[]),
        (DesiredLrpUpdate { routes: Some(routes("internal-router")), ..none() }, &["update 0 i1"]),
        (DesiredLrpUpdate { metric_tags: Some(tags("a", "b")), ..none() }, &["update 0 i1"]),
        (
            DesiredLrpUpdate {
                image_username: Some("user".into()),
                image_password: Some("password".into()),
                ..none()
            },
            &[],
        ),
    ];
    for (change, told) in cases {
        let mut stage = Stage::with_desired(2);
        stage.runs(&i1());
        stage.does(claim(1, &i2()));
        let before = stage.deployment().modification_tag;
        let outcome = stage.does(update(change.clone()));
        assert_eq!(effects(&outcome), told, "{change:?}");
        assert_eq!(events(&outcome), ["desired_lrp_changed"], "{change:?}");
        let after = stage.deployment().modification_tag;
        assert_eq!(after, before.next(), "every update counts: {change:?}");
    }
}

#[test]
fn an_update_changes_what_it_names_and_keeps_the_rest() {
    let mut stage = Stage::with_desired(1);
    stage.does(update(DesiredLrpUpdate { annotation: Some("note".into()), ..Default::default() }));
    stage.does(update(DesiredLrpUpdate {
        image_username: Some("user".into()),
        image_password: Some("password".into()),
        ..Default::default()
    }));
    let (_, deployment) = stage.board.records.deployment(&process()).unwrap();
    let definition = deployment.active_definition().unwrap();
    assert_eq!((&*deployment.annotation, deployment.instances), ("note", 1));
    assert_eq!((&*definition.image_username, definition.memory_mb), ("user", 64));
}

#[test]
fn new_tags_must_still_name_the_metrics_guid() {
    let mut stage = Stage::new();
    let mut lrp = desired("p", "d", 0);
    lrp.definition.metrics_guid = "app".into();
    lrp.metric_tags = tags("source_id", "app");
    stage.does(desire_this(lrp));
    let retag = |tags| update(DesiredLrpUpdate { metric_tags: Some(tags), ..Default::default() });
    let rejection = stage.refuses(retag(tags("source_id", "other")));
    assert!(rejection.to_string().starts_with("metric_tags.source_id: "), "{rejection}");
    stage.does(retag(tags("source_id", "app")));
}

#[test]
fn an_instance_of_a_definition_that_is_not_active_is_not_wanted() {
    let mut stage = Stage::new();
    let mut lrp = desired("p", "d", 1);
    lrp.definition_id = Some(DefinitionId::new("v2").unwrap());
    stage.does(start(0, &i1()));
    stage.does(desire_this(lrp));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "0 UNCLAIMED ORDINARY"]);
    assert_eq!(effects(&stage.converge()), [""; 0], "nobody vouches for the domain");
    stage.does(fresh("d", 60));
    assert_eq!(effects(&stage.converge()), ["stop 0 i1"]);
    // A request that names no definition means the active one.
    stage.does(claim(0, &i2()));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "0 CLAIMED ORDINARY i2"]);
}
