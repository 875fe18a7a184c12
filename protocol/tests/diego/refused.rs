//! What is wrong in a message is told in the BBS's words; what is missing is an error, never a panic.

use prost::Message as _;
use volvox_protocol::api::{
    ActualLrpInstanceRequest, ClaimActualLrpRequest, CompleteTaskRequest, DesireLrpRequest,
    DesireTaskRequest, FailActualLrpRequest, RejectTaskRequest, RetireActualLrpRequest,
    StartActualLrpRequest, UpdateDesiredLrpRequest, UpsertDomainRequest,
};
use volvox_protocol::diego::precheck::PrecheckError;
use volvox_protocol::diego::{DiegoDecodeError, DiegoRequest, error_text, message as m};
use volvox_protocol::limits::JSON_BYTES;

/// What a client is told of this message.
fn told<Q: DiegoRequest>(message: &impl prost::Message) -> String {
    match Q::from_diego(&message.encode_to_vec()) {
        Ok(_) => "taken".to_owned(),
        Err(DiegoDecodeError::Invalid(invalid)) => error_text::complaints(&invalid.0),
        Err(other) => other.to_string(),
    }
}

fn action() -> m::Action {
    let run = m::RunAction { path: "/bin/true".into(), user: "root".into(), ..Default::default() };
    m::Action { run_action: Some(Box::new(run)), ..Default::default() }
}

fn lrp() -> m::DesiredLrp {
    m::DesiredLrp {
        process_guid: "p".into(),
        domain: "d".into(),
        root_fs: "host:".into(),
        action: Some(action()),
        ..Default::default()
    }
}

fn desire(change: impl FnOnce(&mut m::DesiredLrp)) -> String {
    let mut desired = lrp();
    change(&mut desired);
    told::<DesireLrpRequest>(&m::DesireLrpRequest { desired_lrp: Some(desired) })
}

#[test]
fn a_desired_lrp_is_refused_in_the_bbs_s_words() {
    assert_eq!(desire(|_| {}), "taken");
    assert_eq!(desire(|it| it.process_guid = "a b".into()), "Invalid field: process_guid");
    assert_eq!(desire(|it| it.domain.clear()), "Invalid field: domain");
    assert_eq!(desire(|it| it.root_fs.clear()), "Invalid field: rootfs, Invalid field: rootfs");
    assert_eq!(desire(|it| it.root_fs = "no-url".into()), "Invalid field: rootfs");
    assert_eq!(desire(|it| it.instances = -1), "Invalid field: instances");
    assert_eq!(desire(|it| it.max_pids = -1), "Invalid field: max_pids");
    assert_eq!(desire(|it| it.annotation = "x".repeat(10_241)), "Invalid field: annotation");
    assert_eq!(desire(|it| it.action = None), "invalid action type");
    let empty = Some(m::Action::default());
    let inner = "Invalid field: action, Invalid field: inner-action";
    assert_eq!(desire(|it| it.action = empty.clone()), inner);
    let two = m::Action { try_action: Some(Box::default()), ..action() };
    assert!(desire(|it| it.action = Some(two)).starts_with(inner));
    let nested = m::SerialAction { actions: vec![m::Action::default()], ..Default::default() };
    let nested = m::Action { serial_action: Some(Box::new(nested)), ..Default::default() };
    let setup = "Invalid field: setup, Invalid field: inner-action";
    assert_eq!(desire(|it| it.setup = Some(nested)), setup);
    assert_eq!(
        desire(|it| it.image_username = "u".into()),
        "Invalid field: image_password",
        "both or neither"
    );
    let tags = |name: &str, fixed: &str, dynamic| {
        [(name.to_owned(), m::MetricTagValue { fixed: fixed.into(), dynamic })].into()
    };
    let both = "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic";
    assert_eq!(desire(|it| it.metric_tags = tags("a", "x", 1)), both);
    assert_eq!(desire(|it| it.metric_tags = tags("a.b", "x", 1)), both, "a name with a dot");
    assert_eq!(desire(|it| it.metric_tags = tags("a.b", "", 0)), both);
    assert_eq!(desire(|it| it.metric_tags = tags("a", "", 77)), both);
    assert_eq!(desire(|it| it.metric_tags = tags("a", "x", 77)), "taken");
    let named = desire(|it| {
        it.metrics_guid = "m".into();
        it.metric_tags = tags("a", "x", 0);
    });
    let source = "Invalid field: metric_tags, Invalid field: source_id should match metrics_guid";
    assert_eq!(named, source, "whose metrics they are has to be in the tags");
    let routes = m::ProtoRoutes { routes: [("r".into(), b"{".to_vec())].into() };
    assert_eq!(desire(|it| it.routes = Some(routes)), "Invalid field: routes");
    let check = m::CheckDefinition { checks: vec![m::Check::default()], ..Default::default() };
    assert_eq!(
        desire(|it| it.check_definition = Some(check)),
        "Invalid field: check_definition, Invalid field: port"
    );
    let several = desire(|it| {
        it.domain.clear();
        it.memory_mb = -5;
        it.action = None;
    });
    assert_eq!(several, "Invalid field: domain, Invalid field: memory_mb, invalid action type");
}

#[test]
fn what_is_missing_is_said() {
    let missing = told::<DesireLrpRequest>(&m::DesireLrpRequest::default());
    assert_eq!(missing, "Invalid field: desired_lrp");
    let update = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: None };
    assert_eq!(told::<UpdateDesiredLrpRequest>(&update), "Invalid field: update");
    let task =
        m::DesireTaskRequest { task_guid: "t".into(), domain: "d".into(), ..Default::default() };
    assert_eq!(told::<DesireTaskRequest>(&task), "Invalid field: task_definition");
    assert_eq!(
        told::<StartActualLrpRequest>(&m::StartActualLrpRequest::default()),
        "Invalid field: actual_lrp_key, Invalid field: actual_lrp_instance_key, \
         Invalid field: actual_lrp_net_info"
    );
    let half = m::EvacuateClaimedActualLrpRequest {
        actual_lrp_key: Some(m::ActualLrpKey { index: -1, ..Default::default() }),
        actual_lrp_instance_key: Some(m::ActualLrpInstanceKey::default()),
    };
    assert_eq!(
        told::<ActualLrpInstanceRequest>(&half),
        "Invalid field: process_guid, Invalid field: index, Invalid field: domain, \
         Invalid field: cell_id, Invalid field: instance_guid"
    );
    assert_eq!(
        told::<RetireActualLrpRequest>(&m::RetireActualLrpRequest::default()),
        "Invalid field: actual_lrp_key"
    );
    assert_eq!(
        told::<ClaimActualLrpRequest>(&m::ClaimActualLrpRequest::default()),
        "Invalid field: process_guid, Invalid field: actual_lrp_instance_key"
    );
    assert_eq!(
        told::<FailActualLrpRequest>(&m::FailActualLrpRequest::default()),
        "Invalid field: actual_lrp_key, Invalid field: error_message"
    );
    let reject = m::RejectTaskRequest { task_guid: "t".into(), ..Default::default() };
    assert_eq!(told::<RejectTaskRequest>(&reject), "Invalid field: failure_reason");
    assert_eq!(
        told::<CompleteTaskRequest>(&m::CompleteTaskRequest::default()),
        "Invalid field: task_guid, Invalid field: cell_id"
    );
    assert_eq!(
        told::<UpsertDomainRequest>(&m::UpsertDomainRequest::default()),
        "Invalid field: domain"
    );
}

#[test]
fn too_much_is_refused_before_it_is_read() {
    let long = vec![0; JSON_BYTES + 1];
    assert!(matches!(DesireLrpRequest::from_diego(&long), Err(DiegoDecodeError::TooLarge(_))));
    let mut deep = action();
    for _ in 0..16 {
        let inner = m::TryAction { action: Some(deep), ..Default::default() };
        deep = m::Action { try_action: Some(Box::new(inner)), ..Default::default() };
    }
    assert!(desire(|it| it.action = Some(deep.clone())).starts_with("Invalid field: action"));
    for _ in 0..40 {
        let inner = m::TryAction { action: Some(deep), ..Default::default() };
        deep = m::Action { try_action: Some(Box::new(inner)), ..Default::default() };
    }
    assert_eq!(desire(|it| it.action = Some(deep)), PrecheckError::Deep.to_string());
    // Names that are no text, and a number where a message is wanted.
    for wrong in [&[0x0a, 0x02, 0xff, 0xfe][..], &[0x08, 0x01]] {
        assert_eq!(
            UpsertDomainRequest::from_diego(wrong),
            Err(DiegoDecodeError::Undecodable),
            "{wrong:?}"
        );
    }
}

#[test]
fn what_a_program_said_need_not_be_text() {
    let complete = m::CompleteTaskRequest {
        task_guid: "t".into(),
        cell_id: "c".into(),
        result: "XX and more".into(),
        ..Default::default()
    };
    let mut bytes = complete.encode_to_vec();
    let at = bytes.windows(2).position(|it| it == b"XX").unwrap();
    bytes[at..at + 2].copy_from_slice(&[0xff, 0xfe]);
    let read = CompleteTaskRequest::from_diego(&bytes).unwrap();
    assert_eq!((read.task_guid.as_str(), read.result.as_str()), ("t", "\u{fffd}\u{fffd} and more"));
    // A name that is none is not made one.
    let at = bytes.iter().position(|it| *it == b't').unwrap();
    bytes[at] = 0xff;
    assert_eq!(CompleteTaskRequest::from_diego(&bytes), Err(DiegoDecodeError::Undecodable));
    // Cut anywhere, it is refused or read, and never worse.
    for end in 0..bytes.len() {
        let _ = CompleteTaskRequest::from_diego(&bytes[..end]);
    }
}
