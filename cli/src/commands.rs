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
use crate::args::Command;
use crate::error::Failure;

/// Does what was asked.
pub(crate) fn run(context: &mut Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Apply(args) => apply::run(context, &args),
        Command::Run(args) => run::run(context, *args),
        Command::Task(command) => task::run(context, command),
        Command::Apps => apps::run(context),
        Command::Ps(args) => ps::run(context, &args),
        Command::Cells => cells::run(context),
        Command::Scale(args) => scale::run(context, &args),
        Command::Stop(args) => stop::run(context, &args),
        Command::Logs(args) => logs::run(context, &args),
        Command::Exec(args) => exec::run(context, &args),
        Command::Events(args) => events::run(context, &args),
        Command::Explain(args) => explain::run(context, &args),
        Command::Evacuate(args) => evacuate::run(context, &args),
        Command::Hold(command) => hold::run(context, &command),
        Command::JoinToken(command) => join_token::run(context, command),
        Command::Member(command) => member::run(context, command),
        Command::Cert(command) => cert::run(context, command),
        Command::Domain(command) => domain::run(context, command),
        Command::Top(args) => top::run(context, &args),
        Command::Rollback(args) => rollback::run(context, &args),
        Command::Cancel(args) => roll::cancel(context, &args),
        Command::Promote(args) => roll::promote(context, &args),
        Command::Pause(args) => roll::pause(context, &args),
        Command::Resume(args) => roll::resume(context, &args),
        Command::History(args) => history::run(context, &args),
        Command::Diff(args) => diff::run(context, &args),
        Command::Dev(args) => dev::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
        Command::Man(args) => man::run(context, &args),
        Command::Version(args) => version::run(context, &args),
    }
}
