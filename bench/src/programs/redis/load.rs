//! A light write load: the same writes to every server, spread over a few keys.
//!
//! Write number i sets key `hot:(i mod HOT)` to a value that depends on i. After [`write_all`] a
//! server holds the same as after the one before, independent of other writes, so digests can be
//! compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::Connection;

use super::{VALUE_BYTES, value};

/// Keys that are written.
const HOT: u64 = 256;
/// Pause between two writes: 50 a second to each server.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes going on in a thread of their own.
pub(crate) struct WriteLoad {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl WriteLoad {
    /// Begins to write to these servers.
    pub(crate) fn start(mut connections: Vec<Connection>, seed: u64) -> WriteLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !is_stopped.load(Ordering::Relaxed) {
                for connection in &mut connections {
                    write(connection, seed, number)?;
                }
                number += 1;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        });
        WriteLoad { stop, thread }
    }

    /// Ends it. Follow with [`write_all`].
    pub(crate) fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("the write load panicked"),
        }
    }
}

/// Writes every hot key once: afterwards servers hold these values, independent of the load.
pub(crate) fn write_all(connection: &mut Connection, seed: u64) -> Result<()> {
    (0..HOT).try_for_each(|number| write(connection, seed, number))
}

/// Does the write with this number.
fn write(connection: &mut Connection, seed: u64, number: u64) -> Result<()> {
    redis::cmd("SET")
        .arg(format!("hot:{}", number % HOT))
        .arg(value(seed ^ 1, number, VALUE_BYTES))
        .query::<()>(connection)
        .context("a redis-server refused a write")
}

/// One client that sends a request as soon as the last was answered, and every other time writes;
/// returns the time of each answer.
pub(crate) fn request_in_turn(
    connection: &mut Connection,
    seed: u64,
    requests: u64,
) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for number in 0..requests {
        let begun = Instant::now();
        if number % 2 == 0 {
            write(connection, seed, number)?;
        } else {
            redis::cmd("GET")
                .arg(format!("key:{number}"))
                .query::<Option<Vec<u8>>>(connection)
                .context("a redis-server refused a read")?;
        }
        took.push(begun.elapsed());
    }
    Ok(took)
}
