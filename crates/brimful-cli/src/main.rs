//! The `brimful` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    brimful_cli::main(std::env::args_os()).end()
}
