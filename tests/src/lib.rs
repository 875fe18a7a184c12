//! What the outside tests share: skipping honestly, waiting, a full disk, commands to send, a fleet.

pub mod disk;
pub mod fleet;
pub mod load;
pub mod site;
pub mod wait;

use std::io::Write as _;

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
