//! Prints `interface/hash_vectors.txt`:
//! `cargo run -p uksm-policy --example hash_vectors > interface/hash_vectors.txt`.
//!
//! The vectors change only when the definition in `interface/uksm_ioctl.h` does, and with it
//! `UKSM_API_VERSION`: a difference after a change of code is a fault of that code.

use uksm_policy::command::Lines;
use uksm_policy::hash::LineHash;
use uksm_policy::mix::SplitMix64;

const HEADER: &str = "\
# SPDX-License-Identifier: Apache-2.0
#
# Values of the line hash that uksm_ioctl.h defines. The module and the policy are tested against
# them; their code does not read each other's.
#
# seed content_seed from to hash
#
# seed          the domain's hash_seed
# content_seed  what is in the page. 0: 4096 zero bytes. Else 512 little-endian 64-bit words, the
#               successive outputs of splitmix64 from state content_seed on.
# from, to      the lines [from, to) of the permutation
# hash          the sum of their hashes, modulo 2^64";

/// The empty range, every single end, ranges that add up, and a range in the middle.
const RANGES: [(u16, u16); 14] = [
    (0, 0),
    (0, 1),
    (1, 2),
    (0, 2),
    (0, 4),
    (4, 16),
    (0, 16),
    (16, 17),
    (0, 32),
    (32, 64),
    (63, 64),
    (64, 64),
    (0, 63),
    (0, 64),
];

const SEEDS: [u64; 4] = [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX];
const CONTENTS: [u64; 4] = [0, 1, 0x5EED, u64::MAX - 1];

fn page(content_seed: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    if content_seed != 0 {
        let mut random = SplitMix64::new(content_seed);
        for word in page.as_chunks_mut::<8>().0 {
            *word = random.next_u64().to_le_bytes();
        }
    }
    page
}

fn main() {
    println!("{HEADER}");
    for seed in SEEDS {
        let hash = LineHash::new(seed);
        for content in CONTENTS {
            let page = page(content);
            for (from, to) in RANGES {
                let value = hash.page(&page, Lines { from, to });
                println!("{seed:#x} {content:#x} {from:#x} {to:#x} {value:#018x}");
            }
        }
    }
}
