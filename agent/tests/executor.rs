//! The executor on the real machine: every action, state, limit and failure, with real containers.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "executor/cell.rs"]
#[allow(dead_code, reason = "the tests of restarts use the rest")]
mod cell;
mod stage;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::executor::driver::CallError;
use volvox_agent::image::rootfs::Preloaded;
use volvox_protocol::action::*;
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::*;
use volvox_protocol::limits::RESULT_BYTES;
use volvox_protocol::task::TaskDefinition;

use cell::{Cell, Server, lrp, run, sh, tar, task, until, web};

fn serial(actions: Vec<Action>) -> Action {
    Action::Serial(Box::new(SerialAction { actions, ..SerialAction::default() }))
}

fn parallel(actions: Vec<Action>) -> Action {
    Action::Parallel(Box::new(ParallelAction { actions, ..ParallelAction::default() }))
}

fn codependent(actions: Vec<Action>) -> Action {
    Action::Codependent(Box::new(CodependentAction { actions, ..CodependentAction::default() }))
}

fn timeout(timeout_ms: u64, action: Action) -> Action {
    let action = Some(action);
    Action::Timeout(Box::new(TimeoutAction { action, timeout_ms, ..TimeoutAction::default() }))
}

fn tried(action: Action) -> Action {
    Action::Try(Box::new(TryAction { action: Some(action), ..TryAction::default() }))
}

fn download(url: &str, to: &str) -> DownloadAction {
    DownloadAction {
        artifact: "thing".into(),
        from: url.into(),
        to: to.into(),
        user: "vcap".into(),
        ..DownloadAction::default()
    }
}

fn http_check(interval_ms: u64) -> Check {
    Check::Http(HttpCheck { port: 8080, path: "/".into(), interval_ms, ..HttpCheck::default() })
}

#[test]
fn an_instance_lives_serves_stops_and_leaves_nothing() {
    let Some(cell) = Cell::new("an_instance_lives_serves_stops_and_leaves_nothing") else {
        return;
    };
    let events = cell.executor().subscribe().unwrap();
    let definition = LrpDefinition { ports: vec![8080], ..lrp(web()) };
    let guid = cell.start_lrp("web", definition);
    let view = cell.reaches(&guid, ContainerState::Running);
    assert!(view.container.routable);
    let port = u16::try_from(view.network.unwrap().ports[0].host_port).unwrap();
    let answer = until("the server answers", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    });
    assert!(answer.ends_with("ok"), "{answer}");
    cell.executor().stop(guid.clone()).unwrap();
    let result = cell.ends(&guid);
    assert!(result.stopped && !result.failed, "{result:?}");
    let log = cell.log_with(&guid, "APP Exit status 143");
    for line in ["creating container", "successfully created", "stopping instance"] {
        assert!(log.contains(&format!("Cell cell {line}")), "{log}");
    }
    assert!(log.contains("APP listening"), "{log}");
    cell.executor().delete(guid.clone()).unwrap();
    assert_eq!(cell.executor().container(guid.clone()).unwrap(), None);
    assert_eq!(cell.leftovers(), Vec::<String>::new());
    let told: Vec<String> = events.try_iter().map(|it| format!("{it:?}")).collect();
    for kind in ["Reserved", "Running", "Completed"] {
        assert_eq!(told.iter().filter(|it| it.starts_with(kind)).count(), 1, "{told:?}");
    }
    let again = cell.executor().delete(guid);
    assert!(matches!(again, Err(CallError::Refused(_))), "{again:?}");
}

#[test]
fn every_action_succeeds_and_fails_as_told() {
    let Some(cell) = Cell::new("every_action_succeeds_and_fails_as_told") else { return };
    let server = Server::new(tar("hello.txt", "hello"));
    let fetched = serial(vec![
        Action::Download(Box::new(download(&server.url, "/home/vcap/got"))),
        sh("test \"$(cat /home/vcap/got/hello.txt)\" = hello && test -O /home/vcap/got/hello.txt"),
    ]);
    let into_tmp = serial(vec![
        Action::Download(Box::new(download(&server.url, "/tmp/app"))),
        sh("test \"$(cat /tmp/app/hello.txt)\" = hello && touch /tmp/app/more /tmp/mine"),
    ]);
    let wrong = DownloadAction {
        checksum_algorithm: "sha256".into(),
        checksum_value: "00".repeat(32),
        ..download(&server.url, "/home/vcap/got")
    };
    let sent = Server::new(Vec::new());
    let upload = UploadAction {
        artifact: "report".into(),
        from: "/home/vcap/report".into(),
        to: format!("{}/up", sent.url),
        user: "vcap".into(),
        ..UploadAction::default()
    };
    let uploaded = serial(vec![
        sh("echo content > /home/vcap/report"),
        Action::Upload(Box::new(upload.clone())),
    ]);
    let progress = Action::EmitProgress(Box::new(EmitProgressAction {
        action: Some(sh("exit 7")),
        start_message: "going".into(),
        success_message: "went".into(),
        failure_message_prefix: "went wrong".into(),
        log_source: "P".into(),
    }));
    let limited = RunAction {
        resource_limits: Some(ResourceLimits { nofile: Some(33), ..ResourceLimits::default() }),
        dir: "/tmp".into(),
        env: vec![EnvironmentVariable { name: "OWN".into(), value: "x y".into() }],
        ..run(
            "/bin/sh",
            &[
                "-c",
                "test $(ulimit -n) = 33 && test $PWD = /tmp && test \"$OWN\" = 'x y' && test $(id -u) = 2000",
            ],
        )
    };
    let none: [(&str, Action, &str, &str); 17] = [
        ("run", sh("echo out; echo err >&2"), "", "APP out"),
        ("exit", sh("exit 3"), "APP: Exited with status 3", "APP Exit status 3"),
        ("signal", sh("kill -9 $$"), "APP: Exited with status 137", ""),
        (
            "missing",
            Action::Run(Box::new(run("/no/such", &[]))),
            "run /no/such",
            "failed-creating-process",
        ),
        ("limits", Action::Run(Box::new(limited)), "", ""),
        (
            "serial",
            serial(vec![sh("true"), sh("exit 4"), sh("echo never")]),
            "APP: Exited with status 4",
            "",
        ),
        (
            "parallel",
            parallel(vec![sh("exit 5"), sh("echo both")]),
            "APP: Exited with status 5",
            "APP both",
        ),
        (
            "codependent",
            codependent(vec![sh("exit 0"), sh("sleep 60")]),
            "Codependent step exited",
            "",
        ),
        ("timeout", timeout(300, sh("sleep 60")), "exceeded 300ms timeout", ""),
        ("in time", timeout(60_000, sh("true")), "", ""),
        ("try", tried(sh("exit 6")), "", ""),
        (
            "progress",
            progress,
            "APP: Exited with status 7",
            "P went wrong: APP: Exited with status 7",
        ),
        ("download", fetched, "", "Downloaded thing"),
        ("download into /tmp", into_tmp, "", "Downloaded thing"),
        ("checksum", Action::Download(Box::new(wrong)), "Downloading thing failed", ""),
        ("upload", uploaded, "", "Uploaded report"),
        ("nothing to send", Action::Upload(Box::new(upload)), "for report", ""),
    ];
    for (nth, (name, action, reason, line)) in none.into_iter().enumerate() {
        let (result, _, log) = cell.task(&format!("t{nth}"), task(action));
        assert_eq!(result.failed, !reason.is_empty(), "{name}: {result:?}\n{log}");
        assert!(result.failure_reason.contains(reason), "{name}: {result:?}\n{log}");
        assert!(log.contains(line), "{name}: {log}");
        assert!(!log.contains("APP never"), "{name}: {log}");
    }
    let sent = sent.requests.lock().unwrap();
    assert_eq!(sent.iter().map(|(_, body)| body.as_slice()).collect::<Vec<_>>(), [b"content\n"]);
}

#[test]
fn a_task_leaves_its_result_or_fails_with_the_reason() {
    let Some(cell) = Cell::new("a_task_leaves_its_result_or_fails_with_the_reason") else {
        return;
    };
    let with = |script: &str| TaskDefinition {
        result_file: "/home/vcap/result".into(),
        ..task(sh(&format!("cd /home/vcap; {script}")))
    };
    let (result, left, _) = cell.task("good", with("printf 42 > result"));
    assert_eq!((result.failed, left.as_str()), (false, "42"));
    let huge = format!("head -c {} /dev/zero | tr '\\0' x > result", RESULT_BYTES + 1);
    for (name, script) in [
        ("none", "true"),
        ("huge", huge.as_str()),
        ("folder", "mkdir result"),
        ("pipe", "mkfifo result"),
        ("outside", "ln -s /etc/shadow result"),
        ("binary", "printf '\\377\\376' > result"),
    ] {
        let (result, left, log) = cell.task(name, with(script));
        assert!(result.failed && !result.failure_reason.is_empty(), "{name}: {result:?}\n{log}");
        assert_eq!(left, "", "{name}");
    }
}

#[test]
fn setup_comes_first_and_sidecars_live_as_long() {
    let Some(cell) = Cell::new("setup_comes_first_and_sidecars_live_as_long") else { return };
    let sidecar = Sidecar { action: Some(sh("echo beside; sleep 600")), ..Sidecar::default() };
    let definition = LrpDefinition {
        setup: Some(sh("echo made > /home/vcap/made; echo setup")),
        sidecars: vec![sidecar.clone()],
        ..lrp(sh("cat /home/vcap/made; sleep 600"))
    };
    let guid = cell.start_lrp("both", definition.clone());
    cell.reaches(&guid, ContainerState::Running);
    until("all have spoken", || {
        let log = cell.log(&guid);
        let order = ["APP setup", "APP made", "APP beside"];
        order.iter().all(|it| log.contains(it)).then_some(())
    });
    let failing = LrpDefinition { setup: Some(sh("exit 9")), ..definition.clone() };
    let failed = cell.start_lrp("failing", failing);
    assert_eq!(cell.ends(&failed).failure_reason, "APP: Exited with status 9");
    assert!(!cell.log(&failed).contains("APP beside"), "nothing runs after a failed setup");
    let short = Sidecar { action: Some(sh("exit 8")), ..Sidecar::default() };
    let ended = cell.start_lrp("ended", LrpDefinition { sidecars: vec![short], ..definition });
    assert_eq!(cell.ends(&ended).failure_reason, "APP: Exited with status 8");
}

#[test]
fn a_monitor_decides_when_it_runs_and_when_it_has_failed() {
    let quick = |_: &mut _, settings: &mut volvox_agent::executor::logic::ExecutorSettings| {
        settings.steps.unhealthy_interval = Duration::from_millis(50);
        settings.steps.healthy_interval = Duration::from_millis(100);
    };
    let name = "a_monitor_decides_when_it_runs_and_when_it_has_failed";
    let Some(cell) = Cell::with(name, quick) else { return };
    let monitor = || Some(sh("test -e /tmp/healthy || { echo not yet; exit 1; }"));
    // A daemon: the action ends with 0, what it has started goes on, the monitor looks after it.
    let daemon = LrpDefinition {
        monitor: monitor(),
        ..lrp(sh("(sleep 0.3; touch /tmp/healthy; sleep 1; rm /tmp/healthy) & exit 0"))
    };
    let guid = cell.start_lrp("daemon", daemon);
    cell.reaches(&guid, ContainerState::Running);
    let result = cell.ends(&guid);
    assert_eq!(result.failure_reason, "Instance became unhealthy: not yet");
    let log = cell.log(&guid);
    for line in ["Starting health monitoring", "became healthy", "became unhealthy"] {
        assert!(log.contains(line), "{log}");
    }
    let never = LrpDefinition { monitor: monitor(), start_timeout_ms: 400, ..lrp(sh("sleep 600")) };
    let guid = cell.start_lrp("never", never);
    let reason = cell.ends(&guid).failure_reason;
    assert!(reason.starts_with("Instance never healthy after"), "{reason}");
    assert!(reason.ends_with("not yet"), "{reason}");
}

#[test]
fn checks_are_made_from_outside_for_liveness_and_readiness() {
    let quick = |_: &mut _, settings: &mut volvox_agent::executor::logic::ExecutorSettings| {
        settings.steps.unhealthy_interval = Duration::from_millis(50);
    };
    let name = "checks_are_made_from_outside_for_liveness_and_readiness";
    let Some(cell) = Cell::with(name, quick) else { return };
    let tcp = Check::Tcp(TcpCheck { port: 8080, interval_ms: 100, ..TcpCheck::default() });
    let checks = |checks: Vec<Check>, readiness_checks: Vec<Check>| CheckDefinition {
        checks,
        readiness_checks,
        log_source: "HEALTH".into(),
    };
    let checked = |check_definition| LrpDefinition {
        check_definition: Some(check_definition),
        start_timeout_ms: 20_000,
        ..lrp(web())
    };
    // What the server looks at, from outside.
    let bad = |guid: &ContainerGuid| {
        let root = std::path::PathBuf::from(format!("/proc/{}/root", cell.pids(guid).0));
        root.join("tmp/bad")
    };
    let both = checks(vec![tcp.clone(), http_check(100)], vec![]);
    let live = cell.start_lrp("live", checked(both));
    let ready = cell.start_lrp("ready", checked(checks(vec![tcp], vec![http_check(100)])));
    cell.reaches(&live, ContainerState::Running);
    std::fs::write(bad(&live), "").unwrap();
    let reason = cell.ends(&live).failure_reason;
    assert!(reason.contains("received status code 503"), "{reason}");
    let becomes = |wanted: bool| {
        until(&format!("routable is {wanted}"), || {
            let view = cell.view(&ready).container;
            assert_ne!(view.state, ContainerState::Completed, "{:?}", view.result);
            (view.routable == wanted).then_some(())
        });
    };
    becomes(true);
    std::fs::write(bad(&ready), "").unwrap();
    becomes(false);
    std::fs::remove_file(bad(&ready)).unwrap();
    becomes(true);
    let dead = LrpDefinition {
        check_definition: Some(checks(vec![http_check(100)], vec![])),
        // Long enough for a check to be made and refused on a busy machine.
        start_timeout_ms: 3_000,
        ..lrp(sh("sleep 600"))
    };
    let guid = cell.start_lrp("dead", dead);
    let reason = cell.ends(&guid).failure_reason;
    assert!(reason.contains("connection refused"), "{reason}");
}

#[test]
fn what_goes_over_a_limit_is_told_as_such() {
    let Some(cell) = Cell::new("what_goes_over_a_limit_is_told_as_such") else { return };
    let memory = "perl -e '$x = \"y\" x (256 << 20); sleep 60'";
    let (result, _, log) = cell.task("memory", task(sh(&format!("exec {memory}"))));
    assert!(result.failure_reason.ends_with("(out of memory)"), "{result:?}\n{log}");
    // By a quota the write fails, else the container is ended.
    let disk = "head -c 200000000 /dev/zero > /home/vcap/big || exit 1; sleep 600";
    let (result, _, log) = cell.task("disk", task(sh(disk)));
    let no_space = log.contains("quota") || log.contains("No space");
    assert!(result.failure_reason.ends_with("(out of disk)") || no_space, "{result:?}\n{log}");
    let forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 5 & done; wait";
    let few = TaskDefinition { max_pids: 8, ..task(sh(forks)) };
    let (result, _, log) = cell.task("pids", few);
    assert!(result.failed && log.contains("fork"), "{result:?}\n{log}");
    let quiet = TaskDefinition {
        log_rate_limit: Some(LogRateLimit { bytes_per_second: 200 }),
        ..task(sh(
            "for i in 1 2 3 4 5 6 7 8 9 10; do echo 1234567890123456789012345678901234567890; done",
        ))
    };
    let (_, _, log) = cell.task("log", quiet);
    assert!(log.contains("exceeded log rate limit (200 bytes/sec)"), "{log}");
    assert!(log.matches("APP 123").count() < 10, "{log}");
    let stubborn =
        cell.start_lrp("stubborn", lrp(sh("trap '' TERM; echo deaf; while :; do sleep 1; done")));
    cell.reaches(&stubborn, ContainerState::Running);
    until("it does not hear", || cell.log(&stubborn).contains("APP deaf").then_some(()));
    cell.executor().stop(stubborn.clone()).unwrap();
    assert!(cell.ends(&stubborn).stopped);
    cell.log_with(&stubborn, "(exceeded 2s graceful shutdown interval)");
}

#[test]
fn processes_see_the_variables_of_their_instance() {
    let Some(cell) = Cell::new("processes_see_the_variables_of_their_instance") else { return };
    let definition = LrpDefinition {
        env: vec![EnvironmentVariable { name: "MINE".into(), value: "yes".into() }],
        ports: vec![8080],
        volume_mounted_files: vec![File { path: "db/uri".into(), content: "db://".into() }],
        ..lrp(sh("env; cat /etc/cf-service-bindings/db/uri; echo; sleep 600"))
    };
    let guid = cell.start_lrp("env", definition);
    let view = cell.reaches(&guid, ContainerState::Running);
    let log = until("all was said", || {
        let log = cell.log(&guid);
        log.contains("db://").then_some(log)
    });
    let network = view.network.unwrap();
    let (address, port) = (network.internal_address, network.ports[0].host_port);
    for variable in [
        format!("INSTANCE_GUID={guid}"),
        "INSTANCE_INDEX=3".to_owned(),
        format!("CF_INSTANCE_GUID={guid}"),
        "MINE=yes".to_owned(),
        "CF_INSTANCE_IP=127.0.0.1".to_owned(),
        format!("CF_INSTANCE_INTERNAL_IP={address}"),
        format!("CF_INSTANCE_ADDR=127.0.0.1:{port}"),
        format!("CF_INSTANCE_PORTS=[{{\"external\":{port},\"internal\":8080}}]"),
    ] {
        assert!(log.contains(&format!("APP {variable}")), "{variable}\n{log}");
    }
    assert!(!log.contains("CARGO"), "nothing of the agent's own environment leaks");
}

#[test]
fn cached_dependencies_are_fetched_once_and_mounted_read_only() {
    let name = "cached_dependencies_are_fetched_once_and_mounted_read_only";
    let Some(cell) = Cell::new(name) else { return };
    let server = Server::new(tar("tool", "from the cache"));
    let dependency = CachedDependency {
        name: "tool".into(),
        from: format!("{}/tool.tar", server.url),
        // Where Cloud Foundry has its own; /tmp is a file system in memory otherwise.
        to: "/tmp/tool".into(),
        cache_key: "tool".into(),
        ..CachedDependency::default()
    };
    let with = |dependency: &CachedDependency| TaskDefinition {
        cached_dependencies: vec![dependency.clone()],
        ..task(sh(
            "cat /tmp/tool/tool; touch /tmp/y && echo fine; touch /tmp/tool/x 2>/dev/null && echo writable; true",
        ))
    };
    for round in 0..2 {
        let (result, _, log) = cell.task(&format!("t{round}"), with(&dependency));
        assert!(!result.failed, "{result:?}\n{log}");
        assert!(
            log.contains("from the cache") && log.contains("fine") && !log.contains("writable"),
            "{log}"
        );
    }
    assert!(server.count() >= 1);
    let bad = CachedDependency {
        from: "http://127.0.0.1:1/x".into(),
        cache_key: "other".into(),
        ..dependency
    };
    let (result, _, _) = cell.task("bad", with(&bad));
    assert_eq!(result.failure_reason, "failed to download cached artifacts");
    assert!(result.retryable);
}

/// Whether the kernel can mount an image of squashfs.
fn loops_are_there() -> bool {
    let kinds = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    kinds.contains("squashfs") && std::path::Path::new("/dev/loop-control").exists()
}

#[test]
fn root_file_systems_are_those_of_the_cell() {
    let name = "root_file_systems_are_those_of_the_cell";
    let archive = tar("marker", "of the archive");
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("root.tar");
    std::fs::write(&path, archive).unwrap();
    let folder = source.path().join("folder");
    std::fs::create_dir_all(folder.join("etc")).unwrap();
    std::fs::write(folder.join("etc/passwd"), "vcap:x:2000:2000::/:/bin/sh\n").unwrap();
    let image = source.path().join("image");
    let made = std::process::Command::new("mksquashfs")
        .args([&folder, &image])
        .args(["-quiet", "-no-progress"])
        .output();
    let has_image = made.is_ok_and(|it| it.status.success()) && loops_are_there();
    let with = |config: &mut volvox_agent::runtime::machine::MachineConfig, _: &mut _| {
        for (name, path) in [("small", &path), ("folder", &folder), ("image", &image)] {
            if path.exists() {
                let found = Preloaded::detect(path).unwrap();
                config.rootfs.preloaded.insert(name.to_owned(), found);
            }
        }
    };
    let Some(cell) = Cell::with(name, with) else { return };
    let root = |rootfs: &str| TaskDefinition { rootfs: rootfs.into(), ..task(sh("true")) };
    let (result, _, log) = cell.task("host", root("host:"));
    assert!(!result.failed, "{result:?}\n{log}");
    // There is hardly anything in it: that it was made and looked into is enough.
    let (result, _, _) = cell.task("small", root("preloaded:small"));
    assert!(result.failure_reason.contains("no user \"vcap\""), "{result:?}");
    // These two have a user, and no program either.
    let (result, _, _) = cell.task("folder", root("preloaded:folder"));
    assert!(result.failure_reason.contains("run /bin/sh"), "{result:?}");
    if has_image {
        for round in 0..2 {
            let (result, _, _) = cell.task(&format!("image{round}"), root("preloaded:image"));
            assert!(result.failure_reason.contains("run /bin/sh"), "{result:?}");
        }
    } else {
        stage::skip(name, "of it the image: no mksquashfs, or no squashfs or loop device here");
    }
    for (nth, rootfs) in ["preloaded:none", "docker:///x"].into_iter().enumerate() {
        let (result, _, _) = cell.task(&format!("bad{nth}"), root(rootfs));
        assert!(result.failure_reason.starts_with("failed to create container:"), "{result:?}");
        assert!(result.retryable, "{result:?}");
    }
    let privileged = TaskDefinition { privileged: true, ..task(sh("true")) };
    let (result, _, _) = cell.task("privileged", privileged);
    assert!(result.failure_reason.contains("privileged"), "{result:?}");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_reached_unasked() {
    let name = "what_does_not_fit_is_refused_and_nothing_is_reached_unasked";
    let Some(cell) = Cell::new(name) else { return };
    // A service of the machine itself, on every address it has.
    let listener = std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = format!(
        "for a in 127.0.0.1 10.77.0.1 169.254.169.254; do \
         perl -MIO::Socket::INET -e 'exit(IO::Socket::INET->new(PeerAddr => \"'$a':{port}\", \
         Timeout => 1) ? 1 : 0)' || echo reached $a; done"
    );
    let (result, _, log) = cell.task("probe", task(sh(&probe)));
    assert!(!result.failed && !log.contains("reached"), "{result:?}\n{log}");
    let huge = TaskDefinition { memory_mb: 1_000_000, ..task(sh("true")) };
    let owner = volvox_agent::executor::workload::Owner::Task {
        guid: volvox_protocol::id::TaskGuid::new("huge").unwrap(),
        domain: volvox_protocol::id::Domain::new("domain").unwrap(),
    };
    let work = volvox_agent::executor::workload::Workload::Task(std::sync::Arc::new(huge));
    let wanted =
        volvox_agent::executor::logic::ReservationRequest { owner, resources: work.resources() };
    let refused = cell.executor().reserve(vec![wanted]).unwrap();
    assert_eq!(refused.len(), 1, "{refused:?}");
}
