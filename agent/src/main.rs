//! The program `volvox-agent`: flags and exit codes.

fn main() -> std::process::ExitCode {
    volvox_agent::cli::main()
}
