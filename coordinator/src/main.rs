//! The program `volvox-coordinator`: its allocator; the rest is [`volvox_coordinator::cli`].

/// The board is a million small allocations that live long: with this one they take a quarter
/// less time, and a cell that goes missing half.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    volvox_coordinator::cli::main()
}
