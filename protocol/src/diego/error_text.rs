//! Complaints in the BBS's words. Ours name a path and a rule; the BBS's name fields, the outer before the
//! inner, with commas between them, and clients may look for these texts.

use crate::validate::Complaint;

/// Parts of a request that the BBS does not name before what is wrong inside of them.
const SILENT: [&str; 6] = [
    "desired_lrp",
    "task_definition",
    "update",
    "actual_lrp_key",
    "actual_lrp_instance_key",
    "actual_lrp_net_info",
];
/// Keys of a JSON action that say what kind it is. Between two messages there is no such key.
const KINDS: [&str; 9] = [
    "download",
    "upload",
    "run",
    "timeout",
    "emit_progress",
    "try",
    "parallel",
    "serial",
    "codependent",
];

/// All complaints, as one text.
pub fn told<'a>(complaints: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut outer_before = "";
    for (path, rule) in complaints {
        let (outer, mut inner) = one(path, rule);
        let silent = SILENT.iter().any(|part| path.starts_with(part));
        let until =
            path.match_indices('.').nth(usize::from(silent)).map_or(path.len(), |(at, _)| at);
        let place = &path[..until];
        // The outer field is named once for all that is wrong inside of it.
        if let Some(outer) = outer
            && place != outer_before
        {
            texts.push(field(&outer));
        }
        outer_before = place;
        texts.append(&mut inner);
    }
    texts.join(", ")
}

/// As [`told`], of what a record's own rules found.
pub fn complaints(given: &[Complaint]) -> String {
    told(given.iter().map(|it| (it.path.as_str(), it.rule.as_str())))
}

fn field(name: &str) -> String {
    format!("Invalid field: {name}")
}

/// The outer field, if the BBS names one, and the texts of one complaint.
fn one(path: &str, rule: &str) -> (Option<String>, Vec<String>) {
    let parts: Vec<&str> = path.split('.').map(without_index).collect();
    let is_task = parts.first() == Some(&"task_definition");
    let parts = match parts.as_slice() {
        [place, rest @ ..] if SILENT.contains(place) && !rest.is_empty() => rest,
        all => all,
    };
    let missing = rule == "must be given";
    let text = |text: &str| (None, vec![text.to_owned()]);
    match parts {
        ["action"] if missing => text("invalid action type"),
        ["rootfs"] if rule == "must not be empty" => (None, vec![field("rootfs"); 2]),
        ["env", "name"] if rule == "must not be empty" => {
            text("invalid field: name cannot be blank")
        }
        ["process_guids"] if rule == "must not be empty" => text("process_guids must not be empty"),
        ["volume_mounted_files", ..] => (None, vec![field("volumeMountedFiles")]),
        ["log_rate_limit", ..] if is_task => (None, vec![field("log_rate_limit")]),
        ["log_rate_limit", ..] => (None, vec![field("log_rate_limit_bytes_per_second")]),
        ["volume_mounts", rest @ ..] => (None, vec![volume_mount(rest)]),
        ["egress_rules", ..] if is_task => (None, vec![field("egress_rules")]),
        // A tag's name may have dots in it.
        ["metric_tags", _, .., "static"] => {
            (Some("metric_tags".to_owned()), vec![field("static"), field("dynamic")])
        }
        ["metric_tags", "source_id"] => {
            (Some("metric_tags".to_owned()), vec![field("source_id should match metrics_guid")])
        }
        [name] => (None, vec![field(name)]),
        [outer, inner @ ..] => (Some(named(outer)), inside(inner, rule)),
        [] => (None, Vec::new()),
    }
}

/// What the BBS calls an outer field.
fn named(outer: &str) -> String {
    match outer {
        "cached_dependencies" => "cached_dependency".to_owned(),
        "image_layers" => "image_layer".to_owned(),
        other => other.to_owned(),
    }
}

fn inside(parts: &[&str], rule: &str) -> Vec<String> {
    // Of actions inside of each other only the innermost field is named.
    let last = parts.iter().rev().copied().find(|part| !KINDS.contains(part)).unwrap_or_default();
    let text = match last {
        "checksum_algorithm" if rule.starts_with("must be set") => field("checksum algorithm"),
        "checksum_algorithm" => field("invalid algorithm"),
        "checksum_value" => field("checksum value"),
        "ports" if rule.contains("are needed") => {
            "Missing required field: ports or port_range".to_owned()
        }
        "port_range" if rule.contains("beside ports") => {
            "Invalid: ports and port_range provided".to_owned()
        }
        "checks" | "readiness_checks" if rule.contains("not both") => field("check"),
        "" => field("inner-action"),
        name if parts == ["action"] && rule == "must be given" && name == "action" => {
            "invalid action type".to_owned()
        }
        "name" if parts.contains(&"env") => "invalid field: name cannot be blank".to_owned(),
        name => field(name),
    };
    vec![text]
}

fn volume_mount(parts: &[&str]) -> String {
    let what = match parts.last().copied().unwrap_or_default() {
        "mode" => "mode",
        "volume_id" => "volume id",
        "mounter_id" => "mounter id",
        "driver" => "driver",
        other => return field(if other.is_empty() { "volume_mounts" } else { other }),
    };
    format!("invalid volume_mount {what}")
}

/// `actions` of `actions[3]`.
fn without_index(part: &str) -> &str {
    part.split('[').next().unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_as_the_bbs_tells_them() {
        for (path, rule, expected) in [
            ("desired_lrp.domain", "domain must not be empty", "Invalid field: domain"),
            (
                "desired_lrp.rootfs",
                "must not be empty",
                "Invalid field: rootfs, Invalid field: rootfs",
            ),
            ("desired_lrp.action", "must be given", "invalid action type"),
            (
                "desired_lrp.action.run.path",
                "must not be empty",
                "Invalid field: action, Invalid field: path",
            ),
            (
                "desired_lrp.setup.serial.actions[2].download.checksum_algorithm",
                "must be md5, sha1 or sha256, not \"x\"",
                "Invalid field: setup, Invalid field: invalid algorithm",
            ),
            (
                "task_definition.action.inner-action",
                "exactly one action is wanted, not 0",
                "Invalid field: action, Invalid field: inner-action",
            ),
            ("desired_lrp.env[0].name", "must not be empty", "invalid field: name cannot be blank"),
            (
                "desired_lrp.egress_rules[1].ports",
                "ports or a port_range are needed for tcp",
                "Invalid field: egress_rules, Missing required field: ports or port_range",
            ),
            ("task_definition.egress_rules[1].ports", "x", "Invalid field: egress_rules"),
            (
                "desired_lrp.volume_mounts[0].mode",
                "must be r or rw, not \"x\"",
                "invalid volume_mount mode",
            ),
            (
                "desired_lrp.log_rate_limit.bytes_per_second",
                "is -2",
                "Invalid field: log_rate_limit_bytes_per_second",
            ),
            (
                "task_definition.log_rate_limit.bytes_per_second",
                "",
                "Invalid field: log_rate_limit",
            ),
            (
                "desired_lrp.check_definition.checks[0]",
                "is one of tcp_check and http_check, not both",
                "Invalid field: check_definition, Invalid field: check",
            ),
            (
                "desired_lrp.sidecars[0].action",
                "must be given",
                "Invalid field: sidecars, invalid action type",
            ),
            ("actual_lrp_key", "must be given", "Invalid field: actual_lrp_key"),
            ("actual_lrp_net_info.address", "must not be empty", "Invalid field: address"),
            (
                "desired_lrp.metric_tags.source_id",
                "must be static and equal to metrics_guid \"m\"",
                "Invalid field: metric_tags, Invalid field: source_id should match metrics_guid",
            ),
            (
                "update.metric_tags.source_id.static",
                "must not be empty",
                "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic",
            ),
            (
                "desired_lrp.metric_tags.a.tag.with.dots.static",
                "must not be given beside dynamic",
                "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic",
            ),
            ("desired_lrp", "must be given", "Invalid field: desired_lrp"),
            ("process_guids", "must not be empty", "process_guids must not be empty"),
        ] {
            assert_eq!(told([(path, rule)]), expected, "{path}: {rule}");
        }
    }

    #[test]
    fn an_outer_field_is_named_once() {
        let both = [
            ("desired_lrp.action.run.path", "must not be empty"),
            ("desired_lrp.action.run.user", "must not be empty"),
        ];
        let expected = "Invalid field: action, Invalid field: path, Invalid field: user";
        assert_eq!(told(both), expected);
    }
}
