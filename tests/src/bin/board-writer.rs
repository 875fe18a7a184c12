//! A board under load in a process of its own, to be killed: `board-writer FOLDER ROUND CALLERS`.
//! Prints a line for every acknowledged change, after the acknowledgement.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use volvox_coordinator::bbs::command::Command;
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::core::{Converge, CoreSettings, Traces};
use volvox_coordinator::driver::{Bbs, Subscribers};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, Domain};
use volvox_tests::load::{Stage, command, command_on, removes};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().with_context(|| format!("no {what} was given"));
    let folder = PathBuf::from(next("folder")?);
    let round = next("round")?;
    let callers: usize = next("number of callers")?.parse()?;
    let settings = CoreSettings { converge: Converge::WhenTold, ..CoreSettings::default() };
    if round == "panic" {
        let bbs = Bbs::open(&folder, BoardSettings::default(), settings, Panics, None)?;
        bbs.call(command("last-words", Stage::Desired)?)?;
        return Ok(());
    }
    let bbs = Bbs::open(&folder, BoardSettings::default(), settings, (), None)?;
    std::thread::scope(|scope| {
        // A cell that comes and goes: records change their presence, and convergence has work.
        scope.spawn(|| drop(flap(&bbs, &round)));
        for caller in 0..callers {
            let (bbs, round) = (&bbs, &round);
            scope.spawn(move || {
                let stopped = work(bbs, &format!("r{round}-c{caller}"));
                // A closed pipe means that nobody wants to know any more.
                drop(stopped);
            });
        }
    });
    Ok(())
}

/// A subscriber with a bug.
struct Panics;

impl Subscribers for Panics {
    fn tell(&mut self, _: u64, _: Vec<Event>, _: Traces) {
        panic!("a bug in a subscriber");
    }

    fn resync(&mut self, _: u64) {}
}

fn flap(bbs: &Bbs, round: &str) -> anyhow::Result<()> {
    let cell = CellId::new("cell-2")?;
    let process = format!("flapper-{round}");
    for stage in [Stage::Desired, Stage::Claimed, Stage::Running] {
        bbs.call(command_on(&process, stage, &cell)?)?;
    }
    for nth in 0_u64.. {
        let presence = if nth % 2 == 0 { CellPresence::Missing } else { CellPresence::Present };
        bbs.call(Command::CellPresence(cell.clone(), presence))?;
        bbs.call(Command::UpsertDomain(Domain::new("load")?, Duration::from_secs(60)))?;
        bbs.call(Command::ConvergeAll)?;
    }
    Ok(())
}

fn work(bbs: &Bbs, name: &str) -> anyhow::Result<()> {
    for nth in 0_u64.. {
        let process = format!("{name}-{nth}");
        let last = if removes(&process) { Stage::Removed } else { Stage::Tasked };
        for stage in Stage::ALL.into_iter().filter(|stage| *stage <= last) {
            bbs.call(command(&process, stage)?)?;
            let line = format!("{process} {stage:?}\n");
            std::io::stdout().write_all(line.as_bytes())?;
        }
    }
    Ok(())
}
