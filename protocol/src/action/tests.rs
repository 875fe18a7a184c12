//! Tests of the action tree: names, rules and both encodings, as data.

use super::*;
use crate::definition::tests::{check, round_trip};
use crate::limits::ACTION_COUNT;
use crate::validate::Valid;
use crate::wire::{decode_frame, decode_json, encode_frame};

fn read(text: &str) -> Result<Action, String> {
    let without_place =
        |text: String| text.split(" at line ").next().unwrap_or_default().to_owned();
    decode_json(text.as_bytes()).map_err(|error| without_place(error.to_string()))
}

fn run() -> Action {
    let (path, user) = ("/a".to_owned(), "u".to_owned());
    Action::Run(Box::new(RunAction { path, user, ..RunAction::default() }))
}

/// A run action inside of so many try actions, less one.
fn nested(depth: usize) -> Action {
    (1..depth).fold(run(), |inner, _| {
        Action::Try(Box::new(TryAction { action: Some(inner), log_source: String::new() }))
    })
}

#[test]
fn every_kind_has_its_key() {
    let rows = [
        (r#"{"download":{"from":"","to":"","cache_key":"","user":""}}"#, 0),
        (r#"{"upload":{"from":"","to":"","user":""}}"#, 1),
        (
            r#"{"run":{"path":"","user":"","suppress_log_output":false,"volume_mounted_files":[]}}"#,
            2,
        ),
        (r#"{"timeout":{"timeout_ms":0}}"#, 3),
        (
            r#"{"emit_progress":{"start_message":"","success_message":"","failure_message_prefix":""}}"#,
            4,
        ),
        (r#"{"try":{}}"#, 5),
        (r#"{"parallel":{}}"#, 6),
        (r#"{"serial":{}}"#, 7),
        (r#"{"codependent":{}}"#, 8),
    ];
    assert_eq!(rows.len(), Action::KEYS.len());
    for (text, number) in rows {
        let action: Action = round_trip(text);
        assert_eq!(action.key(), Action::KEYS[number]);
        assert_eq!(usize::from(encode_frame(&action).unwrap()[1]), number, "the binary number");
    }
}

#[test]
fn an_action_has_exactly_one_key() {
    const KEYS: &str =
        "download, upload, run, timeout, emit_progress, try, parallel, serial, codependent";
    let rows = [
        ("{}", format!(".: an action needs one of {KEYS}")),
        (r#"{"run":null}"#, format!(".: an action needs one of {KEYS}")),
        (
            r#"{"walk":{}}"#,
            format!(".: unknown field `walk`, expected one of `{}`", KEYS.replace(", ", "`, `")),
        ),
        (
            r#"{"try":{},"serial":{}}"#,
            ".: `serial` is one too many: an action has exactly one key".to_owned(),
        ),
        (
            "[]",
            format!(".: invalid type: sequence, expected an action: an object with one of {KEYS}"),
        ),
        (
            r#"{"serial":{"actions":[null]}}"#,
            format!(
                "serial.actions[0]: invalid type: null, expected an action: an object with one of {KEYS}"
            ),
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(read(text).unwrap_err(), expected, "for {text}");
    }
    assert_eq!(read(r#"{"run":null,"try":{},"serial":null}"#).unwrap().key(), "try");
}

#[test]
fn actions_keep_their_rules() {
    check::<Action>(
        "{}",
        &[
            (r#"{"run":{"path":"/a","user":"u"}}"#, ""),
            (r#"{"run":{}}"#, "run.path: must not be empty, run.user: must not be empty"),
            (
                r#"{"run":{"path":"/a","user":"u","args":["a\u0000"]}}"#,
                "run.args[0]: must not contain a zero byte",
            ),
            (r#"{"run":{"path":"/a\u0000","user":"u"}}"#, "run.path: must not contain a zero byte"),
            (
                r#"{"run":{"path":"/a","user":"u","env":[{"name":""}]}}"#,
                "run.env[0].name: must not be empty",
            ),
            (
                r#"{"run":{"path":"/a","user":"u","resource_limits":{"nofile":-1}}}"#,
                "run.resource_limits.nofile: invalid value: integer `-1`, expected u64",
            ),
            (
                r#"{"download":{}}"#,
                "download.from: must not be empty, download.to: must not be empty, \
                 download.user: must not be empty",
            ),
            (
                r#"{"download":{"from":"a","to":"b","user":"u","checksum_value":"0"}}"#,
                "download.checksum_algorithm: must be set when there is a checksum_value",
            ),
            (
                r#"{"download":{"from":"a","to":"b","user":"u","checksum_algorithm":"md5"}}"#,
                "download.checksum_value: must be set when there is a checksum_algorithm",
            ),
            (
                r#"{"download":{"from":"a","to":"b","user":"u","checksum_algorithm":"x","checksum_value":"0"}}"#,
                r#"download.checksum_algorithm: must be md5, sha1 or sha256, not "x""#,
            ),
            (
                r#"{"upload":{}}"#,
                "upload.from: must not be empty, upload.to: must not be empty, \
                 upload.user: must not be empty",
            ),
            (
                r#"{"timeout":{"action":{"run":{"path":"/a","user":"u"}}}}"#,
                "timeout.timeout_ms: is 0, must be 1 to 31622400000",
            ),
            (r#"{"timeout":{"timeout_ms":1}}"#, "timeout.action: must be given"),
            (r#"{"try":{}}"#, "try.action: must be given"),
            (r#"{"emit_progress":{}}"#, "emit_progress.action: must be given"),
            (r#"{"parallel":{}}"#, "parallel.actions: must not be empty"),
            (r#"{"serial":{"actions":null}}"#, "serial.actions: must not be empty"),
            (r#"{"codependent":{"actions":[]}}"#, "codependent.actions: must not be empty"),
            (
                r#"{"serial":{"actions":[{"run":{"path":"/a","user":"u"}},{"try":{"action":{"run":{"path":"/a"}}}}]}}"#,
                "serial.actions[1].try.action.run.user: must not be empty",
            ),
        ],
    );
}

#[test]
fn a_tree_has_a_last_level_in_both_encodings() {
    let deepest = nested(ACTION_DEPTH);
    let json = serde_json::to_string(&deepest).unwrap();
    assert_eq!(round_trip::<Action>(&json), deepest);
    assert!(Valid::new(deepest).is_ok());

    let too_deep = nested(ACTION_DEPTH + 1);
    let text = read(&serde_json::to_string(&too_deep).unwrap()).unwrap_err();
    assert!(text.ends_with("actions are nested deeper than 16"), "{text}");
    assert!(decode_frame::<Action>(&encode_frame(&too_deep).unwrap()).is_err());
    let text = Valid::new(too_deep).unwrap_err().to_string();
    assert!(text.ends_with("action: is nested deeper than 16"), "{text}");

    // The count of levels is given back, after a refusal too.
    assert!(read(&serde_json::to_string(&nested(ACTION_DEPTH)).unwrap()).is_ok());
}

#[test]
fn a_tree_has_a_last_branch() {
    let wide = |count| {
        let actions = vec![run(); count];
        Action::Parallel(Box::new(ParallelAction { actions, log_source: String::new() }))
    };
    assert!(Valid::new(wide(ACTION_COUNT - 1)).is_ok());
    let text = Valid::new(wide(ACTION_COUNT)).unwrap_err().to_string();
    assert_eq!(text, ": has more than 256 actions");
}

#[test]
fn arguments_have_an_end() {
    let mut action = RunAction { args: vec![String::new(); 4097], ..RunAction::default() };
    (action.path, action.user) = ("/a".to_owned(), "u".to_owned());
    let text = Valid::new(action.clone()).unwrap_err().to_string();
    assert_eq!(text, "args: has 4097 entries, the limit is 4096");
    action.args = vec!["x".repeat(131_073)];
    let text = Valid::new(action).unwrap_err().to_string();
    assert_eq!(text, "args[0]: has 131073 bytes, the limit is 131072");
}
