//! `volvox completions`: a script for a shell.

use clap::CommandFactory as _;

use crate::Context;
use crate::args::{CliArguments, CompletionsArgs};
use crate::error::Failure;

pub(super) fn run(context: &mut Context, args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CliArguments::command(), "volvox", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))
}
