//! Reads of `/proc` that may wait for a process, each with a deadline.
//!
//! # Problem
//! The kernel takes the lock of a process's mappings for `environ`, `maps`, `smaps`, `pagemap`,
//! `mem` and, since 2025, `ksm_stat`; opening most of them takes another lock of the process. A
//! process can hold both for ever. A daemon that reads such a file in its one thread then does
//! nothing else.
//!
//! # Approach
//! The read runs on another thread, and the caller waits for its result until a deadline. A thread
//! that misses the deadline ends when its read does. Until then nothing is read of that process, so
//! that one process blocks at most one thread; afterwards the process is left alone for the time
//! given by [`LockWaits`]. At most [`MAX_STUCK_THREADS`] threads are blocked: while their number is
//! reached, every read is given up.
//!
//! Waiting uses at most a tenth of the time: if many processes make a reader wait, one after
//! another, the deadline becomes shorter, down to `MIN_WAIT`. A thread is reused for the next
//! read: passing a read to it takes some 10 µs.
//!
//! A thread that waits for such a lock can be killed, so it does not prevent the daemon from
//! ending.
//!
//! # Units
//! [`Nanos`] of the monotonic clock.
//!
//! # Source
//! `fs/proc/base.c` (`proc_mem_open()`, `mm_access()`) and `fs/proc/task_mmu.c` of the kernel.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uksm_policy::command::Nanos;

use crate::clock;
use crate::lock_waits::LockWaits;
use crate::wait_budget::{MAX_BUDGET, WaitBudget};

/// Maximum wait for a read, if the budget allows it.
const MAX_WAIT: Nanos = 100_000_000;
/// Minimum wait for a read: an ordinary one takes some 10 µs.
const MIN_WAIT: Nanos = 2_000_000;
/// Maximum number of threads with a read that has missed its deadline.
pub const MAX_STUCK_THREADS: usize = 64;
/// Stack of a thread that only reads files.
const STACK_BYTES: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// Threads for reads with a deadline. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Deadlines(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// A thread without a read.
    idle: Option<Sender<Job>>,
    /// Processes whose read has missed its deadline and still blocks a thread.
    stuck: BTreeSet<u32>,
    locked: LockWaits<u32>,
    /// Processes that were logged.
    named: BTreeSet<u32>,
    /// The time that reads may wait.
    budget: WaitBudget,
}

impl Default for State {
    fn default() -> State {
        State {
            idle: None,
            stuck: BTreeSet::new(),
            locked: LockWaits::default(),
            named: BTreeSet::new(),
            budget: WaitBudget::full(clock::now()),
        }
    }
}

impl State {
    /// Maximum time of a read now.
    fn wait(&self, now: Nanos) -> Nanos {
        self.budget.left(now).clamp(MIN_WAIT, MAX_WAIT)
    }

    /// Whether the process may be read.
    fn is_due(&mut self, pid: u32, now: Nanos) -> bool {
        let is_due = self.locked.is_due(pid, now);
        if self.stuck.contains(&pid) {
            if is_due {
                self.gave_up(pid, now);
            }
            return false;
        }
        is_due && self.stuck.len() < MAX_STUCK_THREADS
    }

    fn gave_up(&mut self, pid: u32, now: Nanos) {
        self.locked.gave_up(pid, now);
        if self.locked.held(pid).is_some() && self.named.insert(pid) {
            tracing::warn!(
                "process {pid} holds the lock of its own mappings: it is tried again at growing \
                 intervals"
            );
        }
    }

    fn clear(&mut self, pid: u32) {
        self.locked.clear(pid);
        self.named.remove(&pid);
    }
}

impl Deadlines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of a read of a process; none if the process blocks it, or has done so lately.
    pub fn read<T: Send + 'static>(
        &self,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let begun = clock::now();
        let (idle, wait) = {
            let mut state = self.state();
            if !state.is_due(pid, begun) {
                return None;
            }
            (state.idle.take(), state.wait(begun))
        };
        let thread = match idle {
            Some(thread) => thread,
            None => thread()?,
        };
        let (answer, answered) = mpsc::channel();
        let all = self.clone();
        let job = move || {
            let found = read();
            // Sent with the lock held, so that a read that ends right at its deadline does not
            // count as stuck.
            let mut state = all.state();
            if answer.send(found).is_err() {
                state.stuck.remove(&pid);
            }
        };
        thread.send(Box::new(job)).ok()?;
        let found = match answered.recv_timeout(Duration::from_nanos(wait)) {
            Ok(found) => Some(found),
            // The read has panicked, and its thread is gone.
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => None,
        };
        let mut state = self.state();
        // The read may have ended between the deadline and now.
        match found.or_else(|| answered.try_recv().ok()) {
            Some(found) => {
                state.idle.get_or_insert(thread);
                state.clear(pid);
                Some(found)
            }
            None => {
                let now = clock::now();
                state.budget.spend(wait, now);
                state.stuck.insert(pid);
                state.gave_up(pid, now);
                // The receiver is dropped before the lock, so that a read that ends later notices
                // it.
                drop(answered);
                None
            }
        }
    }

    /// Processes that have blocked every read for long, with that time.
    #[must_use]
    pub fn locked(&self) -> Vec<(u32, Nanos)> {
        self.state().locked.long().collect()
    }

    /// Time of the next read of a process that blocks reads.
    #[must_use]
    pub fn due(&self, pid: u32) -> Nanos {
        let now = clock::now();
        let due = self.state().locked.due(pid, now);
        // This process is not known to block, but too many others do.
        due.unwrap_or(now.saturating_add(MAX_BUDGET))
    }

    /// Forgets a process that has ended.
    pub fn forget(&self, pid: u32) {
        self.state().clear(pid);
    }

    /// Forgets the processes that no longer exist.
    pub fn retain(&self, is_there: impl Fn(u32) -> bool) {
        let mut state = self.state();
        state.locked.retain(&is_there);
        state.named.retain(|&pid| is_there(pid));
    }
}

/// A thread that performs reads until its sender is dropped.
fn thread() -> Option<Sender<Job>> {
    let (jobs, given) = mpsc::channel::<Job>();
    let builder = std::thread::Builder::new()
        .name("reads".to_owned())
        .stack_size(STACK_BYTES);
    let started = builder.spawn(move || given.into_iter().for_each(|job| job()));
    match started {
        Ok(_) => Some(jobs),
        Err(error) => {
            tracing::warn!("cannot start a thread to read processes: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    /// A read that ends when the sender is dropped.
    fn held() -> (Sender<()>, impl FnOnce() -> u32 + Send + 'static) {
        let (hold, until) = channel::<()>();
        (hold, move || {
            let _dropped = until.recv();
            1
        })
    }

    #[test]
    fn a_read_that_never_ends_holds_up_nobody_and_has_one_thread() {
        let reads = Deadlines::default();
        let (hold, read) = held();
        let begun = Instant::now();
        assert_eq!(reads.read(7, read), None);
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_nanos(MAX_WAIT), "{waited:?}");
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(reads.read(7, || 2), None, "a second thread");
            assert_eq!(reads.read(8, || 3), Some(3));
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(reads.state().stuck, BTreeSet::from([7]));
        drop(hold);
        let end = Instant::now() + Duration::from_secs(20);
        while !reads.state().stuck.is_empty() {
            assert!(Instant::now() < end, "its thread does not end");
            std::thread::yield_now();
        }
        let due = reads.due(7);
        assert!(due > clock::now(), "it is left alone");
        assert!(!reads.state().is_due(7, due - 1));
        assert!(reads.state().is_due(7, due));
    }

    #[test]
    fn no_more_threads_are_left_than_the_bound_and_waits_become_short() {
        let reads = Deadlines::default();
        let mut holds = Vec::new();
        let begun = Instant::now();
        for pid in 0..u32::try_from(MAX_STUCK_THREADS).unwrap() {
            let (hold, read) = held();
            holds.push(hold);
            assert_eq!(reads.read(pid, read), None);
        }
        let waited = begun.elapsed();
        let all = Duration::from_nanos(MAX_WAIT) * 64;
        assert!(waited < all / 2, "{waited:?}");
        assert_eq!(reads.read(1000, || 1), None, "beyond the bound");
        holds.clear();
        let end = Instant::now() + Duration::from_secs(20);
        while reads.read(1000, || 1).is_none() {
            assert!(Instant::now() < end, "their threads do not end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_is_used_again() {
        let reads = Deadlines::default();
        let id = || std::thread::current().id();
        let first = reads.read(1, id);
        assert!(first.is_some());
        assert_eq!(reads.read(2, id), first);
    }

    #[test]
    fn a_process_that_holds_its_lock_for_long_is_named() {
        let reads = Deadlines::default();
        let (_hold, read) = held();
        assert_eq!(reads.read(7, read), None);
        assert_eq!(reads.locked(), []);
        let later = clock::now() + 6_000_000_000;
        assert!(!reads.state().is_due(7, later));
        assert!(matches!(reads.locked()[..], [(7, held)] if held > 5_000_000_000));
        assert_eq!(reads.state().named, BTreeSet::from([7]));
        reads.retain(|pid| pid != 8);
        assert_eq!(reads.locked().len(), 1);
        reads.forget(7);
        assert_eq!(reads.locked(), []);
        assert!(reads.state().named.is_empty());
    }
}
