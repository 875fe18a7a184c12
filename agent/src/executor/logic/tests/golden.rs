//! What is written down of containers: see the crate `golden`. The trees have files of their own.

use volvox_golden::{Golden, variants};
use volvox_protocol::actual_lrp::PortMapping;

use super::*;
use crate::executor::steps::StepSpec;

fn golden(name: &str) -> Golden {
    Golden::open(env!("CARGO_MANIFEST_DIR"), name)
}

/// The text of a container's file of progress, which must be read back as what it was made of.
fn add(golden: &mut Golden, name: &str, container: Container, held: ContainerRun) {
    let progress = Progress { container: &container, held: &held };
    let text = serde_json::to_string(&progress).unwrap();
    let saved: SavedContainer = serde_json::from_str(&text).unwrap();
    assert_eq!(saved, SavedContainer::of(container, held), "{name}");
    golden.text(name, &text);
}

fn container(owner: &Owner) -> Container {
    Container {
        guid: owner.container(),
        state: ContainerState::Running,
        since: Timestamp::from_secs(5),
        resources: ContainerResources { memory_mb: 7, disk_mb: 8 },
        routable: true,
        stopped: false,
        deletion: Deletion::NotAsked,
        result: RunResult::default(),
    }
}

#[test]
fn progress_has_its_golden_text() {
    let mut golden = golden("progress");
    let local = Owner::Local(InstanceGuid::new("local").unwrap());
    let [instance, task] = [instance("instance"), task("task")];
    for (name, owner) in [("lrp", &instance), ("task", &task), ("local", &local)] {
        add(
            &mut golden,
            &format!("new.{name}"),
            container(owner),
            ContainerRun::new(owner.clone()),
        );
    }
    let makings = variants!(CreateState { NotBegun, Underway, Abandoned, Made, Failed });
    for (name, making) in makings {
        add(
            &mut golden,
            name,
            container(&task),
            ContainerRun { making, ..ContainerRun::new(task.clone()) },
        );
    }
    let deletions = variants!(Deletion { NotAsked, Underway });
    for (name, deletion) in deletions {
        let container = Container { deletion, ..container(&task) };
        add(&mut golden, name, container, ContainerRun::new(task.clone()));
    }
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    let failed = RunResult {
        failed: true,
        failure_reason: "reason".into(),
        stopped: false,
        retryable: true,
    };
    let ended = Container {
        state: ContainerState::Completed,
        routable: false,
        stopped: true,
        result: RunResult { stopped: true, ..RunResult::default() },
        ..container(&instance)
    };
    let held = ContainerRun {
        network: Some(ContainerNetwork {
            external_address: address("192.0.2.1"),
            internal_address: address("10.0.0.2"),
            internal_ipv6: Some("fd00::2".parse().unwrap()),
            ports: vec![PortMapping {
                container_port: 1,
                host_port: 2,
                container_tls_proxy_port: 3,
                host_tls_proxy_port: 4,
            }],
        }),
        tree: Some(StepTree::new(&StepSpec::default(), StepSettings::default())),
        making: CreateState::Made,
        finished: Some(failed),
        result: "result".into(),
        gone: true,
        ..ContainerRun::new(instance)
    };
    add(&mut golden, "ended", ended, held);
    golden.close();
}

#[test]
fn work_has_its_golden_text() {
    let mut golden = golden("work");
    let action =
        || Some(Action::Run(Box::new(RunAction { path: "/a".into(), ..Default::default() })));
    let lrp = LrpDefinition { action: action(), memory_mb: 1, disk_mb: 2, ..Default::default() };
    let task = TaskDefinition { action: action(), memory_mb: 3, disk_mb: 4, ..Default::default() };
    for (name, work) in variants!(Workload { Lrp(Arc::new(lrp)), Task(Arc::new(task)) }) {
        golden.json(name, &work);
    }
    golden.close();
}
