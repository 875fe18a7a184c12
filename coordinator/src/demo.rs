//! `volvox-coordinator demo`: the board at work in a temporary folder. What plays the cells and
//! the auction here are a few lines of this file: the real ones come with later issues.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Context as _;
use volvox_coordinator::bbs::command::{Command, Effect};
use volvox_coordinator::bbs::driver::{Bbs, Converge, Outlet};
use volvox_coordinator::bbs::settings::Settings;
use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpKey, NetInfo, Running, Tags};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid};
use volvox_protocol::request::CellRequest;
use volvox_protocol::validate::Valid;

#[expect(clippy::print_stdout, reason = "a demonstration is for a person to read")]
fn say(line: &str) {
    println!("{line}");
}

/// Prints the events, and hands the starts to whoever plays the auction.
struct Stage(Sender<(ProcessGuid, u32)>);

impl Outlet for Stage {
    fn tell(&mut self, _: u64, events: Vec<Event>) {
        for event in events {
            let what = match &event {
                Event::InstanceCreated(lrp) | Event::InstanceRemoved(lrp) => show(lrp),
                Event::InstanceChanged(_, lrp) => show(lrp),
                Event::DesiredLrpCreated(it)
                | Event::DesiredLrpChanged(_, it)
                | Event::DesiredLrpRemoved(it) => format!("{} × {}", it.process_guid, it.instances),
                Event::Crashed(_)
                | Event::GroupCreated(_)
                | Event::GroupChanged(..)
                | Event::GroupRemoved(_)
                | Event::TaskCreated(_)
                | Event::TaskChanged(..)
                | Event::TaskRemoved(_) => continue,
            };
            say(&format!("   event  {:<30} {what}", event.name()));
        }
    }

    fn ask(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::RequestAuction(lrps, _) = effect {
                for start in lrps {
                    say(&format!("   effect auction {} {:?}", start.process_guid, start.indices));
                    for index in start.indices {
                        // Nobody listens any more once the demonstration is over.
                        let _ = self.0.send((start.process_guid.clone(), index));
                    }
                }
            }
        }
    }
}

fn show(lrp: &ActualLrp) -> String {
    let cell = lrp.cell_id().map_or("no cell", CellId::as_str);
    format!("{}/{} {} {:?} on {cell}", lrp.process_guid, lrp.index, lrp.state.name(), lrp.presence)
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let folder = std::env::temp_dir().join(format!("volvox-demo-{}", std::process::id()));
    let played = play(&folder);
    std::fs::remove_dir_all(&folder).context("clean up the demonstration's folder")?;
    played?;
    say("\nThe cells above were played: the coordinator does not reach real ones yet.");
    Ok(ExitCode::SUCCESS)
}

fn play(folder: &std::path::Path) -> anyhow::Result<()> {
    let (starts, wanted) = channel();
    let open = |starts: &Sender<_>| {
        Bbs::open(folder, Settings::default(), Converge::WhenTold, Stage(starts.clone()))
    };
    let bbs = open(&starts)?;
    let cells = [CellId::new("cell-1")?, CellId::new("cell-2")?];

    say("1. Two cells are there, and a consumer desires two instances of an app.");
    for cell in &cells {
        bbs.call(Command::CellPresence(cell.clone(), CellPresence::Present))?;
    }
    bbs.call(Command::UpsertDomain(Domain::new("demo")?, Duration::ZERO))?;
    let desired: DesiredLrp = serde_json::from_value(serde_json::json!({
        "process_guid": "hello", "domain": "demo", "instances": 2, "rootfs": "host:",
        "memory_mb": 64, "disk_mb": 64, "ports": [8080],
        "action": {"run": {"path": "/usr/bin/hello", "user": "vcap"}},
    }))?;
    bbs.call(Command::DesireLrp(Box::new(Valid::new(desired)?)))?;

    say("\n2. Cells win the instances, claim them and start them.");
    place(&bbs, &wanted, &cells)?;

    say("\n3. cell-1 goes missing: its instance is suspect, a replacement is auctioned.");
    bbs.call(Command::CellPresence(cells[0].clone(), CellPresence::Missing))?;

    say("\n4. cell-2 starts the replacement: the suspect goes.");
    place(&bbs, &wanted, &cells[1..])?;

    say("\n5. The board is closed and opened again: everything acknowledged is there.");
    drop(bbs);
    let bbs = open(&starts)?;
    let records = bbs.view().snapshot();
    for lrp in records.instances() {
        say(&format!("   record {}", show(lrp)));
    }
    Ok(())
}

/// Plays the auction and the cells: whatever is wanted is claimed and started, in turn.
fn place(bbs: &Bbs, wanted: &Receiver<(ProcessGuid, u32)>, cells: &[CellId]) -> anyhow::Result<()> {
    let wanted: Vec<_> = wanted.try_iter().collect();
    for (nth, (process_guid, index)) in wanted.into_iter().enumerate() {
        let cell_id = cells[nth % cells.len()].clone();
        let instance_guid = InstanceGuid::new(&format!("{process_guid}-{index}-{cell_id}"))?;
        let instance = InstanceKey { instance_guid, cell_id };
        let domain = Domain::new("demo")?;
        let key = LrpKey { process_guid, index, domain, definition_id: None };
        let claim = CellRequest::ClaimLrp(key.clone(), instance.clone());
        bbs.call(Command::Cell(Valid::new(claim)?))?;
        let running = Running {
            net_info: NetInfo { address: "192.0.2.1".into(), ..NetInfo::default() },
            internal_routes: Box::default(),
            metric_tags: Tags::default(),
            routable: true,
            availability_zone: "z1".into(),
        };
        let start = CellRequest::StartLrp(key, instance, Arc::new(running));
        bbs.call(Command::Cell(Valid::new(start)?))?;
    }
    Ok(())
}
