//! Writes what packages have beside the programs: man pages, completions, configuration files.
//! `manuals FOLDER`. It is here because only this crate knows all three programs; they themselves need
//! not carry it.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::{Shell, generate};

/// A page for each command of `volvox`, one for each daemon with its commands, and the completions.
fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: manuals FOLDER")?;
    let folder = Path::new(&folder);
    for (name, section, command) in volvox_tests::programs() {
        let mut command = command.name(name);
        command.build();
        let pages = folder.join("man").join(name);
        std::fs::create_dir_all(&pages).context("make the folder of the pages")?;
        page(&pages, name, section, &command)?;
        for (shell, file) in [
            (Shell::Bash, format!("bash/{name}")),
            (Shell::Zsh, format!("zsh/_{name}")),
            (Shell::Fish, format!("fish/{name}.fish")),
        ] {
            let path = folder.join("completions").join(file);
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            let mut script = Vec::new();
            generate(shell, &mut command.clone(), name, &mut script);
            std::fs::write(&path, script).with_context(|| path.display().to_string())?;
        }
    }
    let samples = [
        ("agent.toml", volvox_agent::config::SAMPLE),
        ("coordinator.toml", volvox_coordinator::config::SAMPLE),
    ];
    std::fs::create_dir_all(folder.join("etc")).context("make the folder of configurations")?;
    for (file, sample) in samples {
        let text = volvox_tests::installed_configuration(sample);
        std::fs::write(folder.join("etc").join(file), text).context(file)?;
    }
    Ok(())
}

fn page(folder: &Path, name: &str, section: &str, command: &Command) -> anyhow::Result<()> {
    // clap wants the name for as long as the program runs; there are some dozens of them.
    let fixed: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let mut text = Vec::new();
    let man = clap_mangen::Man::new(command.clone().name(fixed)).section(section);
    man.render(&mut text).context("write a page")?;
    let path = folder.join(format!("{name}.{section}"));
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    for child in command.get_subcommands().filter(|it| it.get_name() != "help") {
        page(folder, &format!("{name}-{}", child.get_name()), section, child)?;
    }
    Ok(())
}
