//! Flags of `volvox dev`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::dev::MOST_CELLS;

#[derive(Debug, Args)]
#[command(
    after_help = "While it runs, other `volvox` commands on this machine find it without flags.
Ctrl-C ends all of it: processes, containers, networks, the temporary folder.

Examples:
  sudo volvox dev
  sudo volvox dev --cells 3 --app web.toml
  sudo volvox dev --folder ~/volvox      what is there stays, and the next start goes on from it
  sudo volvox dev --clean                after one that was killed with -9"
)]
pub(crate) struct DevArgs {
    /// How many cells.
    #[arg(
        long, default_value_t = 1, value_name = "COUNT",
        value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_CELLS)),
    )]
    pub(crate) cells: u8,
    /// Keep everything in this folder. By default in a temporary one, which is removed at the end.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Apply this app file once the cells are there, and wait for its apps; may be given several
    /// times.
    #[arg(long = "app", value_name = "FILE")]
    pub(crate) apps: Vec<PathBuf>,
    /// Where volvox-coordinator, volvox-agent and volvox-shim are. By default beside this program,
    /// or in PATH.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) programs: Option<PathBuf>,
    /// Start nothing: remove what was left behind by those that were killed, or by the one in
    /// --folder.
    #[arg(long, conflicts_with_all = ["cells", "apps"])]
    pub(crate) clean: bool,
}
