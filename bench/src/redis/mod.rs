//! Real redis-servers as a workload: the same data set in each, and a light write load.
//!
//! Problem: the demo must show real processes being deduplicated while they work, and prove that
//! not one byte of theirs changed.
//! Approach: one server is filled with seeded values and saves a file; all others load that file.
//! `DEBUG DIGEST` of each is compared with that of a server that was never offered for merging and
//! took the same writes.

mod load;
mod server;

pub(crate) use load::{WriteLoad, request_in_turn, write_range};
pub(crate) use server::{Place, Server, offer_all};

use anyhow::{Context, Result};

/// Bytes of a value: with redis' and jemalloc's overhead, four values take a little over a page.
const VALUE_BYTES: usize = 1000;
/// Values inserted in one go.
const PIPELINE: usize = 512;

/// Makes the file that all servers load: this many MiB of seeded values.
pub(crate) fn make_file(place: &Place, mib: usize, seed: u64) -> Result<()> {
    let mut server = Server::start(place, "source", false)?;
    server.loaded()?;
    let connection = server.connection();
    let values = mib * (1 << 20) / VALUE_BYTES;
    for first in (0..values).step_by(PIPELINE) {
        let mut pipeline = redis::pipe();
        for number in first..(first + PIPELINE).min(values) {
            pipeline
                .set(format!("key:{number}"), value(seed, number as u64))
                .ignore();
        }
        pipeline
            .query::<()>(connection)
            .context("cannot fill a redis-server")?;
    }
    redis::cmd("SAVE")
        .query::<()>(connection)
        .context("redis-server cannot SAVE")?;
    Ok(())
}

/// Takes the file away, so that a server starts empty, or gives it back.
pub(crate) fn provide_file(place: &Place, there: bool) -> Result<()> {
    let [shown, hidden] = ["data.rdb", "kept.rdb"].map(|name| place.directory.join(name));
    let (from, to) = if there {
        (hidden, shown)
    } else {
        (shown, hidden)
    };
    std::fs::rename(&from, &to).with_context(|| from.display().to_string())
}

/// A seeded value.
fn value(seed: u64, number: u64) -> Vec<u8> {
    let key = crate::contents::key(seed, u64::MAX, number);
    let mut words = [0; crate::contents::WORDS];
    crate::contents::fill(&mut words, key);
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take(VALUE_BYTES)
        .collect()
}
