//! What the outside tests share: skipping honestly, waiting, a full disk, commands to send, a fleet; and a
//! whole fleet that is simulated.

pub mod disk;
pub mod fleet;
#[path = "../harness/mod.rs"]
pub mod harness;
pub mod house;
pub mod load;
pub mod rust_text;
pub mod site;
pub mod wait;

use std::io::Write as _;

/// Each program, the section of its manual, and what may be asked of it.
pub fn programs() -> [(&'static str, &'static str, clap::Command); 3] {
    [
        ("volvox", "1", volvox_cli::command()),
        ("volvox-agent", "8", volvox_agent::cli::command()),
        ("volvox-coordinator", "8", volvox_coordinator::cli::command()),
    ]
}

/// The configuration file that a package installs: every key with its default and what it means, each
/// commented out, so that a later release may choose another default.
pub fn installed_configuration(sample: &str) -> String {
    let lines = sample.lines().map(|line| match line.strip_prefix("#= ") {
        Some(key) => format!("#{key}\n"),
        None if line.starts_with(['#', '[']) || line.is_empty() => format!("{line}\n"),
        None => format!("#{line}\n"),
    });
    let text: String = lines.collect();
    text.replace(
        " Keys behind \"#=\" have a default that is the\n# machine's own.",
        " Where a value is marked as an\n# example, it is no default: that is the machine's own, or none.",
    )
}

/// Says that a test could not run here, and why, where `make test` collects it.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("cannot note the skipped test: {error}");
        }
    }
}
