//! The daemon's evidence on one process, in the form in which it is sent.
//!
//! # Problem
//! The causes of decisions are in the engine, in the module's page tables and in the daemon's list
//! of processes. An explanation needs all of them, for a process that can have tens of thousands of
//! regions, through messages of bounded length.
//!
//! # Approach
//! An answer has at most [`MAX_REGIONS`] regions, and the beginning of the next part. Each region
//! has its standing in the engine, and the state of some of its pages when they were read for the
//! answer. The names are those of `interface/uksm.Daemon1.varlink`, which describes every field.
//!
//! # Units
//! Bytes for addresses; pages; seconds from now; shares 0 to 1.

use serde::{Deserialize, Serialize};
use uksm_policy::command::Nanos;
use uksm_policy::report::{KnownPartner, RegionReport, Standing};

/// Maximum number of regions in one answer: with the pages seen in each, they fit into a message
/// between supervisor and worker.
pub(crate) const MAX_REGIONS: usize = 48;

/// Declares an enumeration that is sent as a kebab-case string.
macro_rules! words {
    ($(#[$meta:meta])* $Name:ident { $($(#[doc = $doc:literal])+ $Variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum $Name {
            $($(#[doc = $doc])+ $Variant,)+
        }
    };
}

words! {
    /// What became of the process.
    ProcessStanding {
        /// It is followed.
        Followed,
        /// It is the daemon, or a worker of it.
        Daemon,
        /// It is a thread of the kernel.
        KernelThread,
        /// It has ended, and is not reaped.
        Ended,
        /// It was named and could not be attached.
        NotAttached,
        /// It has to part from a group first.
        Leaving,
        /// It is about to be looked at.
        Waiting,
        /// Nobody named it.
        NotChosen,
        /// It was named and excluded.
        Excluded,
        /// There is no such process.
        Gone,
    }
}

words! {
    /// What was there.
    PageKind {
        /// A page of its own.
        Own,
        /// One within a huge page.
        Huge,
        /// One that somebody holds besides the process.
        Pinned,
        /// One of an mlocked mapping, while such are not merged.
        Locked,
        /// A merged page.
        Frame,
        /// The zero page.
        Zero,
        /// A merged page of another domain.
        Foreign,
        /// A merged page of an earlier daemon.
        Orphan,
        /// A page that KSM has merged.
        Ksm,
        /// Nothing: it is swapped out.
        Swapped,
        /// Nothing: it was never touched, or given back.
        Nothing,
        /// A page of a file.
        File,
        /// A page whose memory has failed.
        Poisoned,
        /// One that the module refuses, whatever it holds.
        Refused,
        /// It could not be told just now.
        Unclear,
    }
}

words! {
    /// What a page could be merged with, as far as is known.
    Partner {
        /// Nothing.
        Unknown,
        /// The zero page.
        Zero,
        /// The zero page, where the kernel makes huge pages again of what is merged.
        HugeAgain,
        /// A frame.
        Frame,
        /// Another page, or as many as must hold the same.
        Page,
        /// Only pages of its own process, which may not be.
        OwnOnly,
        /// Fewer processes hold the same than must.
        TooFew,
    }
}

words! {
    /// Where a region stands; see [`uksm_policy::report::Standing`].
    RegionStanding {
        /// Too young.
        Young,
        /// Of a lifetime class that dies young.
        ShortLived,
        /// Nothing of it was read yet.
        Unread,
        /// Sampled at the bottom.
        Sampled,
        /// Sampled more closely.
        Rising,
        /// Being read in full.
        Swept,
        /// Read in full, and something was merged.
        Finished,
        /// Written too fast.
        CowBroken,
        /// On trial.
        OnTrial,
        /// Refused.
        Refused,
        /// Gone.
        Lost,
    }
}

/// Pages in the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sighting {
    /// Their state.
    pub(crate) what: PageKind,
    /// Possible partners.
    pub(crate) partner: Partner,
    /// Their number.
    pub(crate) pages: u64,
}

/// One region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// Its level, 1 at the bottom.
    pub(crate) level: u64,
    /// Its standing.
    pub(crate) standing: RegionStanding,
    /// Time until the standing ends, if time ends it.
    pub(crate) left_seconds: Option<f64>,
    /// Its minimum age.
    pub(crate) age_seconds: f64,
    /// Pages believed to be merged.
    pub(crate) merged: u64,
    /// All of it was read.
    pub(crate) read_in_full: bool,
    /// Pages sampled at its level.
    pub(crate) sampled: u64,
    /// Of these, those with partners.
    pub(crate) hits: u64,
    /// Share of merged pages that is written in a round.
    pub(crate) broken: f64,
    /// Number of times in a row that it was left alone because of that.
    pub(crate) strikes: u64,
    /// Pages that were busy when tried.
    pub(crate) busy: u64,
    /// Time until its pages are tried again, after many were busy.
    pub(crate) busy_left_seconds: Option<f64>,
    /// Time until zeros in huge pages are tried again, after the kernel made huge pages of such
    /// pages again.
    pub(crate) huge_again_left_seconds: Option<f64>,
    /// Pages that were read for this answer, evenly spread.
    pub(crate) read: u64,
    /// Their states.
    pub(crate) seen: Vec<Sighting>,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
}

/// Settings and circumstances that hold for all regions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// Share of a core that may be used.
    pub(crate) cpu: f64,
    /// Share that was used lately.
    pub(crate) cpu_recent: f64,
    /// Length of a global round.
    pub(crate) round_seconds: f64,
    /// `v_dup`.
    pub(crate) v_dup: f64,
    /// `v_cow`; none if it is off.
    pub(crate) v_cow: Option<f64>,
    /// `v_life`.
    pub(crate) v_life_seconds: f64,
    /// Whether huge pages are split.
    pub(crate) splits_huge_pages: bool,
    /// `thp_share`.
    pub(crate) thp_share: f64,
    /// `locked`.
    pub(crate) locked: bool,
    /// `merge`.
    pub(crate) merge: String,
    /// Number of processes that must hold the contents of a merged page.
    pub(crate) spaces_needed: u64,
    /// `dry_run`.
    pub(crate) dry_run: bool,
    /// Frames held.
    pub(crate) frames: u64,
    /// Maximum number of frames.
    pub(crate) most_frames: u64,
    /// Time until a new frame is requested again, after none could be made.
    pub(crate) no_frames_left_seconds: Option<f64>,
    /// Indexed part of the pages that may be partners.
    pub(crate) coverage: f64,
}

/// Evidence on one process, or on a part of its regions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// Its state for the daemon.
    pub(crate) place: ProcessStanding,
    /// Its group, if the daemon has groups and it is in one.
    pub(crate) group: Option<String>,
    /// Why it is not attached, or its worker does not answer: one line.
    pub(crate) fault: Option<String>,
    /// Terms that hold for all regions; none if no worker reports them.
    pub(crate) terms: Option<Terms>,
    /// Time for which it has held the lock of its own mappings at every try, if that is long.
    #[serde(default)]
    pub(crate) locked_seconds: Option<f64>,
    /// Whether its mappings were listed.
    pub(crate) is_listed: bool,
    /// Regions, ascending.
    pub(crate) regions: Vec<Region>,
    /// Sparse mappings among them.
    pub(crate) sparse: Vec<Range>,
    /// Pages that are left out, in the whole process.
    pub(crate) left_out_pages: u64,
    /// Whether any memory is left out.
    pub(crate) is_crowded: bool,
    /// Beginning of the next part, if there is one.
    pub(crate) next: Option<u64>,
}

impl Evidence {
    /// Evidence on a process that is not followed.
    pub(crate) fn of(place: ProcessStanding, fault: Option<String>) -> Evidence {
        Evidence {
            place,
            group: None,
            fault,
            terms: None,
            locked_seconds: None,
            is_listed: false,
            regions: vec![],
            sparse: vec![],
            left_out_pages: 0,
            is_crowded: false,
            next: None,
        }
    }
}

impl From<KnownPartner> for Partner {
    fn from(known: KnownPartner) -> Partner {
        match known {
            KnownPartner::Nothing => Partner::Unknown,
            KnownPartner::Zero => Partner::Zero,
            KnownPartner::HugeAgain => Partner::HugeAgain,
            KnownPartner::Frame => Partner::Frame,
            KnownPartner::Page => Partner::Page,
            KnownPartner::OwnSpace => Partner::OwnOnly,
            KnownPartner::TooFew => Partner::TooFew,
        }
    }
}

impl From<Standing> for RegionStanding {
    fn from(standing: Standing) -> RegionStanding {
        match standing {
            Standing::Young => RegionStanding::Young,
            Standing::ShortLived => RegionStanding::ShortLived,
            Standing::Unread => RegionStanding::Unread,
            Standing::Sparse => RegionStanding::Sampled,
            Standing::Rising => RegionStanding::Rising,
            Standing::Swept => RegionStanding::Swept,
            Standing::Finished => RegionStanding::Finished,
            Standing::CowBroken => RegionStanding::CowBroken,
            Standing::OnTrial => RegionStanding::OnTrial,
            Standing::Refused => RegionStanding::Refused,
            Standing::Lost => RegionStanding::Lost,
        }
    }
}

impl Region {
    /// A region in the engine's report, with the pages seen in it.
    pub(crate) fn of(report: &RegionReport, seen: Vec<Sighting>) -> Region {
        Region {
            start: report.start,
            end: report.end,
            level: report.level as u64,
            standing: report.standing.into(),
            left_seconds: report.left.map(seconds),
            age_seconds: seconds(report.age),
            merged: report.merged,
            read_in_full: report.read_in_full,
            sampled: report.sampled,
            hits: report.hits,
            broken: report.broken,
            strikes: report.strikes,
            busy: report.busy,
            busy_left_seconds: report.busy_left.map(seconds),
            huge_again_left_seconds: report.huge_again_left.map(seconds),
            read: seen.iter().map(|sighting| sighting.pages).sum(),
            seen,
        }
    }
}

/// A time in seconds.
pub(crate) fn seconds(time: Nanos) -> f64 {
    std::time::Duration::from_nanos(time).as_secs_f64()
}
