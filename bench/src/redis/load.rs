//! A light write load: the same writes to every server, spread over a few keys.
//!
//! Write number i sets key `hot:(i mod HOT)` to a value that depends on i. After the last write
//! every server holds the same, whatever came between, so digests can be compared.

use super::value;
use anyhow::{Context, Result};
use redis::Connection;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys that are written.
const HOT: u64 = 256;
/// Pause between two writes: 50 a second to each server.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes going on in a thread of their own.
pub(crate) struct WriteLoad {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(u64, Vec<Connection>)>>,
}

impl WriteLoad {
    /// Begins to write to these servers.
    pub(crate) fn start(mut connections: Vec<Connection>, seed: u64) -> WriteLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !told.load(Ordering::Relaxed) {
                write_range(&mut connections, seed, number..number + 1)?;
                number += 1;
                std::thread::sleep(PAUSE);
            }
            // Every hot key once at least, so that nothing of an earlier load is left.
            let last = number.max(HOT);
            write_range(&mut connections, seed, number..last)?;
            Ok((last, connections))
        });
        WriteLoad { stop, thread }
    }

    /// Ends it; the number of writes that each server took.
    pub(crate) fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => result.map(|(writes, _)| writes),
            Err(_) => anyhow::bail!("the write load panicked"),
        }
    }
}

/// Does the writes with these numbers.
pub(crate) fn write_range(
    connections: &mut [Connection],
    seed: u64,
    numbers: Range<u64>,
) -> Result<()> {
    for number in numbers {
        for connection in connections.iter_mut() {
            redis::cmd("SET")
                .arg(format!("hot:{}", number % HOT))
                .arg(value(seed ^ 1, number))
                .query::<()>(connection)
                .context("a redis-server refused a write")?;
        }
    }
    Ok(())
}

/// One client that asks as soon as it was answered, and every other time writes: how long each answer took.
pub(crate) fn request_in_turn(
    connection: &mut Connection,
    seed: u64,
    requests: u64,
) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for number in 0..requests {
        let begun = Instant::now();
        if number % 2 == 0 {
            write_range(std::slice::from_mut(connection), seed, number..number + 1)?;
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
