//! `volvox-bench [GROUP]`: measures, prints, writes `bench-results.json`.

use std::path::Path;

mod agent;
mod api;
mod auction;
mod board;
mod closed_loop;
mod container;
mod fleet_run;
mod mesh;
mod sim;

use volvox_bench::figures::Figures;

/// The coordinator's own: what is measured is what is shipped.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to a person")]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut figures = Figures::default();
    match words[..] {
        [] => {
            board::run(&mut figures)?;
            auction::run(&mut figures)?;
            container::run(&mut figures)?;
            agent::run(&mut figures)?;
            fleet_run::run(&mut figures)?;
            closed_loop::run(&mut figures)?;
            mesh::run(&mut figures)?;
            api::run(&mut figures)?;
            sim::run(&mut figures)?;
        }
        ["board"] => board::run(&mut figures)?,
        ["auction"] => auction::run(&mut figures)?,
        ["container"] => container::run(&mut figures)?,
        ["agent"] => agent::run(&mut figures)?,
        ["mesh"] => mesh::run(&mut figures)?,
        ["api"] => api::run(&mut figures)?,
        ["api.forms"] => api::run_forms(&mut figures)?,
        ["loop"] => closed_loop::run(&mut figures)?,
        ["sim"] => sim::run(&mut figures)?,
        ["sim.seeds"] => sim::run_seeds(&mut figures)?,
        ["sim.small"] => sim::run_small(&mut figures)?,
        ["fleet"] => fleet_run::run(&mut figures)?,
        ["mesh.real"] => mesh::run_real(&mut figures)?,
        ["mesh.restarts"] => mesh::run_restarts(&mut figures)?,
        ["mesh.simulated"] => mesh::run_simulated(&mut figures, "")?,
        [part] if part.starts_with("mesh.simulated.") => {
            mesh::run_simulated(&mut figures, part)?;
        }
        ["board-at-rest", folder] => return board::at_rest(Path::new(folder)),
        ["-h" | "--help"] => {
            println!(
                "Measures every figure that Volvox claims, and writes bench-results.json.\n\n\
                 Usage: volvox-bench [GROUP]\n\nGroups:\n  board       the BBS and its store\n  \
                 auction     placing up to 250,000 instances on 10,000 cells\n  \
                 container   starting containers, beside crun and runc; needs root\n  \
                 agent       taking hold of 500 containers after a kill; needs root\n  \
                 fleet       1,000 cells on real QUIC taking 50,000 instances\n  \
                 loop        from a request to RUNNING with real containers; needs root\n  \
                 mesh        who is there, who is gone, at what cost; takes half an hour\n  \
                 mesh.real, mesh.restarts, mesh.simulated, mesh.simulated.PART: parts of it; PART is\n              \
                 small, 1000, 10000, tenth.1000, tenth.10000, alarms or day\n  \
                 api         the coordinator's HTTP API, over TLS\n  \
                 api.forms   its lists of 50,000 in JSON and in protobuf, which are part of api\n  \
                 sim         simulated fleets: 50 cells, and 10,000 with 250,000 instances,\n              \
                 which take forty minutes and 19 GB of memory\n  \
                 sim.seeds   only how many fleets of 50 cells in a minute\n  \
                 sim.small   the same with 1,000 cells and 25,000 instances\n\n\
                 Examples:\n  make bench\n  make bench ONLY=board"
            );
            return Ok(());
        }
        _ => {
            eprintln!(
                "volvox-bench: there is no group {:?}; the groups are: board, auction, container, \
                 agent, fleet, loop, mesh, api, sim",
                words.join(" ")
            );
            std::process::exit(2);
        }
    }
    figures.write(Path::new("bench-results.json"))?;
    println!("written to bench-results.json");
    Ok(())
}
