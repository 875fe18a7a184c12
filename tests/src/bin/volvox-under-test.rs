//! `volvox` itself, where cargo tells the tests of this package about it.

fn main() -> std::process::ExitCode {
    volvox_cli::main()
}
