//! Runs tests of other projects inside a test guest; see `uksm_guest_tests::foreign`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Its companion changes the memory of other processes, and its settings apply to the whole
    // machine.
    if !std::path::Path::new(uksm_guest_tests::foreign::schedule::SCHEDULE_PATH).exists() {
        eprintln!("uksm-foreign runs in a test guest: start one with `make foreign-test`");
        return ExitCode::from(2);
    }
    match uksm_guest_tests::foreign::main(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("uksm-foreign: {message}");
            ExitCode::FAILURE
        }
    }
}
