//! Real redis-servers as a workload, and a light write load.
//!
//! # Problem
//! Real processes must be deduplicated while they work, without a changed byte.
//!
//! # Approach
//! Either all load one file ([`make_file`]), or each is filled in an order of its own ([`fill`]).
//! After the same last writes, `DEBUG DIGEST` of each is the same as before the merging.

mod filling;
mod load;
mod server;
mod values;

pub(crate) use filling::fill;
pub(crate) use load::{WriteLoad, request_in_turn, write_all};
pub(crate) use server::{Installation, Server};

use anyhow::{Context, Result};

use values::{PIPELINE, value};

/// Bytes of a value: with redis' and jemalloc's overhead, four values take a little over a page.
const VALUE_BYTES: usize = 1000;
/// Makes the file that all servers load: this many MiB of seeded values.
pub(crate) fn make_file(place: &Installation, mib: usize, seed: u64) -> Result<()> {
    let mut server = Server::start(place, "source", false)?;
    server.loaded()?;
    let connection = server.connection();
    let values = mib * (1 << 20) / VALUE_BYTES;
    for first in (0..values).step_by(PIPELINE) {
        let mut pipeline = redis::pipe();
        for number in first..(first + PIPELINE).min(values) {
            pipeline
                .set(
                    format!("key:{number}"),
                    value(seed, number as u64, VALUE_BYTES),
                )
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

/// Removes the file, so that a server starts empty, or restores it.
pub(crate) fn provide_file(place: &Installation, there: bool) -> Result<()> {
    let [shown, hidden] = ["data.rdb", "kept.rdb"].map(|name| place.directory.join(name));
    let (from, to) = if there {
        (hidden, shown)
    } else {
        (shown, hidden)
    };
    std::fs::rename(&from, &to).with_context(|| from.display().to_string())
}
