//! Cancelling each action, at each of its moments.

use super::*;

#[test]
fn before_the_beginning_nothing_is_run() {
    for action in [
        run("/a"),
        download(""),
        upload(""),
        timeout(1, run("/a")),
        tried(run("/a")),
        parallel(vec![run("/a"), run("/b")]),
        serial_of(vec![run("/a"), run("/b")]),
        codependent(vec![run("/a"), run("/b")]),
    ] {
        check(
            &only(action),
            "cancel => stopped
             begin =>",
        );
    }
    check(
        &only(progress(run("/a"))),
        "cancel => P! went wrong | stopped
         begin =>",
    );
}

#[test]
fn a_process_is_asked_then_forced_then_given_up() {
    check_all(
        &only(run("/a")),
        &[
            "begin => spawn 1 /a
             started 1 => routable | ready
             cancel => term 1 | timer 2 10s
             cancel =>
             exit 1 0 => APP: Exit status 0 | untimer 2 | stopped",
            "begin => spawn 1 /a
             started 1 => routable | ready
             cancel => term 1 | timer 2 10s
             fire 2 => kill 1 | timer 3 30s
             exit 1 137 => APP: Exit status 137 (exceeded 10s graceful shutdown interval) \
                | untimer 3 | stopped",
            "begin => spawn 1 /a
             started 1 => routable | ready
             cancel => term 1 | timer 2 10s
             fire 2 => kill 1 | timer 3 30s
             exit 1 137 oom => APP: Exit status 137 (exceeded 10s graceful shutdown interval) \
                (out of memory) | untimer 3 | stopped",
            "begin => spawn 1 /a
             started 1 => routable | ready
             cancel => term 1 | timer 2 10s
             fire 2 => kill 1 | timer 3 30s
             fire 3 => APP: Exit status unknown (did not exit within 30s of being killed) | stopped
             exit 1 137 =>",
        ],
    );
}

#[test]
fn an_end_that_is_told_late_is_not_called_late() {
    check_all(
        &only(run("/a")),
        &["143", "0", "1"]
            .map(|status| {
                format!(
                    "begin => spawn 1 /a
                     started 1 => routable | ready
                     cancel => term 1 | timer 2 10s
                     fire 2 => kill 1 | timer 3 30s
                     exit 1 {status} => APP: Exit status {status} | untimer 3 | stopped"
                )
            })
            .each_ref()
            .map(String::as_str),
    );
}

#[test]
fn a_quiet_process_that_is_given_up_has_no_line() {
    check(
        &only(quiet_run("/a")),
        "begin => spawn 1 /a discard
         started 1 => routable | ready
         cancel => term 1 | timer 2 10s
         fire 2 => kill 1 | timer 3 30s
         fire 3 => stopped",
    );
}

#[test]
fn a_process_that_is_being_made_is_signalled_once_it_is_there() {
    check_all(
        &only(run("/a")),
        &[
            "begin => spawn 1 /a
             cancel =>
             started 1 => term 1 | timer 2 10s
             exit 1 143 => APP: Exit status 143 | untimer 2 | stopped",
            "begin => spawn 1 /a
             cancel =>
             nospawn 1 x => APP: failed-creating-process: x | stopped",
            "begin => spawn 1 /a
             cancel =>
             exit 1 0 => APP: Exit status 0 | stopped",
        ],
    );
}

#[test]
fn a_transfer_is_broken_off_and_waited_for() {
    for (action, start) in [(download("x"), "Downloading"), (upload("x"), "Uploading")] {
        let verb = if start == "Uploading" { "upload" } else { "download" };
        for end in ["moved 1 5", "unfetched 1", "unsent 1", "uncopied 1 y"] {
            let script = format!(
                "begin => APP: {start} x... | {verb} 1 | routable | ready
                 cancel => abort 1
                 cancel =>
                 {end} => stopped"
            );
            check(&only(action.clone()), &script);
        }
    }
}

#[test]
fn a_timeout_passes_it_on_and_counts_no_longer() {
    check(
        &only(timeout(2_000, run("/a"))),
        "begin => timer 1 2s | spawn 2 /a
         started 2 => routable | ready
         cancel => untimer 1 | term 2 | timer 3 10s
         fire 1 =>
         exit 2 143 => APP: Exit status 143 | untimer 3 | stopped",
    );
    check(
        &only(timeout(2_000, run("/a"))),
        "begin => timer 1 2s | spawn 2 /a
         started 2 => routable | ready
         fire 1 => term 2 | timer 3 10s
         cancel =>
         exit 2 143 => APP: Exit status 143 | untimer 3 | stopped",
    );
}

#[test]
fn later_steps_of_a_serial_never_start() {
    for first in [tried(run("/a")), parallel(vec![run("/a")]), codependent(vec![run("/a")])] {
        check(
            &only(serial_of(vec![first, run("/b")])),
            "begin => spawn 1 /a
             started 1 =>
             cancel => term 1 | timer 2 10s
             exit 1 0 => APP: Exit status 0 | untimer 2 | stopped",
        );
    }
    check(
        &only(serial_of(vec![download(""), run("/b")])),
        "begin => download 1
         cancel => abort 1
         moved 1 5 => stopped",
    );
}

#[test]
fn all_members_of_a_group_hear_of_it() {
    for action in [
        parallel(vec![run("/a"), run("/b"), download("")]),
        codependent(vec![run("/a"), run("/b"), download("")]),
    ] {
        check(
            &only(action),
            "begin => spawn 1 /a | spawn 2 /b | download 3
             started 1 =>
             cancel => term 1 | timer 4 10s | abort 3
             started 2 => term 2 | timer 5 10s
             unfetched 3 =>
             exit 2 143 => APP: Exit status 143 | untimer 5
             fire 4 => kill 1 | timer 6 30s
             fire 6 => APP: Exit status unknown (did not exit within 30s of being killed) | stopped",
        );
    }
}

#[test]
fn a_failure_that_came_before_the_stop_is_no_failure_any_more() {
    check(
        &only(parallel(vec![run("/a"), run("/b")])),
        "begin => spawn 1 /a | spawn 2 /b
         started 1 =>
         started 2 => routable | ready
         exit 1 9 => APP: Exit status 9
         cancel => term 2 | timer 3 10s
         exit 2 143 => APP: Exit status 143 | untimer 3 | stopped",
    );
}

#[test]
fn a_process_that_will_not_exit_is_told_when_nobody_asked_for_a_stop() {
    check(
        &only(codependent(vec![run("/a"), run("/b")])),
        "begin => spawn 1 /a | spawn 2 /b
         started 1 =>
         started 2 => routable | ready
         exit 1 9 => APP: Exit status 9 | term 2 | timer 3 10s
         fire 3 => kill 2 | timer 4 30s
         fire 4 => APP: Exit status unknown (did not exit within 30s of being killed) \
            | failed APP: Exited with status 9; process did not exit",
    );
}
