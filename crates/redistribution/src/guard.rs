//! The headroom guard: whether memory may be given, or must come back.
//!
//! # Problem
//! Memory that merging freed was given away. Merged pages that are written need their own memory
//! again, and the host must have it. When memory is short, nothing more may be given, and then
//! given memory must come back, before the host suffers.
//!
//! # Approach
//! A state machine of three phases, which it changes one at a time and in this order: giving,
//! holding, taking back. Its inputs are the available memory and the waiting of tasks for memory
//! (PSI): the kernel's average of the last ten seconds, and the waiting since the last look, which
//! shows a sudden stall sooner. Merged pages that are written take memory faster than those
//! averages show: their expected memory counts as taken. It moves towards safety at once; back only
//! after a calm time, and only with more memory and less waiting than at the mark that it crossed.
//! If the state of the host is unknown, it holds.
//!
//! # Units
//! Memory in bytes, times in [`Nanos`], waiting as a share of time from 0 to 1.
//!
//! # Source
//! Euro-Par'11 §5.2: reprovisioned memory can be wanted back at any time. Kernel documentation,
//! `accounting/psi.rst`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Nanoseconds.
pub type Nanos = u64;

const MILLISECONDS: Nanos = 1_000_000;

/// The phase of redistribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Freed memory is given.
    Giving,
    /// Nothing more is given.
    #[default]
    Holding,
    /// Given memory comes back.
    TakingBack,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Giving => "giving",
            Phase::Holding => "holding",
            Phase::TakingBack => "taking back",
        })
    }
}

/// The waiting of tasks for memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Waiting {
    /// Share of the last ten seconds.
    pub recent: f64,
    /// Since the host started.
    pub total: Nanos,
}

/// Pressure of memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// Time in which some task waited.
    pub some: Waiting,
    /// Time in which all tasks that could run waited.
    pub full: Waiting,
}

/// The state of the host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Observation {
    /// Memory of the host.
    pub total: u64,
    /// Memory that new work could have without harm to other work.
    pub available: u64,
    /// Pressure, where the kernel reports it.
    pub pressure: Option<Pressure>,
    /// Bytes of merged pages that were copied because they were written, since the host started,
    /// where the kernel counts them.
    pub copied: Option<u64>,
}

/// The marks at which the phase changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marks {
    /// With less available than this share of memory, nothing more is given.
    pub hold_below: f64,
    /// With less available than this share, given memory comes back.
    pub take_below: f64,
    /// The factor by which available memory must exceed the mark to give again.
    pub regain: f64,
    /// With some task waiting for more than this share of time, nothing more is given.
    pub some_above: f64,
    /// With all waiting for more than this share, given memory comes back.
    pub full_above: f64,
    /// Waiting counts only with less available than this share: tasks that wait while there is
    /// memory wait at limits of their own, as members do that need more memory.
    pub waiting_below: f64,
    /// Memory that writes of merged pages take within this time, at the rate since the last look,
    /// counts as not available.
    pub copies_ahead: Nanos,
    /// The calm time that is needed to go back a phase.
    pub calm: Nanos,
}

impl Marks {
    /// Marks for a host that runs other work as well.
    #[must_use]
    pub fn standard() -> Marks {
        Marks {
            hold_below: 0.10,
            take_below: 0.05,
            regain: 1.25,
            some_above: 0.10,
            full_above: 0.05,
            waiting_below: 0.5,
            copies_ahead: 10_000 * MILLISECONDS,
            calm: 10_000 * MILLISECONDS,
        }
    }
}

/// A change of phase, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The phase before.
    pub from: Phase,
    /// The phase now.
    pub to: Phase,
    /// The reason, in a few words.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Calm,
    Between,
    Hold,
    Take,
}

/// The guard.
#[derive(Debug, Clone)]
pub struct Guard {
    marks: Marks,
    phase: Phase,
    reason: String,
    /// Since when going back a phase would be allowed.
    better_since: Option<Nanos>,
    last: Option<(Nanos, Pressure)>,
    last_copied: Option<(Nanos, u64)>,
}

impl Guard {
    /// A guard that gives until there is a reason not to.
    #[must_use]
    pub fn new(marks: Marks) -> Guard {
        Guard {
            marks,
            phase: Phase::Giving,
            reason: "the start".to_owned(),
            better_since: None,
            last: None,
            last_copied: None,
        }
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The reason of the phase.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Takes the state of the host, or the reason why it is unknown. Moves by at most one phase.
    pub fn observe(&mut self, now: Nanos, seen: Result<&Observation, &str>) -> Option<Transition> {
        let (need, why) = match seen {
            Ok(seen) => self.need(now, seen),
            Err(why) => (Need::Hold, why.to_owned()),
        };
        let is_better = match self.phase {
            Phase::Giving => false,
            Phase::Holding => need == Need::Calm,
            Phase::TakingBack => need <= Need::Between,
        };
        if !is_better {
            self.better_since = None;
        }
        match (self.phase, need) {
            (Phase::Giving, Need::Hold | Need::Take) => Some(self.go(Phase::Holding, why)),
            (Phase::Holding, Need::Take) => Some(self.go(Phase::TakingBack, why)),
            _ if is_better => {
                let since = *self.better_since.get_or_insert(now);
                if now.saturating_sub(since) < self.marks.calm {
                    return None;
                }
                let to = match self.phase {
                    Phase::TakingBack => Phase::Holding,
                    Phase::Giving | Phase::Holding => Phase::Giving,
                };
                let calm = self.marks.calm / (1000 * MILLISECONDS);
                Some(self.go(to, format!("calm for {calm} s: {why}")))
            }
            _ => None,
        }
    }

    fn go(&mut self, to: Phase, reason: String) -> Transition {
        let from = std::mem::replace(&mut self.phase, to);
        self.better_since = None;
        self.reason.clone_from(&reason);
        Transition { from, to, reason }
    }

    /// The most urgent need, and its reason.
    fn need(&mut self, now: Nanos, seen: &Observation) -> (Need, String) {
        let marks = self.marks;
        let copies = self.copies_ahead(now, seen.copied);
        let share = share_of(seen.available.saturating_sub(copies), seen.total);
        let of_memory = if share < marks.take_below {
            Need::Take
        } else if share < marks.hold_below {
            Need::Hold
        } else if share < marks.hold_below * marks.regain {
            Need::Between
        } else {
            Need::Calm
        };
        let mut memory = format!("{:.1}% of memory is available", share * 100.0);
        let copies = share_of(copies, seen.total);
        if copies >= 0.001 {
            let seconds = marks.copies_ahead / (1000 * MILLISECONDS);
            memory += &format!(
                " beside {:.1}% for copies of merged pages that are written in {seconds} s",
                copies * 100.0
            );
        }
        let Some(pressure) = seen.pressure else {
            return (of_memory, memory);
        };
        let (some, full) = self.waited(now, &pressure);
        if share >= marks.waiting_below {
            return (of_memory, memory);
        }
        let of_waiting = if full > marks.full_above {
            Need::Take
        } else if some > marks.some_above {
            Need::Hold
        } else if full > marks.full_above / 2.0 || some > marks.some_above / 2.0 {
            Need::Between
        } else {
            Need::Calm
        };
        if of_waiting <= of_memory {
            return (of_memory, memory);
        }
        let waiting = format!(
            "tasks wait for memory {:.1}% of the time, all at once {:.1}%",
            some * 100.0,
            full * 100.0
        );
        (of_waiting, waiting)
    }

    /// Bytes that writes of merged pages will take soon, at the rate since the last look.
    fn copies_ahead(&mut self, now: Nanos, copied: Option<u64>) -> u64 {
        let last = std::mem::replace(&mut self.last_copied, copied.map(|copied| (now, copied)));
        let (Some(copied), Some((then, before))) = (copied, last) else {
            return 0;
        };
        let ahead = u128::from(copied.saturating_sub(before)) * u128::from(self.marks.copies_ahead);
        let elapsed = now.saturating_sub(then).max(1);
        u64::try_from(ahead / u128::from(elapsed)).unwrap_or(u64::MAX)
    }

    /// The shares of time in which some and all tasks waited: of the last ten seconds, or since the
    /// last look if that is more.
    fn waited(&mut self, now: Nanos, pressure: &Pressure) -> (f64, f64) {
        let last = self.last.replace((now, *pressure));
        let Some((then, before)) = last.filter(|(then, _)| *then < now) else {
            return (pressure.some.recent, pressure.full.recent);
        };
        let since = |now_is: Waiting, was: Waiting| {
            let waited = now_is.total.saturating_sub(was.total);
            share_of(waited, now - then).min(1.0).max(now_is.recent)
        };
        (
            since(pressure.some, before.some),
            since(pressure.full, before.full),
        )
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "compared with marks of a few percent"
)]
fn share_of(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1000 * MILLISECONDS;

    fn with(percent: u64) -> Observation {
        Observation {
            total: 1000,
            available: percent * 10,
            ..Observation::default()
        }
    }

    /// A host that gives nothing back to writes, and one where merged pages are written at this
    /// rate, in percent of memory a second.
    #[test]
    fn memory_that_writes_take_soon_is_not_given() {
        for (percent, phase) in [
            (0, Phase::Giving),
            (1, Phase::Giving),
            (4, Phase::TakingBack),
        ] {
            let mut guard = Guard::new(Marks::standard());
            for second in 0..3 {
                let seen = Observation {
                    copied: Some(second * percent * 10),
                    ..with(40)
                };
                guard.observe(second * SECOND, Ok(&seen));
            }
            assert_eq!(
                guard.phase(),
                phase,
                "{percent} % a second: {}",
                guard.reason()
            );
        }
        let mut guard = Guard::new(Marks::standard());
        for copied in [0, 40] {
            let seen = Observation {
                copied: Some(copied),
                ..with(40)
            };
            guard.observe(copied / 40 * SECOND, Ok(&seen));
        }
        let reason = "0.0% of memory is available beside 40.0% for copies of merged pages that are written in 10 s";
        assert_eq!(guard.reason(), reason);
    }

    fn pressed(some: f64, full: f64) -> Observation {
        let waiting = |recent| Waiting { recent, total: 0 };
        let (some, full) = (waiting(some), waiting(full));
        Observation {
            pressure: Some(Pressure { some, full }),
            ..with(40)
        }
    }

    /// Phases seconds apart.
    fn phases(guard: &mut Guard, seen: &[Observation]) -> Vec<Phase> {
        let at = |(second, seen): (u64, &Observation)| {
            guard.observe(second * SECOND, Ok(seen));
            guard.phase()
        };
        (1..).zip(seen).map(at).collect()
    }

    #[test]
    fn waiting_on_a_host_that_has_memory_is_not_the_hosts() {
        let waiting = pressed(1.0, 1.0);
        let mut guard = Guard::new(Marks::standard());
        let rich = Observation {
            available: 500,
            ..waiting
        };
        assert_eq!(phases(&mut guard, &[rich, rich]), [Phase::Giving; 2]);
        let mut guard = Guard::new(Marks::standard());
        assert_eq!(
            phases(&mut guard, &[waiting, waiting]),
            [Phase::Holding, Phase::TakingBack]
        );
    }

    #[test]
    fn first_it_stops_giving_then_it_takes_back() {
        let mut guard = Guard::new(Marks::standard());
        assert_eq!(
            phases(&mut guard, &[with(50), with(8), with(8), with(4), with(4)]),
            [
                Phase::Giving,
                Phase::Holding,
                Phase::Holding,
                Phase::TakingBack,
                Phase::TakingBack
            ]
        );
        let mut guard = Guard::new(Marks::standard());
        assert_eq!(
            phases(&mut guard, &[with(1), with(1)]),
            [Phase::Holding, Phase::TakingBack],
            "one phase at a time"
        );
    }

    #[test]
    fn waiting_tasks_are_a_reason_as_well_and_it_is_told() {
        let mut guard = Guard::new(Marks::standard());
        let held = guard.observe(SECOND, Ok(&pressed(0.2, 0.0))).unwrap();
        assert_eq!(
            held.reason,
            "tasks wait for memory 20.0% of the time, all at once 0.0%"
        );
        let taken = guard.observe(2 * SECOND, Ok(&pressed(0.2, 0.1))).unwrap();
        assert_eq!((taken.from, taken.to), (Phase::Holding, Phase::TakingBack));
    }

    #[test]
    fn a_stall_since_the_last_look_counts_before_the_average_shows_it() {
        let mut guard = Guard::new(Marks::standard());
        let mut seen = pressed(0.0, 0.0);
        assert_eq!(guard.observe(SECOND, Ok(&seen)), None);
        if let Some(pressure) = &mut seen.pressure {
            pressure.some.total = SECOND / 2;
        }
        let held = guard.observe(2 * SECOND, Ok(&seen)).unwrap();
        assert!(held.reason.contains("50.0%"), "{}", held.reason);
    }

    #[test]
    fn it_gives_again_only_after_a_calm_time_and_with_more_than_it_left_for() {
        let mut guard = Guard::new(Marks::standard());
        phases(&mut guard, &[with(9)]);
        for second in 2..40 {
            guard.observe(second * SECOND, Ok(&with(11)));
        }
        assert_eq!(guard.phase(), Phase::Holding, "11% is no more than enough");
        guard.observe(40 * SECOND, Ok(&with(13)));
        guard.observe(49 * SECOND, Ok(&with(13)));
        assert_eq!(guard.phase(), Phase::Holding);
        guard.observe(49 * SECOND, Ok(&with(11)));
        guard.observe(51 * SECOND, Ok(&with(13)));
        assert_eq!(guard.phase(), Phase::Holding, "calm begins anew");
        let given = guard.observe(61 * SECOND, Ok(&with(13))).unwrap();
        assert_eq!(given.reason, "calm for 10 s: 13.0% of memory is available");
        assert_eq!(guard.phase(), Phase::Giving);
    }

    #[test]
    fn marks_that_are_turned_off_never_hold() {
        let marks = Marks {
            hold_below: 0.0,
            take_below: 0.0,
            some_above: 1.0,
            full_above: 1.0,
            ..Marks::standard()
        };
        let mut guard = Guard::new(marks);
        for second in 1..30 {
            assert_eq!(guard.observe(second * SECOND, Ok(&with(0))), None);
        }
        assert_eq!(guard.phase(), Phase::Giving);
    }

    #[test]
    fn who_cannot_see_holds_and_says_why() {
        let mut guard = Guard::new(Marks::standard());
        let held = guard.observe(SECOND, Err("/proc/meminfo: gone")).unwrap();
        assert_eq!(
            (held.to, held.reason.as_str()),
            (Phase::Holding, "/proc/meminfo: gone")
        );
        assert_eq!(guard.reason(), "/proc/meminfo: gone");
        guard.observe(100 * SECOND, Err("/proc/meminfo: gone"));
        assert_eq!(guard.phase(), Phase::Holding);
    }

    proptest! {
        #[test]
        fn memory_that_wavers_between_the_marks_changes_nothing(
            seen in prop::collection::vec(50_u64..100, 60), start in prop::bool::ANY
        ) {
            let mut guard = Guard::new(Marks::standard());
            guard.observe(SECOND, Ok(&with(if start { 8 } else { 2 })));
            let phase = guard.phase();
            for (second, available) in (2..).zip(seen) {
                let seen = Observation { available, ..with(0) };
                guard.observe(second * SECOND, Ok(&seen));
                prop_assert_eq!(guard.phase(), phase);
            }
        }

        #[test]
        fn a_phase_is_left_for_its_neighbour_only_and_towards_giving_not_within_the_calm_time(
            seen in prop::collection::vec(0_u64..300, 1..200)
        ) {
            let mut guard = Guard::new(Marks::standard());
            let mut entered = 0;
            for (second, available) in (1_u64..).zip(seen) {
                let seen = Observation { available, ..with(0) };
                let Some(moved) = guard.observe(second * SECOND, Ok(&seen)) else { continue };
                prop_assert!(!moved.reason.is_empty());
                let neighbours = [moved.from, moved.to];
                prop_assert!(neighbours.contains(&Phase::Holding) && moved.from != moved.to);
                let is_back = moved.from == Phase::TakingBack || moved.to == Phase::Giving;
                prop_assert!(!is_back || second - entered >= 10);
                entered = second;
            }
        }
    }
}
