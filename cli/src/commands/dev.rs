//! `volvox dev`: a coordinator and cells on this machine in one command, for as long as it runs.
//!
//! `layout` says who has which addresses, `slot` keeps two of them apart, `cluster` brings one up and
//! takes it away, `processes` looks after the processes, `client/dev.rs` lets other commands find it.

pub(crate) mod child;
mod cluster;
mod layout;
mod processes;
mod remove;
mod signals;
mod slot;

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use self::child::{Child, OURSELVES};
use self::cluster::Cluster;
use self::layout::{CellLayout, NUMBERS};
use self::processes::{Processes, Stop};
use self::slot::{ClusterDir, DevSlot};
use crate::Context;
use crate::appfile;
use crate::args::DevArgs;
use crate::client::endpoint;
use crate::error::Failure;
use crate::output::{Output, Style};
use volvox_protocol::time::span;

pub(crate) use self::layout::MOST_CELLS;

/// The programs that it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Programs {
    coordinator: PathBuf,
    agent: PathBuf,
    shim: PathBuf,
}

pub(super) fn run(context: &mut Context, args: &DevArgs) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::refused("containers need root, and this is an ordinary user")
            .hint("try `sudo volvox dev`; commands such as `volvox ps` then need none"));
    }
    let programs = programs(args.programs.as_deref())?;
    let mut crew = Processes::new()?;
    if args.clean {
        return clean(context, &crew, &programs, args.folder.as_deref());
    }
    // What is wrong with them is said before anything is started.
    for file in &args.apps {
        appfile::read_apps(file)?;
    }
    for left in slot::killed() {
        let (pid, folder) = (left.pid, left.folder.display());
        let given = args.folder.as_ref().and_then(|it| it.canonicalize().ok());
        if given.as_ref() != Some(&left.folder) {
            context.out.note(&format!(
                "a `volvox dev` (process {pid}) was killed and has left containers, see {folder}: \
                 `volvox dev --clean` removes them"
            ))?;
        }
    }
    let cluster = prepare(&crew, args, programs)?;
    let (place, temporary) = (cluster.folder.path.clone(), cluster.folder.temporary);
    let stopped = match live(context, &mut crew, &cluster, args) {
        Ok(never) => match never {},
        Err(stop) => stop,
    };
    // Whoever no longer reads what we say is no reason to leave anything.
    let _unread = say(&mut context.out, "ending", "everything ends");
    let ended = cluster.end(&mut crew);
    match (stopped, ended) {
        (Stop::Asked, Ok(())) => goodbye(&mut context.out, &place, temporary),
        (Stop::Asked, Err(failure)) => Err(failure.about("not everything could be removed")),
        (Stop::Failed(failure), Ok(())) => Err(failure),
        (Stop::Failed(mut failure), Err(more)) => {
            failure.message += &format!("\nnot everything could be removed: {}", more.message);
            Err(failure.hint(more.hint))
        }
    }
}

/// Takes a folder and a number, and writes the configurations. When that fails, nothing is left.
fn prepare(crew: &Processes, args: &DevArgs, programs: Programs) -> Result<Cluster, Failure> {
    let folder = ClusterDir::open(args.folder.as_deref())?;
    let (place, temporary) = (folder.path.clone(), folder.temporary);
    let prepare = || {
        let (slot, layout) = DevSlot::take(&folder.path, args.cells)?;
        if let Some(left) = &slot.left
            && left.cells != args.cells
        {
            // Ports and addresses depend on it: what runs could not be taken over.
            remove::containers(crew, &programs, &folder.path, left.cells)?;
        }
        let room = room(&folder.path, args.cells)?;
        let cluster = Cluster::new(folder, slot, layout, programs)?;
        cluster.configure(room)?;
        cluster.tell()?;
        Ok(cluster)
    };
    prepare().inspect_err(|_| {
        if temporary {
            // Why it failed matters more.
            let _left = remove::folder(&place);
        }
    })
}

/// Brings it up and stays until it is to end.
fn live(
    context: &mut Context,
    crew: &mut Processes,
    cluster: &Cluster,
    args: &DevArgs,
) -> Result<Infallible, Stop> {
    let begun = Instant::now();
    say(&mut context.out, "starting", &format!("starting in {}", cluster.folder.path.display()))?;
    cluster.start_coordinator(crew)?;
    say(&mut context.out, "coordinator", "the coordinator is ready")?;
    for cell in 1..=args.cells {
        cluster.start_cell(crew, cell)?;
    }
    for cell in 1..=args.cells {
        cluster.until_ready(crew, cell)?;
        let name = layout::name(cell);
        say(&mut context.out, &name, &format!("{name} is ready"))?;
    }
    if !args.apps.is_empty() {
        apply(&mut context.out, crew, cluster, &args.apps)?;
    }
    welcome(context, cluster, begun)?;
    loop {
        crew.pause()?;
    }
}

/// Applies app files, as `volvox apply --wait` does.
fn apply(
    out: &mut Output,
    crew: &mut Processes,
    cluster: &Cluster,
    files: &[PathBuf],
) -> Result<(), Stop> {
    out.finish()?;
    let way = cluster.way();
    let mut words = ["--api", &way, "apply", "--wait"].map(OsStr::new).to_vec();
    if out.is_json() {
        words.push(OsStr::new("--json"));
    }
    for file in files {
        words.extend([OsStr::new("--file"), file.as_os_str()]);
    }
    let mut applying = Child::start("volvox apply", Path::new(OURSELVES), &words, None)?;
    let status = crew.until_ended(&mut applying)?;
    if !status.success() {
        // What went wrong was said, and can be looked into while all else goes on.
        out.note("not every app runs; all else goes on")?;
    }
    Ok(())
}

/// How far it is.
fn say(out: &mut Output, part: &str, text: &str) -> Result<(), Failure> {
    if out.is_json() {
        return out.entry(&json!({"part": part, "text": text}));
    }
    out.line(text)?;
    out.finish()
}

/// All is there: how to use it.
fn welcome(context: &mut Context, cluster: &Cluster, begun: Instant) -> Result<(), Failure> {
    let waited = begun.elapsed();
    let is_found =
        endpoint::find(&context.place).is_ok_and(|found| found.way.to_string() == cluster.way());
    let out = &mut context.out;
    let folder = &cluster.folder.path;
    let (way, api) = (cluster.way(), format!("http://{}", cluster.api));
    let token = cluster.data().join("admin.token");
    let lent = cluster.lent_token();
    if out.is_json() {
        let cells: Vec<String> = (1..=cluster.layout.cells).map(layout::name).collect();
        return out.entry(&json!({
            "part": "ready", "folder": folder, "temporary": cluster.folder.temporary,
            "api": api, "socket": way, "token_file": token, "cells": cells,
            "found_without_flags": is_found,
            "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        }));
    }
    let ours = std::env::args().next().unwrap_or_else(|| "volvox".to_owned());
    out.styled(Style::Good, &format!("ready after {}", span::show(waited)))?;
    out.line("")?;
    if is_found {
        out.line("In another terminal:")?;
    } else {
        out.line("Something else answers here too, so in another terminal:")?;
        out.line(&format!("  {}", export(&way, &api, lent.as_deref())))?;
    }
    out.line(&format!(
        "  {ours} run hello --rootfs host: --memory 32 --instances 2 --wait -- /bin/sleep 1000"
    ))?;
    out.line(&format!("  {ours} ps"))?;
    out.line("")?;
    let token = lent.unwrap_or(token);
    out.line(&format!("API    {api}, with the token in {}", token.display()))?;
    out.line(&format!("       or as root {way}"))?;
    out.line(&format!("logs   {}", cluster.log("*").display()))?;
    let then = if cluster.folder.temporary { "removes it all" } else { "keeps only the folder" };
    out.line(&format!("Ctrl-C ends it and {then}"))?;
    out.finish()
}

/// What leads to it where something else would answer. Its socket is for root alone, so whoever called
/// `sudo` goes by the token that they were lent; root, in that terminal, can too.
fn export(way: &str, api: &str, lent: Option<&Path>) -> String {
    match lent {
        Some(token) => format!("export VOLVOX_API={api} VOLVOX_TOKEN_FILE={}", token.display()),
        None => format!("export VOLVOX_API={way}"),
    }
}

fn goodbye(out: &mut Output, folder: &Path, temporary: bool) -> Result<(), Failure> {
    if out.is_json() {
        return out.entry(&json!({"part": "ended", "folder": folder, "folder_removed": temporary}));
    }
    if temporary {
        return out.line("nothing is left");
    }
    let folder = folder.display();
    out.line(&format!("nothing is left but {folder}: `volvox dev --folder {folder}` goes on"))
}

/// Removes what those that were killed have left.
fn clean(
    context: &mut Context,
    crew: &Processes,
    programs: &Programs,
    only: Option<&Path>,
) -> Result<(), Failure> {
    let only = only.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let mut cleaned = Vec::new();
    let is_meant = |it: &Path| only.as_deref().is_none_or(|only| only == it);
    // Each is seen once, even if it could not be forgotten.
    for _ in 0..NUMBERS {
        let Some(slot) = DevSlot::left_behind(is_meant)? else { break };
        let Some(left) = slot.left.clone() else { break };
        remove::containers(crew, programs, &left.folder, left.cells)?;
        if left.temporary {
            remove::folder(&left.folder)?;
        }
        slot.remove();
        cleaned.push(left);
    }
    let document = json!({"cleaned": cleaned.iter().map(|it| json!({
        "pid": it.pid, "folder": it.folder, "folder_removed": it.temporary,
    })).collect::<Vec<_>>()});
    context.out.show(&document, |out| {
        for left in &cleaned {
            let (pid, folder) = (left.pid, left.folder.display());
            let stays = if left.temporary { "" } else { "; the folder stays" };
            out.line(&format!("removed what process {pid} left in {folder}{stays}"))?;
        }
        if cleaned.is_empty() { out.line("nothing was left behind") } else { Ok(()) }
    })
}

/// Finds the programs: where it was said, beside this one, or in PATH.
fn programs(given: Option<&Path>) -> Result<Programs, Failure> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(given) = given {
        folders.push(given.to_owned());
    } else {
        let own = std::env::current_exe().ok();
        folders.extend(own.as_deref().and_then(Path::parent).map(Path::to_owned));
        let path = std::env::var_os("PATH").unwrap_or_default();
        folders.extend(std::env::split_paths(&path));
    }
    let find = |name: &str| {
        let found = folders.iter().map(|it| it.join(name)).find(|it| it.is_file());
        let found = found.and_then(|it| it.canonicalize().ok());
        found.ok_or_else(|| {
            let searched = match given {
                Some(given) => given.display().to_string(),
                None => "beside `volvox` or in PATH".to_owned(),
            };
            Failure::usage(format!("{name} is not there: {searched}"))
                .hint("--programs says where the programs of Volvox are")
        })
    };
    let (coordinator, agent) = (find("volvox-coordinator")?, find("volvox-agent")?);
    Ok(Programs { coordinator, agent, shim: find("volvox-shim")? })
}

/// What each of the cells may have: its share of the machine.
fn room(folder: &Path, cells: u8) -> Result<CellLayout, Failure> {
    let failed = |what: &str| Failure::failed(format!("cannot find out how much {what} there is"));
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = total.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    let memory_mb = kib.ok_or_else(|| failed("memory"))? >> 10;
    let disk = nix::sys::statvfs::statvfs(folder).map_err(|_| failed("disk"))?;
    let disk_mb = disk.blocks_available().saturating_mul(disk.fragment_size()) >> 20;
    let cells = u64::from(cells);
    Ok(CellLayout { memory_mb: memory_mb / cells, disk_mb: disk_mb / cells })
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    options.create(true).truncate(true).write(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_called_sudo_is_not_sent_to_the_socket_of_root() {
        let (way, api) = ("unix:/run/volvox-dev/0/api.sock", "http://127.77.0.1:8889");
        assert_eq!(export(way, api, None), format!("export VOLVOX_API={way}"));
        let lent = Path::new("/run/volvox-dev/0/token");
        assert_eq!(
            export(way, api, Some(lent)),
            "export VOLVOX_API=http://127.77.0.1:8889 VOLVOX_TOKEN_FILE=/run/volvox-dev/0/token"
        );
    }
}
