//! Tests of deployments: the record, what consumers send, and the bookkeeping of a roll.

use serde_json::json;

use super::*;
use crate::definition::tests::{check, round_trip};
use crate::desired_lrp::DesiredLrpUpdate;
use crate::modification_tag::Epoch;
use crate::random::SplitMix;
use crate::time::Timestamp;
use crate::validate::Valid;
use crate::wire::decode_json;

const DEFINITION: &str = include_str!("../../tests/samples/lrp_deployment_definition.json");
const UPDATE: &str = include_str!("../../tests/samples/lrp_deployment_update.json");
const RUN: &str = r#"{"rootfs":"preloaded:a","action":{"run":{"path":"/a","user":"u"}}}"#;

fn id(text: &str) -> DefinitionId {
    DefinitionId::new(text).unwrap()
}

fn desired() -> DesiredLrp {
    let sample = json!({
        "process_guid": "p", "domain": "d", "instances": 3, "rootfs": "host:",
        "annotation": "note", "memory_mb": 64, "disk_mb": 32, "max_pids": 16,
        "placement_tags": ["gpu"], "routes": {"r": [{"port": 8080}]},
        "metric_tags": {"source_id": {"static": "s"}},
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
        "volume_mounts": [{"driver": "nfs", "container_dir": "/data", "mode": "r"}],
    });
    serde_json::from_value(sample).unwrap()
}

fn definition(memory_mb: u32) -> Definition {
    Definition::new(&LrpDefinition { memory_mb, ..desired().definition })
}

/// A desired LRP from a seed: what a consumer may give, given or not.
fn random_desired(seed: u64) -> DesiredLrp {
    let mut random = SplitMix(seed);
    let mut lrp = desired();
    let mut given = || random.next().is_multiple_of(2);
    lrp.process_guid = ProcessGuid::new(&format!("p{seed}")).unwrap();
    lrp.definition_id = given().then(|| id("version-1"));
    if given() {
        lrp.update_strategy = UpdateStrategy::Recreate;
    }
    if given() {
        lrp.routes = Routes::default();
    }
    if given() {
        lrp.metric_tags = MetricTags::default();
    }
    if given() {
        lrp.annotation.clear();
    }
    if given() {
        lrp.definition = LrpDefinition { rootfs: "host:".into(), ..LrpDefinition::default() };
    }
    lrp.instances = u32::try_from(random.next() % 10).unwrap();
    lrp.definition.memory_mb = u32::try_from(random.next() % 1_000).unwrap();
    lrp.modification_tag = ModificationTag::new(Epoch::from_random(u128::from(random.next())));
    lrp
}

#[test]
fn the_projection_of_a_promotion_is_what_was_desired() {
    for seed in 0..1_000 {
        let desired = random_desired(seed);
        let projected = LrpDeployment::promote(desired.clone(), desired.modification_tag).project();
        let named = desired.definition_id.clone();
        let definition_id = named.or_else(|| Some((&desired.process_guid).into()));
        assert_eq!(projected, DesiredLrp { definition_id, ..desired }, "seed {seed}");
    }
}

#[test]
fn a_promotion_names_the_definition_after_the_process_and_knows_nothing_healthy() {
    let deployment = LrpDeployment::promote(desired(), ModificationTag::default());
    let ids: Vec<&str> = deployment.definitions.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!((ids, deployment.active_definition_id.as_str()), (vec!["p"], "p"));
    assert_eq!((deployment.healthy_definition_id, deployment.roll), (None, None));
}

#[test]
fn a_projection_shows_the_active_definition_and_the_previous_one_while_an_update_rolls() {
    let mut deployment = LrpDeployment::promote(desired(), ModificationTag::default());
    for (name, memory_mb) in [("id2", 2), ("id3", 3)] {
        deployment.definitions.insert(id(name), definition(memory_mb));
    }
    deployment.active_definition_id = id("id2");
    deployment.healthy_definition_id = Some(id("id2"));
    let shown = deployment.project();
    assert_eq!((shown.definition_id, shown.definition.memory_mb), (Some(id("id2")), 2));
    assert_eq!(shown.previous_definition_id, None);
    deployment.roll = Some(Box::new(Rollout::rising(Timestamp::ZERO, id("p"))));
    assert_eq!(deployment.project().previous_definition_id, Some(id("p")));
}

#[test]
fn a_deployment_reads_back_with_what_an_auction_needs() {
    let mut deployment = LrpDeployment::promote(desired(), ModificationTag::default());
    deployment.definitions.insert(id("b"), definition(7));
    deployment.definitions.insert(id("a"), definition(8));
    deployment.roll = Some(Box::new(Rollout::rising(Timestamp::from_secs(5), id("b"))));
    deployment.rollout =
        Some(Box::new(RolloutPolicy { max_in_flight: 3, ..RolloutPolicy::default() }));
    let past = PastDefinition {
        definition_id: id("old"),
        definition: definition(9).packed().clone(),
        retired_at: Timestamp::from_secs(7),
    };
    deployment.history.push(past, 10);
    let bytes = postcard::to_stdvec(&deployment).unwrap();
    let read: LrpDeployment = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, deployment);
    let definition = read.definitions.get(&read.active_definition_id).unwrap();
    let needs = definition.requirements();
    assert_eq!((needs.memory_mb, needs.disk_mb, needs.max_pids), (64, 32, 16));
    assert_eq!(
        (&needs.placement_tags[..], &needs.volume_drivers[..]),
        (&["gpu".to_owned()][..], &["nfs".to_owned()][..])
    );
    let json = serde_json::to_string(&deployment).unwrap();
    assert_eq!(serde_json::from_str::<LrpDeployment>(&json).unwrap(), deployment);
}

#[test]
fn a_deployment_is_shown_under_the_names_of_the_seeds() {
    let asked: LrpDeploymentDefinition = decode_json(DEFINITION.as_bytes()).unwrap();
    let mut deployment = LrpDeployment::create(asked, ModificationTag::default());
    let value = serde_json::to_value(&deployment).unwrap();
    assert_eq!(value["definitions"]["version-1"]["memory_mb"], json!(64));
    assert_eq!(value["active_definition_id"], json!("version-1"));
    for absent in ["healthy_definition_id", "roll", "history"] {
        assert!(value.get(absent).is_none(), "{absent} is there");
    }
    deployment.healthy_definition_id = Some(id("version-1"));
    let mut roll = Rollout::rising(Timestamp::from_secs(1), id("version-0"));
    roll.take_up(Timestamp::from_secs(2), 0);
    deployment.roll = Some(Box::new(roll));
    let value = serde_json::to_value(&deployment).unwrap();
    assert_eq!(value["healthy_definition_id"], json!("version-1"));
    let expected = json!({
        "previous_definition_id": "version-0", "order": "RISING", "border": 1,
        "in_flight": [{"index": 0, "since": 2_000_000_000_u64}],
        "began_at": 1_000_000_000, "progressed_at": 1_000_000_000,
    });
    assert_eq!(value["roll"], expected);
}

#[test]
fn names_that_are_equal_share_one_text() {
    for name in ["p", "version-1"] {
        let named = DesiredLrp { definition_id: Some(id(name)), ..desired() };
        let mut deployment = LrpDeployment::promote(named, ModificationTag::default());
        deployment.healthy_definition_id = Some(id(name));
        let bytes = postcard::to_stdvec(&deployment).unwrap();
        let mut read: LrpDeployment = postcard::from_bytes(&bytes).unwrap();
        read.share_names();
        assert_eq!(read, deployment);
        let active = read.active_definition_id.as_str().as_ptr();
        let (known, _) = read.definitions.iter().next().unwrap();
        assert_eq!(known.as_str().as_ptr(), active);
        assert_eq!(read.healthy_definition_id.as_ref().unwrap().as_str().as_ptr(), active);
        assert_eq!(read.process_guid.as_str().as_ptr() == active, name == "p");
    }
}

#[test]
fn what_record_version_1_held_is_a_deployment_without_an_update() {
    let new = LrpDeployment::promote(desired(), ModificationTag::default());
    let bytes = postcard::to_stdvec(&LrpDeploymentV1::from(new.clone())).unwrap();
    let old: LrpDeploymentV1 = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(LrpDeployment::from(old), new);
}

#[test]
fn two_definitions_of_one_id_are_refused_in_every_form() {
    let twice = vec![(id("a"), definition(1)), (id("a"), definition(2))];
    let bytes = postcard::to_stdvec(&twice).unwrap();
    assert!(postcard::from_bytes::<Definitions>(&bytes).is_err());
    let text = format!(r#"{{"a":{RUN},"a":{RUN}}}"#);
    let error = serde_json::from_str::<Definitions>(&text).unwrap_err().to_string();
    assert!(error.contains("two definitions have the id a"), "{error}");
    let past = format!(r#"{{"definition_id":"a","definition":{RUN}}}"#);
    let error = serde_json::from_str::<History>(&format!("[{past},{past}]")).unwrap_err();
    assert!(error.to_string().contains("a is in the history twice"), "{error}");
}

#[test]
fn a_history_keeps_the_newest_and_each_once() {
    let past = |name: &str, at| PastDefinition {
        definition_id: id(name),
        definition: definition(1).packed().clone(),
        retired_at: Timestamp::from_secs(at),
    };
    let mut history = History::default();
    for (at, name) in ["a", "b", "a", "c", "d"].into_iter().enumerate() {
        history.push(past(name, at as u64), 3);
    }
    let shown: Vec<&str> = history.iter().map(|past| past.definition_id.as_str()).collect();
    assert_eq!(shown, ["a", "c", "d"]);
    assert_eq!(history.get(&id("a")).unwrap().retired_at, Timestamp::from_secs(2));
    assert!(history.remove(&id("a")).is_some() && history.remove(&id("a")).is_none());
    history.retain(|past| past.retired_at > Timestamp::from_secs(3));
    assert_eq!((history.len(), history.is_empty()), (1, false));
    history.push(past("e", 9), 0);
    assert!(history.is_empty(), "a history of none keeps none");
}

// What consumers send.

#[test]
fn what_is_created_reads_as_it_writes_and_keeps_its_rules() {
    let asked: LrpDeploymentDefinition = round_trip(DEFINITION);
    assert!(Valid::new(asked).is_ok());
    check::<LrpDeploymentDefinition>(
        DEFINITION,
        &[
            ("{}", ""),
            (r#"{"process_guid":null}"#, "process_guid: invalid type: null, expected a string"),
            (r#"{"domain":""}"#, "domain: domain must not be empty"),
            (r#"{"instances":100001}"#, "instances: is 100001, the limit is 100000"),
            (
                r#"{"definition_id":"a b"}"#,
                concat!(
                    "definition_id: definition_id \"a b\" may only contain letters, digits, ",
                    "'_', '-' and '.' (not first)"
                ),
            ),
            (
                r#"{"definition":{}}"#,
                "definition.rootfs: must not be empty, definition.action: must be given",
            ),
            (
                r#"{"metric_tags":{"source_id":{"static":"x"}}}"#,
                "metric_tags.source_id: must be static and equal to metrics_guid \"m\"",
            ),
            (r#"{"rollout":null}"#, ""),
            (
                r#"{"rollout":{"max_in_flight":1001}}"#,
                "rollout.max_in_flight: is 1001, the limit is 1000",
            ),
            (
                r#"{"rollout":{"canary_instances":100001}}"#,
                "rollout.canary_instances: is 100001, the limit is 100000",
            ),
            (
                r#"{"rollout":{"min_healthy_time_ms":31622400001}}"#,
                "rollout.min_healthy_time_ms: is 31622400001, the limit is 31622400000",
            ),
            (
                r#"{"rollout":{"stuck_after_ms":31622400001}}"#,
                "rollout.stuck_after_ms: is 31622400001, the limit is 31622400000",
            ),
            (
                r#"{"rollout":{"progress_deadline_ms":31622400001}}"#,
                "rollout.progress_deadline_ms: is 31622400001, the limit is 31622400000",
            ),
            (
                r#"{"rollout":{"progress_deadline_ms":5,"min_healthy_time_ms":5}}"#,
                "rollout.progress_deadline_ms: is 5, and an instance must run for 5 to be progress",
            ),
            (
                r#"{"rollout":{"max_in_flight":-1}}"#,
                "rollout.max_in_flight: invalid value: integer `-1`, expected u32",
            ),
        ],
    );
}

#[test]
fn updates_of_deployments_read_as_they_write_and_keep_their_rules() {
    let update: LrpDeploymentUpdate = round_trip(UPDATE);
    assert!(Valid::new(update).is_ok());
    assert_eq!(round_trip::<LrpDeploymentUpdate>("{}"), LrpDeploymentUpdate::default());
    let both = format!(r#"{{"definition_id":"v","definition":{RUN}}}"#);
    check::<LrpDeploymentUpdate>(
        "{}",
        &[
            (both.as_str(), ""),
            (r#"{"instances":0,"annotation":"","routes":{},"metric_tags":{},"rollout":{}}"#, ""),
            (r#"{"instances":100001}"#, "instances: is 100001, the limit is 100000"),
            (r#"{"definition_id":"v"}"#, "definition: must be given together with definition_id"),
            (
                format!(r#"{{"definition":{RUN}}}"#).as_str(),
                "definition_id: must be given together with definition",
            ),
            (
                r#"{"definition_id":"v","definition":{"rootfs":"a:b","action":{"run":{"path":"","user":"u"}}}}"#,
                "definition.action.run.path: must not be empty",
            ),
            (r#"{"metric_tags":{"a":{"static":""}}}"#, "metric_tags.a.static: must not be empty"),
            (
                r#"{"rollout":{"max_in_flight":1001}}"#,
                "rollout.max_in_flight: is 1001, the limit is 1000",
            ),
        ],
    );
}

#[test]
fn a_desired_lrp_is_updated_with_a_whole_definition_and_its_id() {
    let text =
        format!(r#"{{"lrp_definition":{}}}"#, RUN.replacen('{', r#"{"definition_id":"v","#, 1));
    let update: DesiredLrpUpdate = decode_json(text.as_bytes()).unwrap();
    let named = update.lrp_definition.as_deref().unwrap();
    assert_eq!((named.definition_id.as_str(), &*named.definition.rootfs), ("v", "preloaded:a"));
    let written = serde_json::to_string(&update).unwrap();
    assert_eq!(round_trip::<DesiredLrpUpdate>(&written), update);
    check::<DesiredLrpUpdate>(
        &text,
        &[
            ("{}", ""),
            (
                format!(r#"{{"lrp_definition":{RUN}}}"#).as_str(),
                "lrp_definition: missing field `definition_id`",
            ),
            (
                r#"{"lrp_definition":{"definition_id":"v","rootfs":"x:y","action":{"run":{"path":"/a","user":""}}}}"#,
                "lrp_definition.action.run.user: must not be empty",
            ),
            (
                r#"{"lrp_definition":{"definition_id":""}}"#,
                "lrp_definition.definition_id: definition_id must not be empty",
            ),
            (
                r#"{"image_username":"u","image_password":"p"}"#,
                "image_username: must stand in lrp_definition when there is one",
            ),
        ],
    );
}

#[test]
fn requests_carry_the_names_of_the_seeds() {
    round_trip::<RollbackDesiredLrpRequest>(r#"{"process_guid":"p","definition_id":"v"}"#);
    round_trip::<CancelUpdateDesiredLrpRequest>(r#"{"process_guid":"p"}"#);
    round_trip::<DeleteLrpDeploymentRequest>(r#"{"process_guid":"p"}"#);
    round_trip::<LrpDeploymentByProcessGuidRequest>(r#"{"process_guid":"p"}"#);
    let activate = r#"{"process_guid":"p","definition_id":"v"}"#;
    round_trip::<ActivateLrpDeploymentDefinitionRequest>(activate);
    round_trip::<LrpDeploymentsRequest>(r#"{"domain":"d","process_guids":["a","b"]}"#);
    assert_eq!(round_trip::<LrpDeploymentsRequest>("{}"), LrpDeploymentsRequest::default());
    let create = format!(r#"{{"deployment":{DEFINITION}}}"#);
    assert!(Valid::new(round_trip::<CreateLrpDeploymentRequest>(&create)).is_ok());
    let update = format!(r#"{{"process_guid":"p","update":{UPDATE}}}"#);
    assert!(Valid::new(round_trip::<UpdateLrpDeploymentRequest>(&update)).is_ok());
    check::<UpdateLrpDeploymentRequest>(
        r#"{"process_guid":"p","update":{}}"#,
        &[(
            r#"{"update":{"instances":100001}}"#,
            "update.instances: is 100001, the limit is 100000",
        )],
    );
    check::<CreateLrpDeploymentRequest>(
        &create,
        &[(r#"{"deployment":{}}"#, "deployment: missing field `process_guid`")],
    );
    let many = json!({ "process_guids": vec!["p"; 10_001] }).to_string();
    check::<LrpDeploymentsRequest>(
        "{}",
        &[(&many, "process_guids: has 10001 entries, the limit is 10000")],
    );
}

// The bookkeeping of a roll.

/// The phases of indices 0 to 4, as letters.
fn phases(roll: &Rollout) -> String {
    let letter = |index| match roll.phase(index) {
        RolloutPhase::Ahead => 'a',
        RolloutPhase::InFlight => 'f',
        RolloutPhase::Done => 'd',
    };
    (0..5).map(letter).collect()
}

#[test]
fn a_rising_roll_goes_from_the_first_index_to_the_last() {
    let now = Timestamp::from_secs(1);
    let mut roll = Rollout::rising(now, id("v1"));
    assert_eq!((phases(&roll).as_str(), roll.next(5), roll.done(5)), ("aaaaa", Some(0), 0));
    roll.take_up(now, 0);
    roll.take_up(now, 1);
    roll.pass(2);
    assert_eq!((phases(&roll).as_str(), roll.next(5), roll.done(5)), ("ffdaa", Some(3), 1));
    roll.land(0);
    roll.leave_behind(1);
    assert_eq!((phases(&roll).as_str(), roll.stuck.as_slice()), ("dfdaa", &[1][..]));
    assert!(roll.flight(1).is_none());
    roll.pass(3);
    roll.pass(4);
    assert_eq!((roll.next(5), roll.is_over(5), roll.done(5)), (None, false, 4));
    roll.land(1);
    assert!(roll.is_over(5));
    // More instances are more to do, fewer are less.
    assert_eq!((roll.is_over(6), roll.next(6)), (false, Some(5)));
    roll.take_up(now, 5);
    roll.leave_behind(5);
    roll.scale_to(2);
    assert!(roll.is_over(2) && roll.stuck.is_empty());
    assert_eq!(phases(&roll), "ddaaa");
}

#[test]
fn a_falling_roll_goes_from_the_last_index_to_the_first() {
    let now = Timestamp::from_secs(1);
    let mut roll = Rollout::falling(now, id("v2"), 3, "cancelled");
    assert_eq!((phases(&roll).as_str(), roll.next(3), roll.done(3)), ("aaadd", Some(2), 0));
    roll.take_up(now, 2);
    roll.take_up(now, 1);
    assert_eq!((phases(&roll).as_str(), roll.next(3), roll.done(3)), ("affdd", Some(0), 0));
    roll.land(2);
    roll.land(1);
    roll.pass(0);
    assert!(roll.is_over(3) && roll.next(3).is_none());
    // New instances above are of the definition that it goes back to.
    assert_eq!((roll.is_over(5), phases(&roll).as_str()), (true, "ddddd"));
}

#[test]
fn a_policy_left_out_is_that_of_the_seeds() {
    use std::time::Duration;
    let policy = RolloutPolicy::default();
    assert_eq!((policy.in_flight(), policy.min_healthy_time()), (1, Duration::ZERO));
    assert_eq!(policy.progress_deadline(), Duration::MAX);
    let setting = Duration::from_secs(600);
    assert_eq!(policy.stuck_after(setting), setting);
    let given = RolloutPolicy { stuck_after_ms: 5, progress_deadline_ms: 7, ..policy };
    assert_eq!(given.stuck_after(setting), Duration::from_millis(5));
    assert_eq!(given.progress_deadline(), Duration::from_millis(7));
}
