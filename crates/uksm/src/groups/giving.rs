//! Redistribution, as the supervisor does it: once a second.
//!
//! # Problem
//! Only workers know what their groups freed, and a worker that is slow must not keep the supervisor from all else.
//!
//! # Approach
//! In each turn workers are asked, and what they answered to the turn before is taken in: nobody waits. A worker that has not answered
//! is not known of in that turn. The supervisor, which is root outside of all groups, moves limits and balloons: no worker may.
//! Whoever is configured anew is followed with the next turn, so that a reload needs to say nothing.
//!
//! # Units
//! What a group freed: bytes, whatever its worker itself takes, which is booked on whoever pays for it.

use std::path::Path;
use std::time::{Duration, Instant};

use uksm_linux::clock;
use uksm_policy::command::PAGE_SIZE;
use uksm_redistribution::status::Status as GivingStatus;
use uksm_redistribution::{Event, Freed, Redistribution, Roots};

use super::supervisor::Supervisor;
use super::upkeep::Upkeep;
use crate::control::{Answer, Request};
use crate::status::Status;

/// From one turn to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Redistribution among all groups.
#[derive(Debug)]
pub(super) struct Giving {
    redistribution: Redistribution,
    next: Instant,
}

impl Giving {
    /// One for a host whose processes are here.
    pub(super) fn new(proc_root: &Path) -> Giving {
        let roots = Roots {
            proc: proc_root.to_owned(),
        };
        Giving {
            redistribution: Redistribution::new(roots),
            next: Instant::now(),
        }
    }

    /// When the next turn is, if there is anybody to give anything.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.redistribution.is_idle()).then_some(self.next)
    }

    /// What there is to say, if there is anybody.
    pub(super) fn status(&self) -> Option<GivingStatus> {
        (!self.redistribution.is_idle()).then(|| self.redistribution.status())
    }

    /// Puts all limits and balloons back.
    pub(super) fn end(&mut self) {
        log(&self.redistribution.release());
    }
}

impl Supervisor<'_> {
    /// A turn, if it is time.
    pub(super) fn give(&mut self) {
        let now = Instant::now();
        if now < self.giving.next {
            return;
        }
        let settings = self.workers.iter().filter_map(|w| w.plan.giving.clone());
        let settings: Vec<_> = settings.collect();
        self.giving.redistribution.follow(&settings);
        if settings.is_empty() {
            return;
        }
        self.giving.next = now + INTERVAL;
        let mut freed = Freed::new();
        let given = |worker: &&mut Upkeep| worker.plan.giving.is_some();
        for worker in self.workers.iter_mut().filter(given) {
            if let Some(bytes) = freed_by(worker) {
                freed.insert(worker.plan.name.clone(), bytes);
            }
        }
        log(&self.giving.redistribution.turn(clock::now(), &freed));
    }
}

/// What a worker answered to the turn before; and it is asked again.
fn freed_by(worker: &mut Upkeep) -> Option<u64> {
    let answer = worker.answered(Instant::now());
    // One that does not run, or does not listen, is not known of.
    let _ = worker.ask(&Request::Status);
    match answer {
        Ok(Answer::Status(status)) => Some(freed(&status)),
        _ => None,
    }
}

/// Mappings of frames less frames, and pages of zeros.
fn freed(status: &Status) -> u64 {
    let saved = &status.saved;
    let frames = u64::try_from(saved.frames_pages).unwrap_or(0);
    (frames + saved.zero_pages) * PAGE_SIZE
}

fn log(events: &[Event]) {
    for event in events {
        if event.is_warning() {
            tracing::warn!("{event}");
        } else {
            tracing::info!("{event}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_are_mappings_less_frames_and_zeros_but_nothing_less_than_nothing() {
        let mut status = Status::default();
        (status.saved.frames_pages, status.saved.zero_pages) = (90, 10);
        status.saved.net_pages = -100;
        assert_eq!(freed(&status), 100 * 4096);
        status.saved.frames_pages = -5;
        assert_eq!(freed(&status), 10 * 4096);
    }

    #[test]
    fn nobody_to_give_anything_wakes_nobody() {
        let giving = Giving::new(Path::new("/proc"));
        assert!(giving.next().is_none() && giving.status().is_none());
    }
}
