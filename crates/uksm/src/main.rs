//! Placeholder while the program is being written.
fn main() {}
