//! How long a shim that does not answer is waited for. A value of its own, so that the machine and the
//! one in memory do not differ in it: both tell what they saw, and do what is said.
//!
//! One that stands still is asked once more, and given up: nobody could stop its container or hear of
//! its end. One that is only slow has longer: a stalled disk must not cost a cell its containers.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

/// How often a shim is asked again that is only slow, each time for as long as it may take to answer:
/// five minutes at work, one when an agent starts and all wait for it.
const TIMES: u32 = 15;
const TIMES_AT_START: u32 = 3;

/// What was seen of a shim that has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShimActivity {
    /// It computes, or waits for its disk: it may answer yet.
    AtWork,
    /// It could not be asked. That is our own trouble, and says nothing of it.
    NotAsked,
    /// It stands still, or is not there, or has refused.
    StandsStill,
}

/// What to do about a shim that has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Ask it once more.
    AskAgain,
    /// End it, if it is there.
    GiveUp,
}

/// One wait for a shim. It begins when a conversation has broken off, or when an agent starts, with a
/// question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    left: u32,
}

impl Waiting {
    /// A conversation has broken off.
    pub(crate) fn at_work() -> Self {
        Waiting { left: TIMES }
    }

    /// An agent starts.
    pub(crate) fn at_start() -> Self {
        Waiting { left: TIMES_AT_START }
    }

    /// The question was not answered in time.
    pub(crate) fn unanswered(&mut self, seen: ShimActivity) -> RetryDecision {
        self.left = self.left.saturating_sub(1);
        match seen {
            ShimActivity::StandsStill => RetryDecision::GiveUp,
            ShimActivity::AtWork | ShimActivity::NotAsked if self.left == 0 => {
                RetryDecision::GiveUp
            }
            ShimActivity::AtWork | ShimActivity::NotAsked => RetryDecision::AskAgain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many questions are asked before it is given up, when this is seen after each.
    fn questions(mut waiting: Waiting, mut seen: impl FnMut(u32) -> ShimActivity) -> u32 {
        let mut asked = 1;
        while waiting.unanswered(seen(asked)) == RetryDecision::AskAgain {
            asked += 1;
        }
        asked
    }

    #[test]
    fn who_stands_still_is_asked_once_and_who_is_slow_has_its_time() {
        for (begun, most) in [(Waiting::at_work(), TIMES), (Waiting::at_start(), TIMES_AT_START)] {
            assert_eq!(questions(begun, |_| ShimActivity::StandsStill), 1);
            assert_eq!(questions(begun, |_| ShimActivity::AtWork), most);
            assert_eq!(questions(begun, |_| ShimActivity::NotAsked), most);
            let stops =
                |asked| if asked < 2 { ShimActivity::AtWork } else { ShimActivity::StandsStill };
            assert_eq!(questions(begun, stops), 2, "it was slow, and stands still now");
        }
    }

    #[test]
    fn who_is_given_up_stays_so() {
        let mut waiting = Waiting::at_start();
        while waiting.unanswered(ShimActivity::AtWork) == RetryDecision::AskAgain {}
        assert_eq!(waiting.unanswered(ShimActivity::AtWork), RetryDecision::GiveUp);
    }
}
