//! Processor time of a group's workers, one after the other.
//!
//! # Problem
//! It must match `cpu.stat` of the control group that pays, within 2 %: also for a worker that was
//! killed a moment ago and cannot report anything.
//!
//! # Approach
//! The supervisor reads it itself. A living worker has a clock, which counts all its threads on
//! both sides of system calls. Waiting for an ended worker adds all its time to the kernel's count
//! for ended children: the growth is the worker's. Time that a worker used before it was moved to
//! the control group that pays is not booked there, and is not counted.
//!
//! # Units
//! Nanoseconds.

use std::cell::Cell;

use uksm_linux::clock;
use uksm_policy::command::Nanos;

/// Processor time of all workers that a group has had.
#[derive(Debug, Default)]
pub(crate) struct WorkersCpu {
    /// Time of ended workers.
    ended: Nanos,
    /// The running worker.
    pid: Option<u32>,
    /// The last worker.
    last: u32,
    /// Its time when it was moved.
    elsewhere: Cell<Nanos>,
}

impl WorkersCpu {
    /// A worker was moved to the control group that pays.
    pub(crate) fn moved(&self, pid: u32) {
        self.elsewhere.set(taken(pid));
    }

    /// A worker has begun.
    pub(crate) fn begun(&mut self, pid: u32) {
        (self.pid, self.last) = (Some(pid), pid);
    }

    /// Waits for the worker by `wait`, and answers whether it has ended. No other code may wait for
    /// children meanwhile.
    pub(crate) fn reap<T>(&mut self, wait: impl FnOnce() -> T) -> (T, bool) {
        let before = ended();
        let answer = wait();
        let taken = ended().saturating_sub(before);
        let has_ended = taken > 0;
        if has_ended {
            self.ended += taken.saturating_sub(self.elsewhere.take());
            self.pid = None;
        }
        (answer, has_ended)
    }

    /// Time of all workers.
    pub(crate) fn total(&self) -> Nanos {
        let running = self.pid.map_or(0, taken);
        self.ended + running.saturating_sub(self.elsewhere.get())
    }

    /// The process id of the last worker, 0 if there was none.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }
}

/// Time of a process; 0 if it is gone. A worker that was not waited for is not gone.
fn taken(pid: u32) -> Nanos {
    clock::process_cpu_of(pid).unwrap_or_else(|errno| {
        tracing::warn!("process {pid}: its processor time cannot be read: {errno}");
        0
    })
}

fn ended() -> Nanos {
    clock::ended_children_cpu().unwrap_or_else(|errno| {
        tracing::warn!("processor time of ended workers cannot be read: {errno}");
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Some milliseconds of work.
    const WORK: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

    #[test]
    fn time_of_workers_that_died_stays_and_is_not_counted_twice() {
        let mut cpu = WorkersCpu::default();
        let mut before = 0;
        for _ in 0..2 {
            let mut child = Command::new("sh")
                .args(["-c", &format!("{WORK}; read x")])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            cpu.begun(child.id());
            assert_eq!(cpu.last(), child.id());
            while taken(child.id()) < 2_000_000 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let (running, has_ended) = cpu.reap(|| child.try_wait().unwrap());
            assert!(running.is_none() && !has_ended);
            let alive = cpu.total();
            assert!(alive >= before + 2_000_000);
            child.kill().unwrap();
            let (_, has_ended) = cpu.reap(|| child.wait().unwrap());
            assert!(has_ended);
            // Microseconds are lost to rounding; the shell may have gone on, but not twice as long.
            before = cpu.total();
            assert!(before + 2000 >= alive, "{before} of {alive} ns");
        }
    }

    #[test]
    fn what_a_worker_took_before_it_was_moved_is_not_counted() {
        let mut cpu = WorkersCpu::default();
        let mut child = Command::new("sh").args(["-c", WORK]).spawn().unwrap();
        while taken(child.id()) < 1_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        cpu.moved(child.id());
        let elsewhere = cpu.elsewhere.get();
        cpu.begun(child.id());
        let pidfd = uksm_linux::pidfd::open(child.id()).unwrap().unwrap();
        while !uksm_linux::pidfd::has_exited(&pidfd).unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let all = taken(child.id());
        assert!(elsewhere > 0 && cpu.total() == all - elsewhere);
        child.wait().unwrap();
    }
}
