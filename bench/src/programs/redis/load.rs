//! A light write load: the same writes to every server, spread over a few keys.
//!
//! Write number i sets key `hot:(i mod HOT)` to a value that depends on i. After [`write_all`] a
//! server holds the same as after the one before, independent of other writes, so digests can be
//! compared.

use std::ops::Range;
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
    thread: JoinHandle<Result<Writes>>,
}

/// Completed writes: the start of each, and the time of its answer.
pub(crate) type Writes = Vec<(Instant, Duration)>;

/// The 99th percentile of the answers' times, for writes that began in this time.
pub(crate) fn p99(writes: &Writes, within: Range<Instant>) -> Option<Duration> {
    let began_in = writes.iter().filter(|(begun, _)| within.contains(begun));
    let mut took: Vec<Duration> = began_in.map(|&(_, took)| took).collect();
    took.sort_unstable();
    took.get((took.len() * 99 / 100).min(took.len().checked_sub(1)?))
        .copied()
}

impl WriteLoad {
    /// Begins to write to these servers.
    pub(crate) fn start(mut connections: Vec<Connection>, seed: u64) -> WriteLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            let mut writes = Vec::new();
            while !is_stopped.load(Ordering::Relaxed) {
                for connection in &mut connections {
                    let begun = Instant::now();
                    write(connection, seed, number)?;
                    writes.push((begun, begun.elapsed()));
                }
                number += 1;
                std::thread::sleep(PAUSE);
            }
            Ok(writes)
        });
        WriteLoad { stop, thread }
    }

    /// Ends it; returns the writes. Follow with [`write_all`].
    pub(crate) fn finish(self) -> Result<Writes> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_in_a_hundred_may_be_slower_and_only_those_of_the_time_count() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let writes: Writes = (0..200)
            .map(|n| (at(n), Duration::from_millis(n)))
            .collect();
        assert_eq!(
            p99(&writes, at(0)..at(100)),
            Some(Duration::from_millis(99))
        );
        assert_eq!(
            p99(&writes, at(100)..at(200)),
            Some(Duration::from_millis(199))
        );
        assert_eq!(p99(&writes, at(300)..at(400)), None);
    }
}
