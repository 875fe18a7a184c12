//! Monitor, liveness and readiness.

use std::time::Duration;

use volvox_protocol::definition::CheckDefinition;

use super::*;

fn monitored(start_timeout_ms: u64) -> StepSpec {
    StepSpec {
        monitor: Some(run("/m")),
        start_timeout: Duration::from_millis(start_timeout_ms),
        ..only(run("/a"))
    }
}

fn checked(checks: Vec<Check>, readiness_checks: Vec<Check>) -> StepSpec {
    let log_source = "HEALTH".into();
    StepSpec {
        check_definition: Some(CheckDefinition { checks, log_source, readiness_checks }),
        monitor: Some(run("/ignored")),
        start_timeout: Duration::from_secs(60),
        ..only(run("/a"))
    }
}

/// The beginning of a monitored container that becomes healthy at its second check.
const HEALTHY: &str = "
    begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
    started 1 =>
    fire 2 => spawn 3 /m capture
    started 3 =>
    exit 3 1 not yet => timer 4 500ms
    fire 4 => spawn 5 /m capture
    started 5 =>
    exit 5 0 => APP: Container became healthy | timer 6 30s | routable | ready
    fire 6 => spawn 7 /m capture
    started 7 =>
    exit 7 0 => timer 8 30s
";

#[test]
fn a_monitor_polls_fast_then_slowly_and_one_failure_ends_it() {
    check(
        &monitored(0),
        &format!(
            "{HEALTHY}
             fire 8 => spawn 9 /m capture
             exit 9 1 port is closed => APP! port is closed | APP! Container became unhealthy \
                | term 1 | timer 10 10s
             exit 1 143 => APP: Exit status 143 | untimer 10 \
                | failed Instance became unhealthy: port is closed"
        ),
    );
    check(
        &monitored(0),
        &format!(
            "{HEALTHY}
             fire 8 => spawn 9 /m capture
             nospawn 9 no room => APP! no room | APP! Container became unhealthy \
                | term 1 | timer 10 10s"
        ),
    );
}

#[test]
fn the_start_limit_is_looked_at_after_a_failed_check() {
    let spec = monitored(900);
    check(
        &spec,
        "begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
         started 1 =>
         fire 2 => spawn 3 /m capture
         exit 3 1 => timer 4 500ms
         fire 4 => spawn 5 /m capture
         exit 5 1 => APP! APP: Exited with status 1 \
            | APP! Failed after 1s: startup health check never passed. | term 1 | timer 6 10s
         exit 1 143 => APP: Exit status 143 | untimer 6 \
            | failed Instance never healthy after 1s: APP: Exited with status 1",
    );
    // A check that passes late still passes.
    check(
        &spec,
        "begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
         started 1 =>
         fire 2 => spawn 3 /m capture
         exit 3 1 => timer 4 500ms
         fire 4 => spawn 5 /m capture
         exit 5 0 => APP: Container became healthy | timer 6 30s | routable | ready",
    );
}

#[test]
fn an_action_that_exits_well_is_a_daemon_while_a_monitor_looks_after_it() {
    check(
        &monitored(0),
        &format!(
            "{HEALTHY}
             exit 1 0 => APP: Exit status 0
             fire 8 => spawn 9 /m capture
             exit 9 1 gone => APP! gone | APP! Container became unhealthy \
                | failed Instance became unhealthy: gone"
        ),
    );
    check(
        &monitored(0),
        "begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
         exit 1 0 => APP: Exit status 0
         fire 2 => spawn 3 /m capture
         exit 3 0 => APP: Container became healthy | timer 4 30s | routable | ready",
    );
}

#[test]
fn an_action_that_fails_takes_the_monitor_with_it() {
    check_all(
        &monitored(0),
        &[
            &format!(
                "{HEALTHY}
                 exit 1 2 => APP: Exit status 2 | untimer 8 | failed APP: Exited with status 2"
            ),
            &format!(
                "{HEALTHY}
                 fire 8 => spawn 9 /m capture
                 started 9 =>
                 exit 1 2 => APP: Exit status 2 | term 9 | timer 10 10s
                 exit 9 0 => untimer 10 | failed APP: Exited with status 2"
            ),
        ],
    );
}

#[test]
fn a_monitored_container_can_be_stopped_at_any_moment() {
    check_all(
        &monitored(0),
        &[
            "begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
             started 1 =>
             cancel => term 1 | timer 3 10s | untimer 2
             exit 1 143 => APP: Exit status 143 | untimer 3 | stopped",
            &format!(
                "{HEALTHY}
                 cancel => term 1 | timer 9 10s | untimer 8
                 exit 1 143 => APP: Exit status 143 | untimer 9 | stopped"
            ),
            &format!(
                "{HEALTHY}
                 fire 8 => spawn 9 /m capture
                 started 9 =>
                 cancel => term 1 | timer 10 10s | term 9 | timer 11 10s
                 exit 1 143 => APP: Exit status 143 | untimer 10
                 exit 9 0 => untimer 11 | stopped"
            ),
        ],
    );
}

#[test]
fn a_monitor_may_be_any_action() {
    let monitor = timeout(1_000, parallel(vec![run("/m"), run("/n")]));
    check(
        &StepSpec { monitor: Some(monitor), ..only(run("/a")) },
        "begin => spawn 1 /a | APP: Starting health monitoring of container | timer 2 500ms
         started 1 =>
         fire 2 => timer 3 1s | spawn 4 /m capture | spawn 5 /n capture
         started 4 =>
         started 5 =>
         exit 4 0 =>
         fire 3 => term 5 | timer 6 10s
         exit 5 143 => untimer 6 | timer 7 500ms
         fire 7 => timer 8 1s | spawn 9 /m capture | spawn 10 /n capture
         exit 9 0 =>
         exit 10 0 => untimer 8 | APP: Container became healthy | timer 11 30s | routable | ready",
    );
}

#[test]
fn liveness_checks_replace_the_monitor() {
    let spec = checked(vec![tcp(8080, 0), http(9090, 250)], vec![]);
    let healthy = "
        begin => spawn 1 /a | HEALTH: Starting health monitoring of container | timer 2 60s \
            | check 3 tcp 8080 1s | check 4 http 9090 250ms
        started 1 =>
        fail 3 refused => timer 5 500ms
        pass 4 =>
        fire 5 => check 6 tcp 8080 1s
        pass 6 => untimer 2 | HEALTH: Container became healthy \
            | check 7 tcp 8080 1s | check 8 http 9090 250ms | routable | ready
        pass 7 => timer 9 30s
        pass 8 => timer 10 30s
        fire 9 => check 11 tcp 8080 1s";
    check_all(
        &spec,
        &[
            &format!(
                "{healthy}
                 fail 11 refused => untimer 10 | HEALTH! Liveness check unsuccessful: refused \
                    | HEALTH! Container became unhealthy | term 1 | timer 12 10s
                 exit 1 143 => APP: Exit status 143 | untimer 12 \
                    | failed Instance became unhealthy: Liveness check unsuccessful: refused"
            ),
            &format!(
                "{healthy}
                 cancel => term 1 | timer 12 10s | uncheck 11 | untimer 10
                 exit 1 143 => APP: Exit status 143 | untimer 12 | stopped"
            ),
            &format!(
                "{healthy}
                 exit 1 0 => APP: Exit status 0
                 cannot 11 no netns => untimer 10 \
                    | HEALTH! Liveness check unsuccessful: no netns \
                    | HEALTH! Container became unhealthy \
                    | failed Instance became unhealthy: Liveness check unsuccessful: no netns"
            ),
        ],
    );
}

#[test]
fn the_start_limit_of_checks_is_a_timer() {
    let spec = checked(vec![tcp(8080, 0), tcp(9090, 0), tcp(7070, 0)], vec![]);
    check(
        &spec,
        "begin => spawn 1 /a | HEALTH: Starting health monitoring of container | timer 2 60s \
            | check 3 tcp 8080 1s | check 4 tcp 9090 1s | check 5 tcp 7070 1s
         started 1 =>
         fail 3 refused => timer 6 500ms
         pass 5 =>
         fire 6 => check 7 tcp 8080 1s
         fail 7 refused => timer 8 500ms
         fire 2 => untimer 8 | uncheck 4 \
            | HEALTH! Timed out after 1m0s (2 attempts) waiting for startup check to succeed: \
              refused; Timed out after 1m0s (1 attempts) waiting for startup check to succeed: \
              no answer yet \
            | HEALTH! Failed after 1m0s: startup health check never passed. | term 1 | timer 9 10s
         pass 4 =>
         exit 1 143 => APP: Exit status 143 | untimer 9 \
            | failed Instance never healthy after 1m0s: \
              Timed out after 1m0s (2 attempts) waiting for startup check to succeed: refused; \
              Timed out after 1m0s (1 attempts) waiting for startup check to succeed: no answer yet",
    );
    check(
        &StepSpec { start_timeout: Duration::ZERO, ..spec },
        "begin => spawn 1 /a | HEALTH: Starting health monitoring of container \
            | check 2 tcp 8080 1s | check 3 tcp 9090 1s | check 4 tcp 7070 1s",
    );
}

#[test]
fn readiness_decides_about_traffic_and_never_ends_the_container() {
    let ready = "
        begin => spawn 1 /a
        started 1 => unroutable | ready | HEALTH: Starting readiness health monitoring of container \
            | check 2 tcp 8080 1s | check 3 http 9090 1s
        cannot 2 no netns => timer 4 500ms | HEALTH: Failed to run the readiness check
        pass 3 =>
        fire 4 => check 5 tcp 8080 1s
        cannot 5 no netns => timer 6 500ms
        fire 6 => check 7 tcp 8080 1s
        pass 7 => HEALTH: Container passed the readiness health check. Container marked ready and \
            added to route pool. | routable | check 8 tcp 8080 1s | check 9 http 9090 1s
        pass 8 => timer 10 7s
        fail 9 busy => untimer 10 | HEALTH! Readiness check unsuccessful: busy \
            | HEALTH: Container failed the readiness health check. Container marked not ready and \
            removed from route pool. | unroutable | check 11 tcp 8080 1s | check 12 http 9090 1s
        pass 11 =>
        fail 12 busy => timer 13 500ms";
    let spec = checked(vec![], vec![tcp(8080, 7_000), http(9090, 0)]);
    check_all(
        &spec,
        &[
            &format!(
                "{ready}
                 exit 1 1 => APP: Exit status 1 | untimer 13 | failed APP: Exited with status 1"
            ),
            &format!(
                "{ready}
                 exit 1 0 => APP: Exit status 0 | untimer 13 | done"
            ),
            &format!(
                "{ready}
                 cancel => term 1 | timer 14 10s | untimer 13
                 exit 1 143 => APP: Exit status 143 | untimer 14 | stopped"
            ),
        ],
    );
}

#[test]
fn readiness_waits_until_the_container_is_alive() {
    check(
        &checked(vec![tcp(8080, 0)], vec![tcp(8080, 0)]),
        "begin => spawn 1 /a | HEALTH: Starting health monitoring of container | timer 2 60s \
            | check 3 tcp 8080 1s
         started 1 =>
         pass 3 => untimer 2 | HEALTH: Container became healthy | check 4 tcp 8080 1s \
            | unroutable | ready | HEALTH: Starting readiness health monitoring of container \
            | check 5 tcp 8080 1s
         pass 5 => HEALTH: Container passed the readiness health check. Container marked ready and \
            added to route pool. | routable | check 6 tcp 8080 1s",
    );
}

#[test]
fn an_empty_check_definition_means_no_checks_at_all() {
    check(
        &checked(vec![], vec![]),
        "begin => spawn 1 /a
         started 1 => routable | ready
         exit 1 0 => APP: Exit status 0 | done",
    );
}
