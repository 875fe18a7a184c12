//! The table of instances.

use super::*;

fn lrp(app: &str, index: u32, definition: &str, state: &str, more: Value) -> Arc<ActualLrp> {
    let mut value = json!({
        "process_guid": app, "index": index, "domain": "d", "definition_id": definition,
        "state": state, "instance_guid": "g", "cell_id": "cell-1", "since": 60_000_000_000_u64,
        "crash_count": 0,
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    Arc::new(serde_json::from_value(value).unwrap())
}

fn port(container: u32, host: u32) -> Value {
    json!({
        "container_port": container, "host_port": host, "container_tls_proxy_port": 0,
        "host_tls_proxy_port": 0,
    })
}

fn shown(found: &Instances) -> String {
    table(Timestamp::from_secs(100), found).render(false, usize::MAX)
}

#[test]
fn instances_are_shown_with_what_holds_them_up() {
    let found = vec![
        lrp("web", 1, "v1", "UNCLAIMED", json!({"cell_id": "", "placement_error": "no room"})),
        lrp(
            "web",
            0,
            "v1",
            "RUNNING",
            json!({"address": "10.0.0.1", "ports": [port(80, 61_001), port(81, 61_002)]}),
        ),
        lrp("api", 0, "v1", "CRASHED", json!({"crash_count": 3, "crash_reason": "exit 1"})),
        lrp("api", 1, "v1", "CLAIMED", json!({"stopping": true, "presence": "SUSPECT"})),
    ];
    let expected = "\
APP  INDEX  STATE      CELL    ADDRESS               SINCE  CRASHES  NOTE
api  0      CRASHED    -       -                     40s    3        exit 1
api  1      CLAIMED    cell-1  -                     40s    0        its cell is missing, stopping
web  0      RUNNING    cell-1  10.0.0.1:61001,61002  40s    0
web  1      UNCLAIMED  -       -                     40s    0        no room
";
    assert_eq!(shown(&found), expected);
}

#[test]
fn while_an_update_rolls_definitions_are_shown() {
    let found = vec![
        lrp("web", 0, "v1", "RUNNING", json!({"address": "::1"})),
        lrp("web", 0, "v2", "CLAIMED", json!({})),
        lrp("api", 0, "v7", "RUNNING", json!({"address": "10.0.0.1", "routable": false})),
    ];
    let expected = "\
APP  INDEX  STATE    CELL    ADDRESS   SINCE  CRASHES  DEFINITION  NOTE
api  0      RUNNING  cell-1  10.0.0.1  40s    0                    not ready
web  0      RUNNING  cell-1  [::1]     40s    0        v1
web  0      CLAIMED  cell-1  -         40s    0        v2
";
    assert_eq!(shown(&found), expected);
}

#[test]
fn nothing_is_a_head_alone() {
    assert_eq!(shown(&Vec::new()), "APP  INDEX  STATE  CELL  ADDRESS  SINCE  CRASHES\n");
}

#[test]
fn the_address_that_is_preferred_is_shown() {
    let net: NetInfo = serde_json::from_value(json!({
        "address": "10.0.0.1", "ports": [port(80, 61_001)], "instance_address": "10.255.0.2",
        "preferred_address": "INSTANCE", "instance_ipv6_address": "",
    }))
    .unwrap();
    assert_eq!(address(&net), "10.255.0.2:80");
}
