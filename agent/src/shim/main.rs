//! The program `volvox-shim`.

fn main() -> std::process::ExitCode {
    volvox_agent::shim::main()
}
