//! The line hash against the hashes it was chosen over.
//!
//! `cargo bench -p uksm-policy --bench hash [-- speed|collisions|avalanche]`
//!
//! # Problem
//! The choice of the hash rests on three claims: on cold pages it is faster than UKSM's word hash
//! for what it tells apart, it tells real pages apart as well, and its bits are as unbiased.
//!
//! # Approach
//! Three tables, one a claim. The contenders are the word hash of UKSM §6.2 (Figures 5 and 7),
//! `SuperFastHash`, which the paper compares with, and xxHash. They live in this benchmark only.
//! It is a plain program, because what is measured is a cold pass over a gibibyte, which a
//! harness that repeats a call until it is hot cannot do.
//!
//! # Units
//! Times are nanoseconds a page. Without `--bench` (as `cargo test` runs it)
//! only the contenders are checked.
//!
//! # Source
//! UKSM §6.2, Figures 5 to 7.

mod avalanche;
mod collisions;
mod contents;
mod reference;
mod speed;

/// A page of memory.
type PageBytes = [u8; 4096];

fn main() {
    reference::check();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("contenders are right; give --bench to measure");
        return;
    }
    let tables: [(&str, fn()); 3] = [
        ("speed", speed::print),
        ("collisions", collisions::print),
        ("avalanche", avalanche::print),
    ];
    let chosen: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if let Some(unknown) = chosen
        .iter()
        .find(|name| tables.iter().all(|table| table.0 != **name))
    {
        eprintln!("no table '{unknown}': give speed, collisions, avalanche, or nothing for all");
        std::process::exit(2);
    }
    for (name, print) in tables {
        if chosen.is_empty() || chosen.contains(&name) {
            print();
        }
    }
}
