//! What must hold of the whole registry at any time. Tests run this after every input.

use volvox_protocol::container::{ContainerState, RunResult};

use super::{Container, ContainerStore, Deletion};
use crate::executor::resources::Resources;

/// Looks the whole registry over. Empty when everything holds, else what does not.
pub fn check(registry: &ContainerStore) -> Vec<String> {
    let mut broken = Vec::new();
    let mut sum = Resources::new(registry.resources.total());
    for (guid, container) in &registry.containers {
        sum.take_what_is_there(container.resources);
        if *guid != container.guid {
            broken.push(format!("{guid}: holds {}", container.guid));
        }
        broken.extend(faults(container).map(|fault| format!("{guid}: {fault}")));
    }
    if sum != registry.resources {
        let held = &registry.resources;
        broken.push(format!("the containers take {sum:?}, counted is {held:?}"));
    }
    broken
}

fn faults(it: &Container) -> impl Iterator<Item = &'static str> {
    let completed = it.state == ContainerState::Completed;
    let reserved = it.state == ContainerState::Reserved;
    let initializing = it.state == ContainerState::Initializing;
    let deleting = it.deletion == Deletion::Underway;
    let result = &it.result;
    [
        (!completed && *result != RunResult::default(), "has a result before its end"),
        (completed && result.stopped != it.stopped, "its result and its mark differ on stopped"),
        (result.stopped && result.failed, "both stopped and failed"),
        (!result.failed && !result.failure_reason.is_empty(), "a reason without a failure"),
        (!result.failed && result.retryable, "can be tried again without a failure"),
        (reserved && it.stopped, "a reservation is stopped"),
        (reserved && deleting, "a reservation is being deleted"),
        (initializing && it.stopped && !deleting, "stopped while it is made, and not completed"),
        (it.routable && (reserved || initializing || completed), "routable and not running"),
    ]
    .into_iter()
    .filter_map(|(broken, what)| broken.then_some(what))
}
