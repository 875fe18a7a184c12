//! Flags of the commands that show a container while it runs.

use std::time::Duration;

use clap::Args;
use volvox_protocol::id::{InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::time::span;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox logs web                     every instance, all that is kept
  volvox logs web 2 --follow --tail 20
  volvox logs web --since 15m --json | jq -r .message
  volvox logs --task migrate-7 -f")]
pub(crate) struct LogsArgs {
    /// The app.
    #[arg(required_unless_present = "task", conflicts_with = "task")]
    pub(crate) app: Option<ProcessGuid>,
    /// Only the instance at this index.
    pub(crate) index: Option<u32>,
    /// Only this instance, by its guid.
    #[arg(long, value_name = "GUID")]
    pub(crate) instance: Option<InstanceGuid>,
    /// A task instead.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<TaskGuid>,
    /// Go on with what comes, also from instances that come.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Of what there is, the last so many lines of each instance.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Only what was written in the last while, such as 15m.
    #[arg(long, value_parser = span::parse, value_name = "SPAN")]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ends with the status of the command; with 128 and the signal's number if that \
ended it. The command always has a terminal of its own.

Examples:
  volvox exec web -- sh
  volvox exec web 2 --user vcap -- /bin/ls -l /app
  volvox exec --task migrate-7 -- sh"
)]
pub(crate) struct ExecArgs {
    /// The app.
    #[arg(required_unless_present = "task", conflicts_with = "task")]
    pub(crate) app: Option<ProcessGuid>,
    /// Which of its instances.
    #[arg(default_value_t = 0)]
    pub(crate) index: u32,
    /// Only this instance, by its guid.
    #[arg(long, value_name = "GUID")]
    pub(crate) instance: Option<InstanceGuid>,
    /// A task instead.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<TaskGuid>,
    /// Who runs it, by the container's own names.
    #[arg(long, default_value = "root", value_name = "NAME")]
    pub(crate) user: String,
    /// Where it starts; by default the user's home.
    #[arg(long, default_value = "", value_name = "FOLDER", hide_default_value = true)]
    pub(crate) dir: String,
    /// A variable, NAME=VALUE; may be given again.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
