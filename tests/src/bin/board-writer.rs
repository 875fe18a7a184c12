//! A board under load in a process of its own, to be killed: `board-writer FOLDER ROUND CALLERS`.
//! Prints a line for every acknowledged change, after the acknowledgement.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use volvox_coordinator::bbs::driver::{Bbs, Converge};
use volvox_coordinator::bbs::settings::Settings;
use volvox_tests::load::{Stage, command};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().with_context(|| format!("no {what} was given"));
    let folder = PathBuf::from(next("folder")?);
    let round = next("round")?;
    let callers: usize = next("number of callers")?.parse()?;
    let bbs = Bbs::open(&folder, Settings::default(), Converge::WhenTold, ())?;
    std::thread::scope(|scope| {
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

fn work(bbs: &Bbs, name: &str) -> anyhow::Result<()> {
    for nth in 0_u64.. {
        let process = format!("{name}-{nth}");
        let last = if nth % 3 == 0 { Stage::Removed } else { Stage::Running };
        for stage in Stage::ALL.into_iter().filter(|stage| *stage <= last) {
            bbs.call(command(&process, stage)?)?;
            let line = format!("{process} {stage:?}\n");
            std::io::stdout().write_all(line.as_bytes())?;
        }
    }
    Ok(())
}
