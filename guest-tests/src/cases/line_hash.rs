//! Hashes the module reads from pages are those of the contract.
//!
//! # Problem
//! The policy compares hashes from the module with those it computes and carries over changes of
//! strength; if both sides disagree in one bit, nothing ever merges.
//!
//! # Approach
//! The vectors of the contract are put into pages and sampled; random pages are sampled in random
//! parts, which must add up to the policy's own [`LineHash`] of the contents.
//!
//! # Source
//! `interface/hash_vectors.txt`, and "The line hash" of `interface/uksm_ioctl.h`.

use std::collections::BTreeMap;

use uksm_linux::module::Configuration;
use uksm_policy::command::Lines;
use uksm_policy::hash::LineHash;
use uksm_policy::mix::SplitMix64;

use super::Context;
use crate::fixtures::contents::{Content, PAGE, Random};
use crate::fixtures::domain::Domain;
use crate::fixtures::peer::Peer;

cases! { "line_hash":
    the_module_hashes_the_contract_s_vectors Normal Stock 60,
    hashes_of_parts_add_up_to_the_policy_s_hash Normal Stock 60,
}

const VECTORS: &str = include_str!("../../../interface/hash_vectors.txt");

fn number(text: &str) -> u64 {
    let digits = text
        .strip_prefix("0x")
        .unwrap_or_else(|| panic!("not hexadecimal: {text}"));
    u64::from_str_radix(digits, 16).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn configured(hash_seed: u64) -> Domain {
    Domain::configured(Configuration {
        hash_seed,
        ..Configuration::default()
    })
}

fn the_module_hashes_the_contract_s_vectors(_: &mut Context) {
    let mut by_seed: BTreeMap<u64, Vec<[u64; 4]>> = BTreeMap::new();
    for line in VECTORS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let fields: Vec<u64> = line.split_whitespace().map(number).collect();
        let [seed, content, from, to, hash] = fields[..] else {
            panic!("five fields: {line}")
        };
        by_seed
            .entry(seed)
            .or_default()
            .push([content, from, to, hash]);
    }
    let mut checked = 0;
    for (seed, vectors) in by_seed {
        if seed == 0 {
            // CONFIGURE takes 0 for "any seed": the policy alone is tested with it.
            continue;
        }
        let mut domain = configured(seed);
        let mut peer = Peer::new(vectors.len());
        for (page, &[content, ..]) in vectors.iter().enumerate() {
            peer.run(move |own| {
                let mut random = SplitMix64::new(content);
                for word in 0..PAGE / 8 {
                    let value = if content == 0 { 0 } else { random.next_u64() };
                    own.memory.set_word(page, word, value);
                }
            });
        }
        let space = domain.attach(&peer);
        for (page, [content, from, to, hash]) in vectors.into_iter().enumerate() {
            let line = |line: u64| u16::try_from(line).expect("a line");
            let lines = Lines {
                from: line(from),
                to: line(to),
            };
            let sampled = domain.sample(space, page..page + 1, lines)[0];
            assert_eq!(
                sampled.hash, hash,
                "seed {seed:#x}, content {content:#x}, {lines:?}"
            );
            checked += 1;
        }
    }
    assert!(
        checked > 20,
        "the file should hold vectors with a seed: {checked}"
    );
}

fn hashes_of_parts_add_up_to_the_policy_s_hash(context: &mut Context) {
    const PAGES: usize = 64;
    let seed = context.seed();
    let mut random = Random::new(seed);
    let mut domain = configured(random.word() | 1);
    let hash = LineHash::new(domain.info().hash_seed);
    let peer = Peer::filled(PAGES, seed, PAGES);
    let space = domain.attach(&peer);
    let contents: Vec<[u8; PAGE]> = (0..PAGES)
        .map(|page| {
            Content::new(seed, page as u64)
                .bytes()
                .try_into()
                .expect("a page")
        })
        .collect();
    for _ in 0..64 {
        let line = |random: &mut Random| u16::try_from(random.below(65)).expect("a line");
        let (a, b) = (line(&mut random), line(&mut random));
        let (low, high) = (a.min(b), a.max(b));
        let head = domain.sample(space, 0..PAGES, Lines { from: 0, to: low });
        let tail = domain.sample(
            space,
            0..PAGES,
            Lines {
                from: low,
                to: high,
            },
        );
        for (page, content) in contents.iter().enumerate() {
            let sum = head[page].hash.wrapping_add(tail[page].hash);
            let expected = hash.page(content, Lines { from: 0, to: high });
            assert_eq!(
                sum, expected,
                "page {page}, [0, {low}) + [{low}, {high}), seed {seed:#x}"
            );
            let part = hash.page(
                content,
                Lines {
                    from: low,
                    to: high,
                },
            );
            assert_eq!(
                tail[page].hash, part,
                "page {page}, [{low}, {high}), seed {seed:#x}"
            );
        }
    }
}
