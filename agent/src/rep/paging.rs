//! A sync in pages: each is a question of its own. What we have comes first, then what names us.
//!
//! The records may change between two pages: the [`rep`](super::logic) believes what is said of a
//! container only if nothing has happened to it since it asked. The driver asks page by page; so does
//! the simulator.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::cell_rpc::{OwnRecords, SyncCell, SyncedCell};
use volvox_protocol::injected_bug::{Bug, mutated};

/// A sync under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    asked: SyncCell,
    /// Items on a page.
    most: usize,
    lrps: usize,
    tasks: usize,
    own: OwnRecords,
    pages: Vec<SyncedCell>,
}

/// A page says what no coordinator says: the sync has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPage {
    /// It answers nothing of what was asked: there would be no end.
    #[error("a page of a sync answers nothing")]
    StandsStill,
    /// It answers more than was asked.
    #[error("a page of a sync answers more than was asked")]
    TooMuch,
}

impl Paging {
    /// Nothing is answered yet. A page asks for so many items.
    pub fn new(asked: SyncCell, most: usize) -> Self {
        let own = asked.own;
        Paging { asked, most, lrps: 0, tasks: 0, own, pages: Vec::new() }
    }

    /// The next question; none when everything is answered.
    pub fn next(&self) -> Option<SyncCell> {
        if mutated(Bug::OnePageIsEnough) && !self.pages.is_empty() {
            return None;
        }
        let page = |from: usize, all: usize| from..all.min(from + self.most);
        let asked = SyncCell {
            lrps: self.asked.lrps[page(self.lrps, self.asked.lrps.len())].to_vec(),
            tasks: self.asked.tasks[page(self.tasks, self.asked.tasks.len())].to_vec(),
            own: self.own,
        };
        let is_all =
            asked.lrps.is_empty() && asked.tasks.is_empty() && asked.own == OwnRecords::None;
        (!is_all).then_some(asked)
    }

    /// The answer to that question.
    pub fn answered(&mut self, page: SyncedCell) -> Result<(), BadPage> {
        let (lrps, tasks) = (page.answered_lrps as usize, page.answered_tasks as usize);
        let left = |all: usize, done: usize| (all - done).min(self.most);
        if lrps > left(self.asked.lrps.len(), self.lrps)
            || tasks > left(self.asked.tasks.len(), self.tasks)
        {
            return Err(BadPage::TooMuch);
        }
        if lrps == 0 && tasks == 0 && page.more == self.own {
            return Err(BadPage::StandsStill);
        }
        self.lrps += lrps;
        self.tasks += tasks;
        self.own = page.more;
        self.pages.push(page);
        Ok(())
    }

    /// All pages, in order.
    pub fn into_pages(self) -> Vec<SyncedCell> {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::cell_rpc::HeldTask;
    use volvox_protocol::container::ContainerState;
    use volvox_protocol::id::TaskGuid;

    use super::*;

    fn asked(tasks: usize, own: OwnRecords) -> SyncCell {
        let held = |nth: usize| HeldTask {
            task_guid: TaskGuid::new(&format!("t{nth}")).unwrap(),
            state: ContainerState::Running,
        };
        SyncCell { lrps: vec![], tasks: (0..tasks).map(held).collect(), own }
    }

    fn page(answered_tasks: u32, more: OwnRecords) -> SyncedCell {
        SyncedCell {
            answered_lrps: 0,
            answered_tasks,
            lrps: vec![],
            tasks: vec![],
            processes: vec![],
            more,
        }
    }

    #[test]
    fn everything_is_asked_for_once_and_in_order() {
        let all = asked(5, OwnRecords::After(0));
        let mut paging = Paging::new(all.clone(), 2);
        let (mut seen, mut owns) = (Vec::new(), Vec::new());
        while let Some(next) = paging.next() {
            assert!(next.tasks.len() <= 2, "{next:?}");
            // The first page has room for one; what names us comes when all is answered.
            let answered = if seen.is_empty() { 1 } else { next.tasks.len() };
            seen.extend(next.tasks.into_iter().take(answered));
            owns.push(next.own);
            let more = match next.own {
                OwnRecords::After(0) if seen.len() == 5 => OwnRecords::After(7),
                OwnRecords::After(7) => OwnRecords::None,
                OwnRecords::After(_) | OwnRecords::None => next.own,
            };
            paging.answered(page(u32::try_from(answered).unwrap(), more)).unwrap();
        }
        assert_eq!(seen, all.tasks);
        let begins = OwnRecords::After(0);
        assert_eq!(owns, [begins, begins, begins, OwnRecords::After(7)]);
        assert_eq!(paging.into_pages().len(), 4);
    }

    #[test]
    fn nothing_to_ask_is_no_page() {
        assert_eq!(Paging::new(asked(0, OwnRecords::None), 2).next(), None);
    }

    #[test]
    fn a_page_that_does_not_get_on_ends_it() {
        let mut paging = Paging::new(asked(3, OwnRecords::After(0)), 2);
        let stands = paging.answered(page(0, OwnRecords::After(0)));
        assert_eq!(stands, Err(BadPage::StandsStill));
        let too_much = paging.answered(page(3, OwnRecords::After(0)));
        assert_eq!(too_much, Err(BadPage::TooMuch), "only two were asked for");
    }
}
