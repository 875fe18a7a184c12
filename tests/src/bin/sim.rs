//! `make sim`: whole fleets from seeds, on all cores, for as long as asked. A seed that fails is told:
//! the story, less of it, and how to see it again.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use volvox_host::sync::{lock, unpoisoned};
use volvox_protocol::injected_bug::Bug;
use volvox_tests::harness::plan::NO_TROUBLE;
use volvox_tests::harness::{Failure, Kind, Plan, run, shrink};

/// Runs that shrinking may take.
const SHRINKING: usize = 200;
/// After so many failures there is enough to think about.
const MOST_FAILURES: usize = 10;

/// Runs whole simulated fleets and says which seeds fail.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    sim --seed 4711                               one seed, with its story\n  \
    sim --seconds 600                             ten minutes, on all cores\n  \
    sim --seed 7 --cells 5 --only loss,pause      less of it")]
struct Args {
    /// One seed, told. Without it: many, from the first on.
    #[arg(long)]
    seed: Option<u64>,
    /// The first of many.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many; 0: as many as the time allows.
    #[arg(long, default_value_t = 0)]
    count: u64,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Cells in each fleet.
    #[arg(long, default_value_t = 50)]
    cells: usize,
    /// Threads; 0: one for each core.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// The only kinds of trouble that there are, by name; "none" for no trouble.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Kinds of trouble to leave out, by name.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// How long there is trouble, in milliseconds; 0: as the seed says.
    #[arg(long, default_value_t = 0)]
    troubled_ms: u64,
    /// The most processes at once; 0: as the seed says.
    #[arg(long, default_value_t = 0)]
    processes: usize,
    /// The most instances of one; 0: as the seed says.
    #[arg(long, default_value_t = 0)]
    instances: usize,
    /// A deliberate bug to be found, by name. Only in builds with debug assertions.
    #[arg(long)]
    bug: Option<String>,
}

impl Args {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed, self.cells);
        plan.kinds.retain(|kind| !self.without.iter().any(|name| name == kind.name()));
        if !self.only.is_empty() {
            plan.kinds.retain(|kind| self.only.iter().any(|name| name == kind.name()));
        }
        if self.processes > 0 {
            plan.processes = self.processes;
        }
        if self.instances > 0 {
            plan.instances = self.instances;
        }
        if self.troubled_ms > 0 {
            plan.troubled = Duration::from_millis(self.troubled_ms);
        }
        plan
    }

    fn bug(&self) -> Option<Bug> {
        let name = self.bug.as_ref()?;
        Bug::FLEET.into_iter().find(|bug| format!("{bug:?}") == *name)
    }

    fn problem(&self) -> Option<String> {
        let unknown = |name: &&String| !Kind::ALL.iter().any(|kind| kind.name() == name.as_str());
        let none = |name: &&String| name.as_str() != NO_TROUBLE;
        if let Some(name) = self.without.iter().chain(self.only.iter().filter(none)).find(unknown) {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let names = names.join(", ");
            return Some(format!("no kind of trouble is called {name:?}; there are: {names}"));
        }
        if let Some(name) = self.bug.as_ref().filter(|_| self.bug().is_none()) {
            return Some(format!("no bug is called {name:?}; there are: {:?}", Bug::FLEET));
        }
        (self.cells == 0).then(|| "--cells must be at least 1".to_owned())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(problem) = args.problem() {
        println!("sim: {problem}");
        return ExitCode::from(2);
    }
    match args.seed {
        Some(seed) => one(&args, &args.plan(seed).told()),
        None => many(&args),
    }
}

/// One seed, with its story.
fn one(args: &Args, plan: &Plan) -> ExitCode {
    #[cfg(debug_assertions)]
    let _on = args.bug().map(Bug::on);
    println!("{plan:?}");
    let outcome = run(plan);
    for line in &outcome.story {
        println!("{line}");
    }
    println!("{:?}", outcome.counts);
    let Some(failure) = outcome.failure else {
        println!("seed {} passes: settled after {} s", plan.seed, outcome.settled_after.as_secs());
        return ExitCode::SUCCESS;
    };
    tell(plan, failure);
    ExitCode::FAILURE
}

/// How a seed fails, with less of it.
fn tell(plan: &Plan, failure: Failure) {
    let (less, failure) = shrink(plan, failure, SHRINKING);
    println!("--- seed {}: {failure}", plan.seed);
    for line in run(&less.told()).story {
        println!("{line}");
    }
    println!("--- the least that fails alike: {}", less.again());
    println!("--- all of it: make sim SEED={} CELLS={}", plan.seed, plan.cells);
}

fn many(args: &Args) -> ExitCode {
    let jobs = match args.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let began = Instant::now();
    let limit = Duration::from_secs(args.seconds);
    let (next, done) = (AtomicU64::new(args.first), AtomicU64::new(0));
    let (failed, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let work = || {
        #[cfg(debug_assertions)]
        let _on = args.bug().map(Bug::on);
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let enough = args.count > 0 && seed >= args.first + args.count;
            if enough || (args.count == 0 && began.elapsed() >= limit) {
                break;
            }
            let plan = args.plan(seed);
            if let Some(failure) = run(&plan).failure {
                println!("seed {seed} fails: {failure}");
                let mut failed = lock(&failed);
                failed.push((plan, failure));
                stop.fetch_or(failed.len() >= MOST_FAILURES, Ordering::Relaxed);
            }
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_multiple_of(500) {
                println!("{count} seeds in {:.1} s", began.elapsed().as_secs_f64());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let (count, took) = (done.into_inner(), began.elapsed().as_secs_f64());
    let failed = unpoisoned(failed.into_inner());
    println!("{count} seeds of {} cells in {took:.1} s, {} failed", args.cells, failed.len());
    let Some((plan, failure)) = failed.into_iter().min_by_key(|(plan, _)| plan.seed) else {
        return ExitCode::SUCCESS;
    };
    if args.bug.is_none() {
        tell(&plan, failure);
    }
    ExitCode::FAILURE
}
