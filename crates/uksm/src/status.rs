//! The daemon's status: one structure that is the JSON of `uksm status --json`, and that is also
//! printed for people.
//!
//! Its sections are reports of [`counters!`](uksm_policy::counters). The policy's reports are
//! included unchanged; counts that only the daemon or the module has are described here.
//!
//! Pages *saved* are the kernel's counts: mappings of frames less frames held. A frame with one
//! mapping saves nothing, and one without any costs a page until it is freed. Zero pages have no
//! such count, because the kernel's zero page counts no mappings. The policy's count stands for
//! them, never more than the module ever zeroed. *Net* is that less the daemon's own memory: of a
//! group its worker's; the supervisor's, which is no group's, is subtracted from the sum of all.
//! The module's is in neither: 8 bytes a frame, and up to 64 pages of a domain for its next frames.

pub(crate) mod evidence;
pub(crate) mod groups;
pub(crate) mod ksm;
pub(crate) mod ledger;
mod print;
pub(crate) mod processes;
mod redistribution;
pub(crate) mod table;
pub(crate) mod written_pages;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uksm_linux::module::{self, Info, Verb};
use uksm_policy::report::{
    Counters, CpuReport, DuplicatesReport, Field, FrameReport, HintsReport, HugeReport,
    IndexMemory, LevelReport, MergedReport, Outcomes, PromotionReport, RegionMemory, RegionsReport,
    SamplingReport, SpacesReport, StrengthReport,
};

use ledger::Amounts;

/// Declares the sections of a status: [`Status`] and their descriptions in help.
macro_rules! sections {
    ($($name:ident: $Section:ty,)+) => {
        /// Everything that `uksm status` says.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        pub(crate) struct Status {
            /// The daemon.
            #[serde(flatten)]
            pub(crate) daemon: DaemonStatus,
            $(pub(crate) $name: $Section,)+
        }

        /// The sections of a status: name in JSON, what it is about, fields. The first has no name:
        /// its fields stand beside the sections.
        pub(crate) fn sections() -> Vec<(&'static str, String, Vec<Field>)> {
            vec![
                ("", DaemonStatus::about(), DaemonStatus::fields()),
                $((stringify!($name), <$Section>::about(), <$Section>::fields()),)+
            ]
        }
    };
}

sections! {
    targets: TargetStatus,
    levels: Vec<LevelReport>,
    merged: MergeStatus,
    frames: FrameStatus,
    saved: SavingsStatus,
    cpu: CpuStatus,
    memory: MemoryStatus,
    strength: StrengthReport,
    huge: HugePageStatus,
    promotions: PromotionReport,
    sampling: SamplingReport,
    hints: HintStatus,
    outcomes: Outcomes,
    known_frames: FrameReport,
    kernel: KernelStatus,
    ledger: Amounts,
}

uksm_policy::counters! {
    /// The daemon.
    pub(crate) struct DaemonStatus {
        /// Version of the daemon.
        version: String,
        /// Its process id.
        pid: u32,
        /// How long it has run.
        uptime_seconds: f64,
        /// Its governor.
        governor: String,
        /// Whether it merges nothing.
        dry_run: bool,
    }

    /// Processes whose memory is deduplicated.
    pub(crate) struct TargetStatus {
        /// Processes followed.
        processes: u64 = "processes" or "process",
        /// Failed reads of processes, for example for lack of file descriptors; what was known of
        /// these processes is kept.
        unread: u64 = "failed reads" or "failed read" unless "0",
        /// Processes that were named and could not be attached, and why; each is tried again.
        failed: Vec<FailedProcess>,
        /// Processes that have held the lock of their own mappings for 5 s or longer, at every
        /// attempt: their memory can be neither read nor merged.
        locked_processes: u64 = "processes that hold their own locks" or "process that holds its own locks" unless "0",
        /// Those of them that have done so for the longest time, 32 at most; each is tried again.
        locked: Vec<LockedProcess>,
        /// Calls that gave up on a process because of its locks, after a tenth of a second; each is
        /// made again later.
        lock_timeouts: u64,
        /// Whether the kernel reports new processes by events; otherwise uksm searches `/proc` for
        /// them.
        told: bool,
        /// Pages that were given their own copy because their process left the group, or came from
        /// another one.
        parted_pages: u64 = "pages parted" or "page parted" unless "0",
        /// How often events were lost; each time all processes were searched.
        events_lost: u64 = "losses of events" or "loss of events" unless "0",
    }
    with {
        /// Their address spaces.
        spaces: SpacesReport,
        /// Regions of those.
        regions: RegionsReport,
    }

    /// A process that could not be attached.
    pub(crate) struct FailedProcess {
        /// Its id.
        pid: u32,
        /// Why.
        error: String,
    }

    /// A process that holds its own locks.
    pub(crate) struct LockedProcess {
        /// Its id.
        pid: u32,
        /// For how long, from the first try to the last.
        seconds: f64,
    }

    /// Pages merged since the start, by their partner, including pages broken since; and duplicates
    /// left.
    pub(crate) struct MergeStatus {
        /// Merged pages that processes of the whole host wrote since the daemon started, by the
        /// kernel's count of copies; null where KSM merges too, and of a group.
        written_on_host: Option<u64>,
    }
    with {
        /// By what they were merged with.
        pages: MergedReport,
        /// What is left.
        duplicates: DuplicatesReport,
    }

    /// Frames of the domain, counted by the module for this status. Of more than 30,000, mappings
    /// and frames by mappings are those that the policy knows of, from its last listing and its own
    /// merges.
    pub(crate) struct FrameStatus {
        /// Frames held.
        held: u64 = "held",
        /// Most frames that may be held.
        limit: u64 = "at most",
        /// Their mappings.
        sharers: u64 = "mappings" or "mapping",
        /// Frames with one mapping, which save nothing, not given back yet.
        single: u64 = "with one mapping",
        /// Frames without mappings, not freed yet.
        unmapped: u64 = "unmapped",
        /// Frames on each node of memory, from node 0; of more than 30,000, as the policy listed
        /// them last.
        by_node: Vec<u64>,
        /// Frames of all domains of the machine.
        machine: u64 = "on the machine",
        /// Most frames of all domains.
        machine_limit: u64 = "at most there",
    }

    /// Saved pages, `frames_pages + zero_pages`, and the net: `net_pages = frames_pages +
    /// zero_pages - daemon_pages`.
    pub(crate) struct SavingsStatus {
        /// Mappings of frames less frames held.
        frames_pages: i64,
        /// Merged pages that map the kernel's zero page now, at most as many as the module zeroed.
        /// Of more than 16,384 merged pages a sample is read, and this is a lower bound: it is less
        /// than the true number by at most 1.5 % of the merged pages.
        zero_pages: u64,
        /// Memory of the daemon itself.
        daemon_pages: u64,
        /// The sum.
        net_pages: i64,
        /// The sum in MiB.
        net_mib: f64,
    }

    /// CPU time.
    pub(crate) struct CpuStatus {
        /// Share of one core used since the start.
        mean_share: f64 = "on average",
        /// Used by the daemon altogether, starting up and answering included.
        process_seconds: f64,
    }
    with {
        /// What the policy booked.
        policy: CpuReport,
    }

    /// Memory of the daemon.
    pub(crate) struct MemoryStatus {
        /// All memory of the daemon.
        resident_bytes: u64 = "resident",
        /// Calls for which the kernel had no memory; each is tried again, and nothing is lost.
        shortages: u64 = "calls that had to wait for memory" or "call that had to wait for memory" unless "0",
    }
    with {
        /// Of the lookup.
        index: IndexMemory,
        /// Of regions.
        regions: RegionMemory,
    }

    /// Hints of I/O: memory that a file or block device was read into, or written from, is read
    /// first.
    pub(crate) struct HintStatus {
        /// Source of hints: `programs` in the kernel, or `nobody` with the reason.
        source: String,
        /// Functions of the kernel that cannot be watched, and why.
        unwatched: Vec<String>,
        /// Calls of followed processes that touched memory, as the programs count them.
        calls: u64 = "calls" or "call",
        /// Calls whose memory is not known, because they pass pages, which are pinned.
        other: u64,
        /// CPU time of the programs themselves, estimated from one run in 64. The processes that
        /// read and write spend it; it is in no budget.
        program_seconds: f64 = "in the programs",
    }
    with {
        /// What the policy made of them.
        policy: HintsReport,
    }

    /// Huge pages.
    pub(crate) struct HugePageStatus {
        /// Huge pages split by the module.
        splits: u64 = "split",
    }
    with {
        /// What the policy found of them.
        policy: HugeReport,
    }

    /// The module's counts since the daemon opened it. They must satisfy
    /// `tried = merged + already + zeroed + differed + busy + gone + full + refused`; the printed
    /// line says IS NOT if they do not, which is a bug to report.
    pub(crate) struct KernelStatus {
        /// Whether the equation holds.
        equation_holds: bool,
    }
    with {
        /// Both sides of the equation.
        outcomes: Outcomes,
        /// Everything else.
        counts: KernelCounts,
    }
}

/// Declares counts of the module that are taken over by their names.
macro_rules! kernel_counts {
    ($($(#[doc = $doc:literal])+ $name:ident $(= $phrase:literal or $one:literal)?,)+) => {
        uksm_policy::counters! {
            /// Counts of the module besides the outcomes of merging.
            pub(crate) struct KernelCounts {
                $($(#[doc = $doc])+ $name: u64 $(= $phrase or $one)?,)+
            }
        }

        impl KernelCounts {
            fn new(info: &Info) -> KernelCounts {
                KernelCounts { $($name: info.$name,)+ }
            }
        }
    };
}

kernel_counts! {
    /// Pages given their own copy again by a break.
    broken,
    /// Of these, pages whose frame nothing else mapped.
    given_back = "pages given back" or "page given back",
    /// Pages whose contents were sampled.
    sampled,
    /// Frames made.
    frames_made,
    /// Of these, frames that an earlier daemon had left.
    adopted = "frames adopted" or "frame adopted",
    /// Frames freed, by request or because memory was short.
    frames_freed,
    /// Frames given up because their memory had failed.
    poisoned = "frames with failed memory" or "frame with failed memory",
    /// Frames given up because their contents had changed.
    changed = "frames whose contents changed" or "frame whose contents changed",
    /// Zero pages that the kernel itself freed when a huge page was split.
    split_zeroed = "zero pages freed by splits" or "zero page freed by splits",
}

impl KernelStatus {
    /// Copies the counts and checks the equation.
    pub(crate) fn new(info: &Info) -> KernelStatus {
        let outcomes = Outcomes {
            tried: info.tried,
            merged: info.merged,
            already: info.already,
            zeroed: info.zeroed,
            differed: info.differed,
            busy: info.busy,
            gone: info.gone,
            full: info.full,
            refused: info.refused,
        };
        KernelStatus {
            equation_holds: outcomes.balances(),
            outcomes,
            counts: KernelCounts::new(info),
        }
    }
}

impl FailedProcess {
    /// A process whose attachment failed with this error.
    pub(crate) fn of(pid: u32, errno: Errno) -> FailedProcess {
        let verb = Verb::Attach;
        let error = module::Error::Call { verb, errno }.to_string();
        FailedProcess { pid, error }
    }
}

/// Maximum number of processes that are named because they hold their own locks.
const MAX_LOCKED: usize = 32;

impl TargetStatus {
    /// Adds these processes, which hold their own locks for this many seconds, to those that are
    /// named already.
    pub(crate) fn add_locked(&mut self, locked: impl Iterator<Item = (u32, f64)>) {
        for (pid, seconds) in locked {
            if self.locked.iter().any(|known| known.pid == pid) {
                continue;
            }
            self.locked_processes += 1;
            self.locked.push(LockedProcess { pid, seconds });
        }
        let longest = |a: &LockedProcess, b: &LockedProcess| b.seconds.total_cmp(&a.seconds);
        self.locked.sort_by(longest);
        self.locked.truncate(MAX_LOCKED);
    }
}

impl SavingsStatus {
    /// Adds up savings and costs.
    pub(crate) fn new(frames: &FrameStatus, zero_pages: u64, resident_bytes: u64) -> SavingsStatus {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut saved = SavingsStatus {
            frames_pages: signed(frames.sharers).saturating_sub(signed(frames.held)),
            zero_pages,
            daemon_pages: resident_bytes / uksm_policy::command::PAGE_SIZE,
            ..SavingsStatus::default()
        };
        saved.net_pages = net_pages(saved.saved_pages(), resident_bytes);
        saved.net_mib = mib(saved.net_pages);
        saved
    }

    /// Pages saved, before the daemon's memory is subtracted.
    pub(crate) fn saved_pages(&self) -> i64 {
        self.frames_pages.saturating_add_unsigned(self.zero_pages)
    }
}

/// Pages saved net of this memory of the daemon.
fn net_pages(saved_pages: i64, daemon_bytes: u64) -> i64 {
    saved_pages.saturating_sub_unsigned(daemon_bytes / uksm_policy::command::PAGE_SIZE)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for reading, not for counting on"
)]
fn mib(pages: i64) -> f64 {
    pages as f64 / 256.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equation_is_tried_and_not_believed() {
        let mut info = Info {
            tried: 36,
            merged: 1,
            already: 2,
            zeroed: 3,
            ..Info::default()
        };
        (info.differed, info.busy, info.gone, info.full, info.refused) = (4, 5, 6, 7, 8);
        assert!(KernelStatus::new(&info).equation_holds);
        info.gone += 1;
        assert!(!KernelStatus::new(&info).equation_holds);
    }

    #[test]
    fn savings_are_net_of_frames_and_daemon() {
        let frames = FrameStatus {
            held: 10,
            unmapped: 2,
            sharers: 100,
            ..FrameStatus::default()
        };
        let saved = SavingsStatus::new(&frames, 5, 20 * 4096);
        assert_eq!((saved.frames_pages, saved.net_pages), (90, 75));
        // Another frame: with one mapping it changes nothing, without any it costs a page.
        for (mappings, net) in [(101, 75), (100, 74)] {
            let more = FrameStatus {
                held: 11,
                sharers: mappings,
                ..frames.clone()
            };
            assert_eq!(SavingsStatus::new(&more, 5, 20 * 4096).net_pages, net);
        }
        let nothing = SavingsStatus::new(&FrameStatus::default(), 0, 256 * 4096);
        assert_eq!((nothing.net_pages, nothing.net_mib), (-256, -1.0));
    }

    /// Scripts read the names of JSON: none may be removed. New ones may be added.
    #[test]
    fn names_in_json_stay() {
        let status = Status {
            levels: vec![LevelReport::default()],
            ..Status::default()
        };
        let json = serde_json::to_value(&status).unwrap();
        for (section, fields) in [
            (
                "targets",
                "crowded events_lost failed left_out_pages lock_timeouts locked locked_processes processes regions resident_pages spaces \
                 sparse_mappings told unlisted unread unread_mappings young",
            ),
            (
                "levels",
                "level pages regions round_seconds rounds sampled share used_seconds",
            ),
            (
                "merged",
                "cross_process left now same_process written written_on_host zero",
            ),
            (
                "frames",
                "held limit machine machine_limit sharers unmapped",
            ),
            (
                "saved",
                "daemon_pages frames_pages net_mib net_pages zero_pages",
            ),
            (
                "cpu",
                "budget_share discovery_seconds mean_share process_seconds recent_share \
                 used_seconds",
            ),
            (
                "memory",
                "index_bytes index_entries region_bytes resident_bytes shortages",
            ),
            ("strength", "changes lines"),
            ("huge", "kept splits worth"),
            (
                "promotions",
                "cow_broken demoted died_young finished held_young leapt promoted",
            ),
            (
                "kernel",
                "adopted already broken busy differed equation_holds frames_freed frames_made \
                 changed full given_back gone merged poisoned refused sampled split_zeroed tried zeroed",
            ),
        ] {
            let value = &json[section];
            let object = value.as_object().or_else(|| value[0].as_object()).unwrap();
            for field in fields.split_whitespace() {
                assert!(object.contains_key(field), "{section}.{field}");
            }
        }
    }

    #[test]
    fn every_name_in_json_is_described_and_nothing_else() {
        let status = Status {
            levels: vec![LevelReport::default()],
            ..Status::default()
        };
        let json = serde_json::to_value(&status).unwrap();
        let mut described = sections();
        let (_, _, own) = described.remove(0);
        assert_eq!(json.as_object().unwrap().len(), own.len() + described.len());
        for (section, _, fields) in described {
            let value = &json[section];
            let object = value.as_object().or_else(|| value[0].as_object()).unwrap();
            assert_eq!(object.len(), fields.len(), "{section}");
            for field in fields {
                assert!(object.contains_key(field.name), "{section}.{}", field.name);
                assert!(!field.doc.is_empty(), "{section}.{}", field.name);
            }
        }
    }

    #[test]
    fn a_client_reads_what_the_daemon_wrote() {
        let mut status = Status {
            levels: vec![LevelReport::default(); 4],
            ..Status::default()
        };
        status.targets.failed.push(FailedProcess::default());
        let locked = (1..=40).map(|pid| (pid, f64::from(pid)));
        status.targets.add_locked(locked.chain([(1, 9.0)]));
        assert_eq!(status.targets.locked_processes, 40);
        assert_eq!(status.targets.locked.len(), MAX_LOCKED);
        assert_eq!(status.targets.locked[0].pid, 40);
        status.targets.spaces.spaces = 7;
        status.cpu.policy.recent_share = 0.25;
        status.kernel.outcomes.tried = u64::MAX;
        status.strength.lines = 8;
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }
}
