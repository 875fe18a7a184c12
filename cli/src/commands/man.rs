//! `volvox man`: manual pages, one for each command.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use serde_json::json;

use crate::Context;
use crate::args::{CliArguments, ManArgs};
use crate::error::Failure;

pub(super) fn run(context: &mut Context, args: &ManArgs) -> Result<(), Failure> {
    let mut command = CliArguments::command();
    command.build();
    let Some(folder) = &args.to else {
        let page = page(&command)?;
        return context.out.text(&page);
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let mut written = Vec::new();
    write(&command, "volvox", folder, &mut written)?;
    context.out.show(&json!({ "pages": written }), |out| {
        out.line(&format!("{} pages in {}", written.len(), folder.display()))
    })
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: cannot write the pages: {error}", path.display()))
        .hint("choose a folder that you may write to with --to")
}

fn page(command: &Command) -> Result<String, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `volvox-task-run.1` for `volvox task run`, as manuals are called.
fn write(
    command: &Command,
    name: &str,
    folder: &Path,
    written: &mut Vec<String>,
) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    // clap wants the name for as long as the program runs; there are some dozens of them.
    let fixed: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let text = page(&command.clone().name(fixed))?;
    std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    written.push(path.display().to_string());
    for child in command.get_subcommands().filter(|it| it.get_name() != "help") {
        write(child, &format!("{name}-{}", child.get_name()), folder, written)?;
    }
    Ok(())
}
