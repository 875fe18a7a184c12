//! Prints the figures of the source tree that it is built from, one line each: `make house`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use volvox_tests::house::figures;

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> anyhow::Result<()> {
    for (what, figure, place) in figures(&read_tree()?) {
        println!("{what:<36} {figure:>7}  {place}");
    }
    Ok(())
}

/// What git knows of the tree, as it is on the disk now. What is no text is left out.
fn read_tree() -> anyhow::Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ has no parent")?;
    let listed = Command::new("git").arg("-C").arg(root).args(["ls-files", "*.rs"]).output()?;
    anyhow::ensure!(
        listed.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let paths = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
    let read = |path: &str| Some((path.to_owned(), fs::read_to_string(root.join(path)).ok()?));
    Ok(paths.lines().filter_map(read).collect())
}
