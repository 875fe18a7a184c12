//! What the outside tests share: skipping honestly, a full disk, commands to send.

pub mod disk;
pub mod load;

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
