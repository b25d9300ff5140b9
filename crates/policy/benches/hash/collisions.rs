//! How often different pages look equal.
//!
//! Pages of a family are met one after the other; a page whose hash was met before costs a vain
//! comparison, for all pages of a family differ. The table gives the share of such pages.

use crate::PageBytes;
use crate::contents::{Family, families};
use crate::reference::{WORDS, WordHash, lines, super_fast_hash};
use std::collections::HashSet;
use uksm_policy::hash::LineHash;
use xxhash_rust::{xxh3::xxh3_64, xxh64::xxh64};

fn share(family: &Family, hash: impl Fn(&PageBytes) -> u64) -> f64 {
    let different: HashSet<u64> = family.pages.iter().map(hash).collect();
    100.0 * (family.pages.len() - different.len()) as f64 / family.pages.len() as f64
}

/// A hash and what it is called.
type Column = (String, Box<dyn Fn(&PageBytes) -> u64>);

fn columns(seed: u64) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for strength in [1u16, 4, 16, 64] {
        let hash = LineHash::new(seed);
        let name = format!("{strength} lines");
        columns.push((name, Box::new(move |page| lines(&hash, page, strength))));
    }
    for strength in [1, 4, 16, 64, 256, WORDS] {
        let hash = WordHash::new(seed);
        let name = format!("{strength} words");
        columns.push((
            name,
            Box::new(move |page| u64::from(hash.page(page, strength))),
        ));
    }
    columns.push((
        "SuperFastHash".into(),
        Box::new(|page| u64::from(super_fast_hash(page))),
    ));
    columns.push(("xxh64".into(), Box::new(move |page| xxh64(page, seed))));
    columns.push(("xxh3".into(), Box::new(|page| xxh3_64(page))));
    columns
}

/// Prints the table.
pub(crate) fn print() {
    const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
    println!(
        "\ncollisions: % of different pages compared for nothing, mean of {} seeds\n",
        SEEDS.len()
    );
    let seeds: Vec<Vec<Column>> = SEEDS.into_iter().map(columns).collect();
    let names: Vec<&str> = seeds[0].iter().map(|column| column.0.as_str()).collect();
    println!("| family | pages | {} |", names.join(" | "));
    println!("|---|---:|{}", "---:|".repeat(names.len()));
    for family in families() {
        print!("| {} | {} |", family.name, family.pages.len());
        for column in 0..names.len() {
            let sum: f64 = seeds
                .iter()
                .map(|seed| share(&family, &seed[column].1))
                .sum();
            print!(" {:.3} |", sum / SEEDS.len() as f64);
        }
        println!();
    }
}
