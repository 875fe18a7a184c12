//! Flags of `volvox task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use volvox_protocol::id::{CellId, Domain, TaskGuid};

use super::{WaitingFor, What};

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Run a task once, wait for its end, and print its result.
    Run(Box<TaskRunArgs>),
    /// List tasks.
    #[command(
        after_help = "Examples:\n  volvox task list\n  volvox task list --cell cell-7 --json"
    )]
    List {
        /// Only tasks of this domain.
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<Domain>,
        /// Only tasks on this cell.
        #[arg(long, value_name = "CELL")]
        cell: Option<CellId>,
    },
    /// Show one task.
    #[command(
        after_help = "Examples:\n  volvox task show migrate-7\n  volvox task show migrate-7 --json"
    )]
    Show {
        /// The task.
        task: TaskGuid,
    },
    /// Do not run a task, or stop it.
    #[command(after_help = "Examples:\n  volvox task cancel migrate-7")]
    Cancel {
        /// The task.
        task: TaskGuid,
    },
    /// Forget a task that has ended.
    #[command(after_help = "Examples:\n  volvox task delete migrate-7")]
    Delete {
        /// The task.
        task: TaskGuid,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ends with 0 when the task has succeeded and 1 when it has failed. The result is what the
task has written to its result file. It is forgotten afterwards, unless --keep is given.

Examples:
  volvox task run --rootfs host: -- /bin/sh -c 'exit 0'
  volvox task run migrate-7 --rootfs host: --result-file /tmp/out -- /bin/sh -c 'date > /tmp/out'
  volvox task run -f task.toml --timeout 1h
  volvox task run --rootfs host: --detach -- /bin/sleep 1000"
)]
pub(crate) struct TaskRunArgs {
    /// What to call it; by default a name is made up.
    #[arg(value_name = "TASK")]
    pub(crate) name: Option<TaskGuid>,
    /// Read the task from this file, TOML or JSON; `-` for stdin. Flags come before it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The file in the container that will hold the result.
    #[arg(long, value_name = "PATH")]
    pub(crate) result_file: Option<String>,
    #[command(flatten)]
    pub(crate) what: What,
    /// Do not wait for its end.
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// Do not forget it at its end: `volvox task show` can be asked until the coordinator forgets it.
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) limit: WaitingFor,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "file", value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
