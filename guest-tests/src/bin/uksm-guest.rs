//! `/init` of the test guests. Outside of one it refuses to do anything.

fn main() {
    if std::process::id() != 1 {
        eprintln!("uksm-guest is /init of a test machine: start one with `make vm`");
        std::process::exit(2);
    }
    uksm_guest_tests::init::init()
}
