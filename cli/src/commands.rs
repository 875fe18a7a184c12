//! The commands, one file each. A new one is a file here, its flags in `args`, and a line below.

mod apply;
mod apps;
mod cells;
mod cert;
mod completions;
pub(crate) mod dev;
mod diff;
mod domain;
mod evacuate;
mod events;
mod exec;
mod explain;
mod history;
mod hold;
mod join_token;
mod logs;
mod man;
mod member;
mod ps;
mod roll;
mod rollback;
mod run;
mod scale;
mod stop;
mod task;
mod top;
mod version;

use crate::Context;
use crate::args::CliCommand;
use crate::error::Failure;

/// Does what was asked.
pub(crate) fn run(context: &mut Context, command: CliCommand) -> Result<(), Failure> {
    match command {
        CliCommand::Apply(args) => apply::run(context, &args),
        CliCommand::Run(args) => run::run(context, *args),
        CliCommand::Task(command) => task::run(context, command),
        CliCommand::Apps => apps::run(context),
        CliCommand::Ps(args) => ps::run(context, &args),
        CliCommand::Cells => cells::run(context),
        CliCommand::Scale(args) => scale::run(context, &args),
        CliCommand::Stop(args) => stop::run(context, &args),
        CliCommand::Logs(args) => logs::run(context, &args),
        CliCommand::Exec(args) => exec::run(context, &args),
        CliCommand::Events(args) => events::run(context, &args),
        CliCommand::Explain(args) => explain::run(context, &args),
        CliCommand::Evacuate(args) => evacuate::run(context, &args),
        CliCommand::Hold(command) => hold::run(context, &command),
        CliCommand::JoinToken(command) => join_token::run(context, command),
        CliCommand::Member(command) => member::run(context, command),
        CliCommand::Cert(command) => cert::run(context, command),
        CliCommand::Domain(command) => domain::run(context, command),
        CliCommand::Top(args) => top::run(context, &args),
        CliCommand::Rollback(args) => rollback::run(context, &args),
        CliCommand::Cancel(args) => roll::cancel(context, &args),
        CliCommand::Promote(args) => roll::promote(context, &args),
        CliCommand::Pause(args) => roll::pause(context, &args),
        CliCommand::Resume(args) => roll::resume(context, &args),
        CliCommand::History(args) => history::run(context, &args),
        CliCommand::Diff(args) => diff::run(context, &args),
        CliCommand::Dev(args) => dev::run(context, &args),
        CliCommand::Completions(args) => completions::run(context, &args),
        CliCommand::Man(args) => man::run(context, &args),
        CliCommand::Version(args) => version::run(context, &args),
    }
}
