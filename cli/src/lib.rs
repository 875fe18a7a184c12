//! The command line of Volvox: runs apps and tasks on a fleet and looks after it.
//!
//! It speaks to the coordinator's HTTP API and to nothing else (`volvox dev` also starts the other
//! programs, as child processes), and of our crates knows `protocol` alone. `args` says what may be
//! asked, `commands` has a file for each command, `client` speaks to the coordinator, `appfile` reads
//! what people write, and only `output` prints.

mod appfile;
mod args;
mod client;
mod commands;
mod diff;
mod error;
mod nearest;
mod output;
mod progress;
mod random;
mod wait;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use self::args::CliArguments;
use self::error::Failure;
use self::output::Output;

/// What a command has at hand.
struct Context {
    /// Where the coordinator is, and with what we come to it.
    place: args::Endpoint,
    /// What is said.
    out: Output,
    /// How the program ends when all went well: as what it ran did.
    status: u8,
}

impl Context {
    /// The way to the coordinator.
    fn client(&self) -> Result<client::Client, Failure> {
        client::Client::new(&client::endpoint::find(&self.place)?)
    }
}

/// What may be asked of the program: for manuals, completions and tests.
pub fn command() -> clap::Command {
    CliArguments::command()
}

/// Does what the words of the command line say.
pub fn main() -> ExitCode {
    if let Some(ended) = commands::dev::child::begin() {
        return ended;
    }
    let arguments = match CliArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::usage(&error),
    };
    let CliArguments { place, json, color, command } = arguments;
    let mut context = Context { place, out: Output::new(json, color), status: 0 };
    let done = commands::run(&mut context, command).and_then(|()| context.out.finish());
    match done {
        Ok(()) => ExitCode::from(context.status),
        Err(failure) => context.out.complain(&failure),
    }
}
