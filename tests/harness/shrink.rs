//! Less of a run that fails, while it still fails in the same way.

use std::time::Duration;

use super::checks::Failure;
use super::plan::{Kind, Plan};
use super::world::run;

/// The shortest trouble that is tried.
const SHORTEST: Duration = Duration::from_secs(2);

/// Leaves out kinds of trouble, cells and time, one after the other, as long as the run fails alike.
/// Gives the smallest found and how it fails. Tries at most so many runs.
pub fn shrink(plan: &Plan, failure: Failure, most: usize) -> (Plan, Failure) {
    let plan = Plan { tells: false, ..plan.clone() };
    let mut search = Search { plan, failure, left: most };
    while search.round() {}
    (search.plan, search.failure)
}

struct Search {
    plan: Plan,
    failure: Failure,
    left: usize,
}

impl Search {
    /// Tries each way to have less once. Whether one was good.
    fn round(&mut self) -> bool {
        let mut found = false;
        for kind in Kind::ALL {
            found |= self.plan.kinds.contains(&kind)
                && self.tries(|plan| plan.kinds.retain(|it| *it != kind));
        }
        for part in [4, 2] {
            found |= self.plan.cells / part >= 1 && self.tries(|plan| plan.cells /= part);
        }
        found |= self.plan.cells > 1 && self.tries(|plan| plan.cells -= 1);
        for eighths in [2, 4, 7] {
            // Whole milliseconds, as it is asked for again.
            let troubled = (self.plan.troubled * eighths / 8).as_millis();
            let troubled = Duration::from_millis(u64::try_from(troubled).unwrap_or(u64::MAX));
            found |= troubled >= SHORTEST && self.tries(|plan| plan.troubled = troubled);
        }
        found |= self.plan.processes > 1 && self.tries(|plan| plan.processes /= 2);
        found |= self.plan.instances > 1 && self.tries(|plan| plan.instances /= 2);
        found
    }

    fn tries(&mut self, less: impl FnOnce(&mut Plan)) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let mut smaller = self.plan.clone();
        less(&mut smaller);
        match run(&smaller).failure {
            Some(failure) if failure.is_like(&self.failure) => {
                (self.plan, self.failure) = (smaller, failure);
                true
            }
            Some(_) | None => false,
        }
    }
}
