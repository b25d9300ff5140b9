//! Memory deduplication for unmodified Linux: the program.
mod cli;
mod config;
mod setting;
fn main() {
    let mut s = setting::Settings::default();
    let r = cli::parse(std::env::args_os(), &mut s);
    if let Err(e) = r {
        println!("{}", cli::one_line(&e));
    }
}
