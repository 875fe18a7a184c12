//! `volvox`: the command line. Everything is in the library, so that tests can run the same program.

fn main() -> std::process::ExitCode {
    volvox_cli::main()
}
