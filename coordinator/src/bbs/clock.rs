//! The board's time: the machine's clock, without its jumps back. The driver reads the clocks; the simulator
//! has its own.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::time::Timestamp;

/// Follows the machine's clock, and goes on by itself while that is behind.
#[derive(Debug, Clone, Copy)]
pub struct Steady {
    last: Timestamp,
    read_at: Timestamp,
}

impl Steady {
    /// Begins with what the machine's clock says. `ran` is a clock that is never set.
    pub const fn new(ran: Timestamp, machine: Timestamp) -> Self {
        Steady { last: machine, read_at: ran }
    }

    /// What it would say.
    pub fn peek(&self, ran: Timestamp, machine: Timestamp) -> Timestamp {
        (self.last + ran.since(self.read_at)).max(machine)
    }

    /// The time: never less than it said before.
    pub fn now(&mut self, ran: Timestamp, machine: Timestamp) -> Timestamp {
        self.last = self.peek(ran, machine);
        self.read_at = ran;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_machine_ahead_and_goes_on_while_that_is_behind() {
        let at = Timestamp::from_secs;
        let mut clock = Steady::new(at(0), at(1_000));
        let said: Vec<Timestamp> =
            [(1, 1_001), (2, 1_500), (3, 900), (4, 901), (400, 1_900), (401, 1_901)]
                .into_iter()
                .map(|(ran, machine)| clock.now(at(ran), at(machine)))
                .collect();
        assert_eq!(said, [1_001, 1_500, 1_501, 1_502, 1_900, 1_901].map(at));
        assert_eq!(clock.peek(at(411), at(5)), at(1_911));
    }
}
