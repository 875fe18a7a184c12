//! Crash count and age → restart now, later, never.
//!
//! The board asks [`CrashPolicy::crash`] when a cell reports a crash, and [`CrashPolicy::restart`]
//! at each convergence for a record that is `CRASHED`. The numbers are settings; the law behind
//! them is `docs/tables/crash.md`, and the tests hold the defaults against it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Backoff;

/// How patient the board is with an instance that keeps crashing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrashPolicy {
    /// So many crashes in a row are answered with a restart at once.
    pub immediate_restarts: u32,
    /// The wait after the first crash that is not; it doubles with each further one.
    pub smallest_wait: Duration,
    /// No wait is longer, not even the smallest.
    pub largest_wait: Duration,
    /// Above this count the instance is left alone.
    pub give_up_after: u32,
    /// An instance that ran so long had recovered: its next crash counts as the first.
    pub reset_after: Duration,
}

impl Default for CrashPolicy {
    fn default() -> Self {
        CrashPolicy {
            immediate_restarts: 3,
            smallest_wait: Duration::from_secs(60),
            largest_wait: Duration::from_secs(960),
            give_up_after: 200,
            reset_after: Duration::from_secs(300),
        }
    }
}

/// What a crash does to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashOutcome {
    /// It becomes `UNCLAIMED`, and an auction is asked for.
    RestartNow,
    /// It becomes `CRASHED`, until [`CrashPolicy::restart`] lets it go.
    Wait,
}

/// When a `CRASHED` record is restarted, counted from its last change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Restart {
    /// Once this much time has passed.
    After(Duration),
    /// Not by us: it stays until it is retired or scaled away.
    Never,
}

impl CrashPolicy {
    /// The count after a crash, and what becomes of the record. `ran_for` is given only when the
    /// record was `RUNNING`. The count is tested before it is raised, so that the default gives
    /// three restarts at once and the fourth crash in a row waits.
    pub fn crash(&self, count_before: u32, ran_for: Option<Duration>) -> (u32, CrashOutcome) {
        let recovered = ran_for.is_some_and(|age| age >= self.reset_after);
        let count = if recovered { 0 } else { count_before };
        let outcome = if count < self.immediate_restarts {
            CrashOutcome::RestartNow
        } else {
            CrashOutcome::Wait
        };
        (count.saturating_add(1), outcome)
    }

    /// How long a record with this count (the crash included) stays `CRASHED`.
    pub fn restart(&self, count_after: u32) -> Restart {
        let late = count_after.saturating_sub(self.immediate_restarts);
        if late > 0 && count_after > self.give_up_after {
            return Restart::Never;
        }
        let backoff = Backoff { first: self.smallest_wait, longest: self.largest_wait };
        Restart::After(backoff.after(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::doc::{Table, table_under};

    const MARKDOWN: &str = include_str!("../../../docs/tables/crash.md");

    fn table(heading: &str, rows: usize) -> Table {
        let table = table_under(MARKDOWN, heading).unwrap();
        assert_eq!(table.rows.len(), rows, "rows under {heading:?}");
        table
    }

    /// Whether a cell such as `4` or `8..=200` holds the number.
    fn holds(cell: &str, number: u32) -> bool {
        let (first, last) = cell.split_once("..=").unwrap_or((cell, cell));
        (first.parse().unwrap()..=last.parse().unwrap()).contains(&number)
    }

    /// Whether a cell such as `not running`, `below 300s` or `from 300s` holds the age.
    fn covers(cell: &str, ran_for: Option<Duration>) -> bool {
        let bound =
            |text: &str| Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap());
        match (cell.split_once(' ').unwrap(), ran_for) {
            (("not", "running"), age) => age.is_none(),
            (("below", text), age) => age.is_some_and(|age| age < bound(text)),
            (("from", text), age) => age.is_some_and(|age| age >= bound(text)),
            (other, age) => panic!("{other:?} says nothing about {age:?}"),
        }
    }

    fn counts() -> impl Iterator<Item = u32> {
        (0..=205).chain([u32::MAX - 1, u32::MAX])
    }

    #[test]
    fn the_settings_are_the_ones_in_the_document() {
        let CrashPolicy {
            immediate_restarts,
            smallest_wait,
            largest_wait,
            give_up_after,
            reset_after,
        } = CrashPolicy::default();
        let ours = [
            ("immediate_restarts", format!("{immediate_restarts:?}")),
            ("smallest_wait", format!("{smallest_wait:?}")),
            ("largest_wait", format!("{largest_wait:?}")),
            ("give_up_after", format!("{give_up_after:?}")),
            ("reset_after", format!("{reset_after:?}")),
        ];
        let told = table("The settings", 5).rows;
        let told: Vec<_> = told.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        assert_eq!(ours.map(|(name, value)| (name.to_owned(), value)).to_vec(), told);
    }

    #[test]
    fn each_crash_does_what_the_document_says() {
        let table = table("A crash", 7);
        let policy = CrashPolicy::default();
        let ages = [0, 1, 299_999, 300_000, 300_001, 86_400_000].map(Duration::from_millis);
        let ages: Vec<_> = std::iter::once(None).chain(ages.map(Some)).collect();
        let mut used = vec![false; table.rows.len()];
        let mut checked = 0;
        for count in counts() {
            for ran_for in &ages {
                let rows: Vec<_> = (0..table.rows.len())
                    .filter(|row| holds(&table.rows[*row][0], count))
                    .filter(|row| covers(&table.rows[*row][1], *ran_for))
                    .collect();
                let [row] = rows[..] else { panic!("{count} after {ran_for:?}: rows {rows:?}") };
                let told = match &*table.rows[row][2] {
                    "one more" => count + 1,
                    "the same" => count,
                    number => number.parse().unwrap(),
                };
                let (after, outcome) = policy.crash(count, *ran_for);
                let told = (told, table.rows[row][3].clone());
                assert_eq!((after, format!("{outcome:?}")), told, "{count} after {ran_for:?}");
                used[row] = true;
                checked += 1;
            }
        }
        assert!(!used.contains(&false), "rows left over: {used:?}");
        println!("table crash (a crash): {} rows of the document, {checked} checked", used.len());
    }

    #[test]
    fn each_count_waits_as_long_as_the_document_says() {
        let table = table("A restart", 7);
        let policy = CrashPolicy::default();
        let mut used = vec![false; table.rows.len()];
        for count in counts() {
            let rows: Vec<_> =
                (0..table.rows.len()).filter(|row| holds(&table.rows[*row][0], count)).collect();
            let [row] = rows[..] else { panic!("{count}: rows {rows:?}") };
            assert_eq!(format!("{:?}", policy.restart(count)), table.rows[row][1], "{count}");
            used[row] = true;
        }
        assert!(!used.contains(&false), "rows left over: {used:?}");
        println!(
            "table crash (a restart): {} rows, {} counts checked",
            used.len(),
            counts().count()
        );
    }

    #[test]
    fn crashing_for_ever_restarts_three_times_then_waits_longer_then_never() {
        let policy = CrashPolicy::default();
        let mut count = 0;
        let mut now = 0;
        let mut waits = Vec::new();
        while let Restart::After(wait) = policy.restart(count) {
            match policy.crash(count, Some(Duration::from_secs(299))) {
                (after, CrashOutcome::RestartNow) => (count, now) = (after, now + 1),
                (after, CrashOutcome::Wait) => count = after,
            }
            waits.push(wait.as_secs());
        }
        assert_eq!((now, count), (3, 201));
        assert_eq!(waits[..9], [0, 0, 0, 0, 60, 120, 240, 480, 960]);
        assert!(waits[9..].iter().all(|wait| *wait == 960));
    }

    #[test]
    fn odd_settings_neither_overflow_nor_loop() {
        let endless = CrashPolicy {
            immediate_restarts: 0,
            smallest_wait: Duration::from_nanos(1),
            largest_wait: Duration::MAX,
            give_up_after: u32::MAX,
            reset_after: Duration::ZERO,
        };
        assert_eq!(endless.restart(u32::MAX), Restart::After(Duration::MAX));
        assert_eq!(endless.restart(41), Restart::After(Duration::from_nanos(1 << 40)));
        assert_eq!(endless.crash(u32::MAX, None), (u32::MAX, CrashOutcome::Wait));
        assert_eq!(endless.crash(9, Some(Duration::ZERO)), (1, CrashOutcome::Wait));
        let eager = CrashPolicy { smallest_wait: Duration::ZERO, ..endless.clone() };
        assert_eq!(eager.restart(u32::MAX), Restart::After(Duration::ZERO));
        let short = CrashPolicy { largest_wait: Duration::ZERO, ..endless };
        assert_eq!(short.restart(7), Restart::After(Duration::ZERO));
    }

    #[test]
    fn settings_left_out_are_the_defaults() {
        let read: CrashPolicy = serde_json::from_str(r#"{"immediate_restarts":5}"#).unwrap();
        assert_eq!(read, CrashPolicy { immediate_restarts: 5, ..CrashPolicy::default() });
        let bytes = postcard::to_stdvec(&read).unwrap();
        assert_eq!(postcard::from_bytes::<CrashPolicy>(&bytes).unwrap(), read);
    }
}
