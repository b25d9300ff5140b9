//! The faults of a simulated host, their rates, and the number of strikes of each.
//!
//! # Problem
//! A run proves something about a fault only if the fault happened in it.
//!
//! # Approach
//! Each kind of fault has a rate and is counted when it strikes. The host calls [`Faults::strikes`]
//! where a fault can strike. A fault with rate 0 draws no random number, so that leaving one out
//! changes little else in a run.
//!
//! A [`Canary`] is not a fault: it is wrong behaviour of the host or of its books that must never
//! occur, and that a checker must notice.

use uksm_policy::mix::SplitMix64;

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A page was written right after it was sampled: the hash is of the contents before.
    StaleSample,
    /// Different contents with equal hashes, in some lines or in all.
    Collision,
    /// A page is in use at the time of the merge.
    Busy,
    /// A page is discarded just before it is merged.
    Gone,
    /// The address space is locked: its pages cannot be read.
    Locked,
    /// A space ends, and another one of the same kind has its mappings at the same addresses at
    /// once.
    ReusedProcess,
    /// A mapping goes, and another one lies at its address at once.
    ReusedAddress,
    /// A SAMPLE is interrupted: it answers for fewer pages.
    PartialSample,
    /// A FOLD is interrupted: it tries fewer pages.
    PartialFold,
    /// A process begins, and the engine is notified later.
    LostArrival,
    /// A process ends, and the engine is notified later.
    LostExit,
    /// The clock jumps ahead, as after a suspended machine wakes.
    ClockAhead,
    /// The clock goes back.
    ClockBack,
    /// No file descriptor is left to follow a process with.
    TooManyFiles,
    /// The domain has reached its limit of frames, for a while.
    FullDomain,
    /// The module does nothing for a while: there is no memory, or it is being replaced.
    ModuleGone,
    /// Mappings cannot be read.
    Unread,
    /// Frames without mappings are freed, and their ids are given again.
    Shrunk,
    /// A hint names memory that is not there, or cannot be.
    WrongHint,
    /// A hint is lost.
    LostHint,
    /// The machine reports that memory is short.
    ShortMemory,
    /// A space has no memory for copies of pages that are given back.
    NoCopies,
}

impl Fault {
    /// All kinds, with their names.
    pub const ALL: [(Fault, &'static str); 22] = [
        (Fault::StaleSample, "stale-sample"),
        (Fault::Collision, "collision"),
        (Fault::Busy, "busy"),
        (Fault::Gone, "gone"),
        (Fault::Locked, "locked"),
        (Fault::ReusedProcess, "reused-process"),
        (Fault::ReusedAddress, "reused-address"),
        (Fault::PartialSample, "partial-sample"),
        (Fault::PartialFold, "partial-fold"),
        (Fault::LostArrival, "lost-arrival"),
        (Fault::LostExit, "lost-exit"),
        (Fault::ClockAhead, "clock-ahead"),
        (Fault::ClockBack, "clock-back"),
        (Fault::TooManyFiles, "too-many-files"),
        (Fault::FullDomain, "full-domain"),
        (Fault::ModuleGone, "module-gone"),
        (Fault::Unread, "unread"),
        (Fault::Shrunk, "shrunk"),
        (Fault::WrongHint, "wrong-hint"),
        (Fault::LostHint, "lost-hint"),
        (Fault::ShortMemory, "short-memory"),
        (Fault::NoCopies, "no-copies"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Fault::ALL[self.place()].1
    }

    /// Its place in [`Fault::ALL`].
    fn place(self) -> usize {
        self as usize
    }
}

/// Rates and counts of all faults of a run.
#[derive(Debug, Clone)]
pub struct Faults {
    random: SplitMix64,
    /// Strikes in a million chances.
    rates: [u64; Fault::ALL.len()],
    fired: [u64; Fault::ALL.len()],
}

impl Faults {
    /// No fault strikes.
    #[must_use]
    pub fn none() -> Faults {
        Faults::new(0)
    }

    /// No fault strikes yet; the seed decides when they do.
    #[must_use]
    pub fn new(seed: u64) -> Faults {
        Faults {
            random: SplitMix64::new(seed),
            rates: [0; Fault::ALL.len()],
            fired: [0; Fault::ALL.len()],
        }
    }

    /// From now on a fault strikes this often in a million chances.
    pub fn set(&mut self, fault: Fault, in_a_million: u64) {
        self.rates[fault.place()] = in_a_million;
    }

    /// Nothing strikes any more.
    pub fn stop(&mut self) {
        self.rates = [0; Fault::ALL.len()];
    }

    /// Whether a fault may strike at all.
    #[must_use]
    pub fn may_strike(&self, fault: Fault) -> bool {
        self.rates[fault.place()] > 0
    }

    /// Whether a fault strikes now; it is counted if so.
    pub fn strikes(&mut self, fault: Fault) -> bool {
        let rate = self.rates[fault.place()];
        let strikes = rate > 0 && self.random.below(1_000_000) < rate;
        if strikes {
            self.count(fault);
        }
        strikes
    }

    /// Counts a fault that struck.
    pub fn count(&mut self, fault: Fault) {
        self.fired[fault.place()] += 1;
    }

    /// A number below `bound`, for the severity of a fault.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// The number of strikes of each fault.
    #[must_use]
    pub fn fired(&self) -> Vec<(Fault, u64)> {
        let kinds = Fault::ALL.iter().zip(self.fired);
        kinds.map(|(&(fault, _), count)| (fault, count)).collect()
    }
}

/// Wrong behaviour of the simulated host or of its books, which a checker must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// Pages are merged though their contents differ.
    UnequalMerge,
    /// A page is merged with a frame of another domain.
    ForeignFrame,
    /// Mappings of frames are counted that do not exist.
    FalseSaving,
    /// The answer reports a merged page as not merged.
    WrongOutcome,
    /// Calls take more processor time than the host reports.
    HiddenCost,
    /// The reported hashes are wrong.
    WrongHash,
    /// The engine may use more memory than it should need.
    Hoard,
    /// The number of spaces behind a new frame is not counted.
    FewSpaces,
    /// Pages of different nodes of memory are merged.
    AcrossNodes,
    /// The engine merges pages within one space, too.
    SelfSharing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_stands_at_its_place_in_the_list() {
        for (place, (fault, name)) in Fault::ALL.into_iter().enumerate() {
            assert_eq!((fault.place(), fault.name()), (place, name));
        }
    }

    #[test]
    fn a_fault_strikes_at_its_rate_and_is_counted() {
        let mut faults = Faults::new(1);
        faults.set(Fault::Busy, 250_000);
        let struck = (0..10_000).filter(|_| faults.strikes(Fault::Busy)).count();
        assert!((2300..2700).contains(&struck), "{struck}");
        assert!(!faults.strikes(Fault::Gone));
        assert_eq!(faults.fired()[2], (Fault::Busy, struck as u64));
    }
}
