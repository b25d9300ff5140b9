//! The contents of servers of one service: most keys in common, inserted by each in an order of its
//! own.
//!
//! The position of a value in a server's memory depends on the values before it. A value that is
//! longer than the allocator's small ones has whole pages of its own, at any position; short ones
//! share pages with others, so that pages of two servers are equal only if the same short values
//! lie side by side, which is next to never. So a part of the common values can be merged, as in
//! real services.

use anyhow::{Context, Result};
use redis::Connection;

use super::values::{PIPELINE, value};
use crate::rng::{Rng, shuffle};

/// Percentage of a server's keys that all servers have.
const COMMON_PERCENT: usize = 70;
/// Bytes of values; each is equally likely.
const SIZES: [usize; 4] = [200, 1000, 4000, 12_000];
/// Names of draws; a server's number is added.
const ORDER: u64 = 1 << 51;
/// Values that only one server has; its number is added.
const OWN: u64 = 1 << 40;

/// A key's name, the number of its value, and its bytes.
type Key = (String, u64, usize);

/// All keys of a server, in its order.
fn keys(seed: u64, server: u64, mib: usize) -> Vec<Key> {
    let count = (mib << 20) * SIZES.len() / SIZES.iter().sum::<usize>();
    let common = count * COMMON_PERCENT / 100;
    let mut sizes = Rng::new(seed, ORDER);
    let mut keys: Vec<Key> = (0..count)
        .map(|at| {
            let bytes = SIZES[sizes.below(SIZES.len())];
            let number = at as u64;
            if at < common {
                (format!("common:{at}"), number, bytes)
            } else {
                (
                    format!("own:{server}:{at}"),
                    OWN * (server + 1) + number,
                    bytes,
                )
            }
        })
        .collect();
    shuffle(&mut keys, &mut Rng::new(seed, ORDER + 1 + server));
    keys
}

/// Fills a server with this many MiB of values.
pub(crate) fn fill(connection: &mut Connection, seed: u64, server: u64, mib: usize) -> Result<()> {
    for part in keys(seed, server, mib).chunks(PIPELINE) {
        let mut pipeline = redis::pipe();
        for (name, number, bytes) in part {
            pipeline.set(name, value(seed, *number, *bytes)).ignore();
        }
        pipeline
            .query::<()>(connection)
            .context("cannot fill a redis-server")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn servers_have_most_keys_in_common_with_the_same_values_in_other_orders() {
        let [one, other] = [0, 1].map(|server| keys(7, server, 4));
        let of_other: BTreeMap<_, _> = other.iter().map(|key| (&key.0, (key.1, key.2))).collect();
        let common = one
            .iter()
            .filter(|key| of_other.get(&key.0) == Some(&(key.1, key.2)))
            .count();
        assert_eq!(common, one.len() * 70 / 100);
        let at_the_same_place = one.iter().zip(&other).filter(|(a, b)| a.0 == b.0).count();
        assert!(at_the_same_place < one.len() / 50, "{at_the_same_place}");
        let bytes: usize = one.iter().map(|key| key.2).sum();
        assert!(bytes.abs_diff(4 << 20) < (4 << 20) / 10, "{bytes}");
        // No own key of one is a key of another.
        let own = |keys: &[Key]| keys.iter().filter(|key| key.0.starts_with("own")).count();
        assert_eq!(own(&one) + common, one.len());
    }
}
