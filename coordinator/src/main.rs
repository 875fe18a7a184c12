//! `volvox-coordinator`: so far the offline half, for the database of a data folder.

mod demo;
mod offline;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The board is a million small allocations that live long: with this one they take a quarter
/// less time, and a cell that goes missing half.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The coordinator of a Volvox fleet.
///
/// It does not listen on a network yet: these commands look after the database in its data
/// folder, and `demo` shows the board at work.
#[derive(Debug, Parser)]
#[command(name = "volvox-coordinator", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  volvox-coordinator check   --data-dir /var/lib/volvox
  volvox-coordinator backup  --data-dir /var/lib/volvox --to /backups/board-monday.db
  volvox-coordinator restore --data-dir /var/lib/volvox --from /backups/board-monday.db
  volvox-coordinator dump    --data-dir /var/lib/volvox > records.jsonl
  volvox-coordinator demo

Logging goes to stderr; VOLVOX_LOG sets its level (error, warn, info, debug).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Read the whole database and say what is wrong with it.
    ///
    /// Ends with 0 when it is sound, 1 when it is not, 2 when it could not be read at all. Works
    /// while a coordinator is running, and changes nothing.
    Check {
        /// The coordinator's data folder.
        #[arg(long)]
        data_dir: PathBuf,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy the database to a new file, also while a coordinator is running.
    Backup {
        /// The coordinator's data folder.
        #[arg(long)]
        data_dir: PathBuf,
        /// The file to write; by default a new one in the folder `backups` of the data folder.
        #[arg(long)]
        to: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a backup in the place of the database. The coordinator must be stopped.
    ///
    /// The database that was there is kept beside it under another name.
    Restore {
        /// The coordinator's data folder.
        #[arg(long)]
        data_dir: PathBuf,
        /// The backup; by default the newest in the folder `backups` of the data folder.
        #[arg(long)]
        from: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print every readable record as one line of JSON, also from a damaged database.
    Dump {
        /// The coordinator's data folder.
        #[arg(long)]
        data_dir: PathBuf,
    },
    /// Show the board at work: desire, auction, claim, start, a lost cell, kill and restart.
    Demo,
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("VOLVOX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Arguments::parse().command {
        Command::Check { data_dir, json } => offline::check(&data_dir, json),
        Command::Backup { data_dir, to, json } => offline::backup(&data_dir, to, json),
        Command::Restore { data_dir, from, json } => offline::restore(&data_dir, from, json),
        Command::Dump { data_dir } => offline::dump(&data_dir),
        Command::Demo => demo::run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            offline::complain(&error);
            ExitCode::from(2)
        }
    }
}
