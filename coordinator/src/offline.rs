//! What can be done with a database while no coordinator serves it: check, backup, restore, dump.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::bbs::store::inspect::Inspection;
use crate::bbs::store::{BACKUPS, DATABASE, backup as store};
use crate::cli::owner::{as_owner, become_owner, is_foreign};
use anyhow::{Context as _, bail};
use volvox_host::clock::wall;

/// Prints one line for a person.
#[expect(clippy::print_stdout, reason = "the one place that prints results")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Tells a person something beside the result.
#[expect(clippy::print_stderr, reason = "results are on stdout, notes are not")]
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

/// Prints an error with everything that led to it.
#[expect(clippy::print_stderr, reason = "the one place that prints errors")]
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("volvox-coordinator: {error:#}");
}

pub(crate) fn check(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    become_owner(folder)?;
    let found = Inspection::of(&existing(folder)?)?;
    if json {
        say(&serde_json::to_string(&found)?);
    } else {
        for fault in &found.faults {
            say(&format!("damaged: {fault}"));
        }
        for record in &found.unreadable {
            say(&format!("unreadable: {} row {}: {}", record.table, record.row, record.reason));
        }
        let counts = &found.records;
        let counts: Vec<String> = counts.iter().map(|(table, n)| format!("{n} {table}")).collect();
        say(&format!("readable: {}", counts.join(", ")));
        if found.set_aside > 0 {
            say(&format!("set aside earlier: {} (see `dump`)", found.set_aside));
        }
        say(if found.is_sound() { "the database is sound" } else { "the database is NOT sound" });
        if !found.is_sound()
            && let Some(backup) = store::newest_backup(folder)
        {
            let (folder, backup) = (folder.display(), backup.display());
            say(&format!("newest backup: {backup}"));
            say(&format!(
                "put it back: volvox-coordinator restore --data-dir {folder} --from {backup}"
            ));
        }
    }
    Ok(if found.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Makes a backup. With `keep` the older ones of those that have no name of their own go, but only after
/// the new one is there and sound: neither a full disk nor a damaged database costs a backup.
pub(crate) fn backup(
    folder: &Path,
    to: Option<PathBuf>,
    keep: Option<u32>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if keep.is_some() && is_before_the_first_start(folder)? {
        let line = format!("no database yet in {}: nothing to back up", folder.display());
        if json {
            say(&serde_json::json!({"backup": null, "bytes": 0, "deleted": []}).to_string());
        }
        note(&line);
        return Ok(ExitCode::SUCCESS);
    }
    let database = existing(folder)?;
    let to = match to {
        Some(to) => to,
        None => {
            let seconds = wall().as_nanos() / 1_000_000_000;
            folder.join(BACKUPS).join(format!("board-{seconds}.db"))
        }
    };
    if is_foreign(folder) && !is_inside(folder, &to) {
        carry_out(folder, &database, &to)?;
    } else {
        become_owner(folder)?;
        store::backup(&database, &to)?;
    }
    let bytes = std::fs::metadata(&to).context("look at the backup")?.len();
    let is_bad = match keep {
        Some(_) => !Inspection::of(&to).is_ok_and(|found| found.is_sound()),
        None => false,
    };
    let deleted = match keep {
        Some(keep) if !is_bad => thin(&folder.join(BACKUPS), &to, keep)?,
        Some(_) | None => Vec::new(),
    };
    if json {
        let shown = serde_json::json!({"backup": to, "bytes": bytes, "deleted": deleted});
        say(&shown.to_string());
    } else {
        say(&format!("backed up to {} ({bytes} bytes)", to.display()));
        for old in deleted {
            say(&format!("deleted {}", old.display()));
        }
    }
    if is_bad {
        let check = format!("volvox-coordinator check --data-dir {}", folder.display());
        note(&format!("the copy is NOT sound, so no older backup was deleted: {check}"));
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes all but the newest backups that were named by us; the name has the time. The new one stays, and
/// is one of those kept. One with a name from the future goes first: the clock was ahead once, and how old
/// it is nobody knows. What backups that were cut short left goes too.
fn thin(backups: &Path, new: &Path, keep: u32) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(backups).context("list the backups")?;
    let others: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|it| it != new).collect();
    let mut ours: Vec<(u64, &PathBuf)> =
        others.iter().filter_map(|it| Some((made_at(it)?, it))).collect();
    let now = made_at(new).unwrap_or(u64::MAX);
    ours.sort_by_key(|(made, _)| (*made <= now, *made));
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let too_many = ours.len().saturating_sub(keep.saturating_sub(1));
    let mut old: Vec<PathBuf> = ours.drain(..too_many).map(|it| it.1.clone()).collect();
    old.extend(others.iter().filter(|it| is_left_over(it)).cloned());
    for path in &old {
        std::fs::remove_file(path).with_context(|| format!("delete {}", path.display()))?;
    }
    Ok(old)
}

/// When a backup was made, in seconds, if its name is one that we give.
fn made_at(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("board-")?.strip_suffix(".db")?.parse().ok()
}

/// Whether a file is what a backup left that was cut short: one that is written to is younger than a day.
fn is_left_over(path: &Path) -> bool {
    const DAY: Duration = Duration::from_secs(86_400);
    let Some(name) = path.file_name().and_then(|it| it.to_str()) else { return false };
    let is_ours = name.ends_with(".partial")
        && (name.starts_with("leaving.") || name.starts_with("board-") && name.contains(".db."));
    let changed = || path.symlink_metadata().and_then(|it| it.modified()).ok();
    is_ours && changed().and_then(|it| it.elapsed().ok()).is_some_and(|age| age > DAY)
}

/// A backup to where perhaps only root may write: the owner makes it in the data folder, and root takes
/// it from there by its descriptor.
fn carry_out(folder: &Path, database: &Path, to: &Path) -> anyhow::Result<()> {
    store::is_free(to)?;
    let staged = store::partial_name(&folder.join(BACKUPS).join("leaving"));
    let made = as_owner(folder, || {
        store::backup(database, &staged)?;
        let file = std::fs::File::open(&staged).context("open the backup")?;
        std::fs::remove_file(&staged).context("remove the staged backup")?;
        Ok(file)
    });
    store::carry(made?, to)?;
    Ok(())
}

/// A backup that perhaps only root may read, for the owner: copied into the data folder, with what its
/// log holds if it has one.
fn carry_in(folder: &Path, from: &Path) -> anyhow::Result<PathBuf> {
    let staged = store::partial_name(&folder.join("arriving"));
    for suffix in ["", "-wal"] {
        let named = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let file = match std::fs::File::open(named(from)) {
            Err(_) if !suffix.is_empty() => continue,
            file => file.with_context(|| format!("open {}", from.display()))?,
        };
        as_owner(folder, || Ok(store::carry(file, &named(&staged))?))?;
    }
    Ok(staged)
}

/// Whether a file is, or would be, in the data folder.
fn is_inside(folder: &Path, file: &Path) -> bool {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(parent).starts_with(real(folder))
}

pub(crate) fn restore(
    folder: &Path,
    from: Option<PathBuf>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    find(folder)?;
    let from = match from.or_else(|| store::newest_backup(folder)) {
        Some(from) => from,
        None => bail!(
            "there is no backup in {}: name one with --from FILE",
            folder.join(BACKUPS).display()
        ),
    };
    if !from.is_file() {
        bail!("there is no file {}", from.display());
    }
    let staged = if is_foreign(folder) && !is_inside(folder, &from) {
        Some(carry_in(folder, &from)?)
    } else {
        None
    };
    become_owner(folder)?;
    let kept = store::restore(folder, staged.as_deref().unwrap_or(&from))?;
    if let Some(staged) = staged {
        for suffix in ["", "-wal", "-shm"] {
            let _gone = std::fs::remove_file(format!("{}{suffix}", staged.display()));
        }
    }
    if json {
        say(&serde_json::json!({"restored": from, "kept": kept}).to_string());
    } else {
        say(&format!("restored {}", from.display()));
        if let Some(kept) = kept {
            say(&format!("the database that was there is kept as {}", kept.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn dump(folder: &Path) -> anyhow::Result<ExitCode> {
    become_owner(folder)?;
    let database = existing(folder)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let found = Inspection::each(&database, |table, row, record| {
        let line = serde_json::json!({"table": table, "row": row, "record": record});
        writeln!(out, "{line}").map_err(|error| error.to_string())
    })?;
    out.flush().context("print the records")?;
    Ok(if found.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn existing(folder: &Path) -> anyhow::Result<PathBuf> {
    match find(folder)? {
        Some(database) => Ok(database),
        None => {
            let database = folder.join(DATABASE);
            bail!("there is no database {}: is --data-dir right?", database.display());
        }
    }
}

/// The database, if there is one. Not to be allowed to look is not the same as to find none.
fn find(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let database = folder.join(DATABASE);
    match std::fs::metadata(&database) {
        Ok(found) => Ok(found.is_file().then_some(database)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("look at {}: permission denied: run it as root", database.display())
        }
        Err(error) => Err(error).with_context(|| format!("look at {}", database.display())),
    }
}

/// Whether no coordinator has begun in this folder yet. A database that is missing although there are
/// traces of it is lost, and so is one whose folder is missing.
fn is_before_the_first_start(folder: &Path) -> anyhow::Result<bool> {
    let is_there = find(folder)?.is_some() || folder.join(DATABASE).symlink_metadata().is_ok();
    Ok(!is_there && folder.is_dir() && !store::has_traces(folder))
}
