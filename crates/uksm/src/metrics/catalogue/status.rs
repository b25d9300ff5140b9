//! Rows about the status of a worker, or of a daemon without groups.
//!
//! # Units
//! Pages in memory now are exported in bytes; events on pages are counted in pages.

use uksm_policy::command::PAGE_SIZE;
use uksm_policy::report::LevelReport;

use super::{MetricValue, Row, Sample, each, known, one};
use crate::account::Amounts;
use crate::status::Status;

type StatusRow = Row<Status>;

/// All rows.
pub(in crate::metrics) fn rows() -> Vec<Row<Status>> {
    [
        savings(),
        merging(),
        targets(),
        ladder(),
        costs(),
        hints(),
        faults(),
        ledger(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE)
}

fn signed_bytes(pages: i64) -> i64 {
    pages.saturating_mul(i64::try_from(PAGE_SIZE).unwrap_or(i64::MAX))
}

/// A figure for each level.
fn by_level(status: &Status, figure: fn(&LevelReport) -> MetricValue) -> Vec<Sample> {
    let levels = status.levels.iter();
    levels
        .map(|level| (level.level.to_string(), figure(level)))
        .collect()
}

fn savings() -> Vec<StatusRow> {
    vec![
        StatusRow::gauge(
            "saved",
            "Memory saved by merging, by kind of page: mappings of frames less \
                    frames, and mappings of the zero page",
            |status| {
                let frames = signed_bytes(status.saved.frames_pages);
                let zero = bytes(status.saved.zero_pages);
                vec![
                    ("frames".to_owned(), frames.into()),
                    ("zero".to_owned(), zero.into()),
                ]
            },
        )
        .unit("bytes")
        .by("by"),
        StatusRow::gauge(
            "net_saved",
            "The same less the memory of the worker",
            |status| one(signed_bytes(status.saved.net_pages)),
        )
        .unit("bytes"),
        StatusRow::gauge(
            "merged_now",
            "Memory that is merged now: mappings of frames and of the zero page",
            |status| one(bytes(status.merged.pages.now)),
        )
        .unit("bytes"),
        StatusRow::gauge("left", "Duplicates believed to be left", |status| {
            one(bytes(status.merged.duplicates.left))
        })
        .unit("bytes"),
        StatusRow::gauge("frames", "Frames held", |status| one(status.frames.held)),
        StatusRow::gauge("node_frames", "Frames on each node of memory", |status| {
            let nodes = status.frames.by_node.iter().enumerate();
            nodes
                .map(|(node, &frames)| (node.to_string(), frames.into()))
                .collect()
        })
        .by("node"),
        StatusRow::gauge("frames_limit", "Most frames that may be held", |status| {
            one(status.frames.limit)
        }),
        StatusRow::gauge(
            "machine_frames",
            "Frames of all domains of the machine; the same for each group",
            |status| one(status.frames.machine),
        ),
        StatusRow::gauge(
            "machine_frames_limit",
            "Most frames of all domains",
            |status| one(status.frames.machine_limit),
        ),
        StatusRow::gauge("frame_mappings", "Mappings of frames", |status| {
            one(status.frames.sharers)
        }),
        StatusRow::gauge(
            "frames_with_one_mapping",
            "Frames with one mapping, which save nothing, not given back yet",
            |status| one(status.frames.single),
        ),
        StatusRow::gauge(
            "frames_unmapped",
            "Frames without mappings, not freed yet",
            |status| one(status.frames.unmapped),
        ),
    ]
}

fn merging() -> Vec<StatusRow> {
    vec![
        StatusRow::counter(
            "merged_pages",
            "Pages merged, by what they were merged with; those broken since included",
            |status| {
                let pages = &status.merged.pages;
                each([
                    ("zero", pages.zero),
                    ("same_process", pages.same_process),
                    ("cross_process", pages.cross_process),
                ])
            },
        )
        .by("with"),
        StatusRow::counter(
            "tried_pages",
            "Pages that were to be merged, by what became of them",
            |status| {
                let of = &status.kernel.outcomes;
                each([
                    ("merged", of.merged),
                    ("already", of.already),
                    ("zeroed", of.zeroed),
                    ("differed", of.differed),
                    ("busy", of.busy),
                    ("gone", of.gone),
                    ("full", of.full),
                    ("refused", of.refused),
                ])
            },
        )
        .by("outcome"),
        StatusRow::counter(
            "broken_pages",
            "Pages that the daemon gave their own copies, those given back included",
            |status| one(status.kernel.counts.broken),
        ),
        StatusRow::counter(
            "group_written_pages",
            "Merged pages that processes of the group wrote or unmapped: a lower bound, and late",
            |status| one(status.merged.pages.written),
        ),
        StatusRow::counter(
            "given_back_pages",
            "Pages that the daemon gave their own copies because nothing else mapped their frame",
            |status| one(status.kernel.counts.given_back),
        ),
        StatusRow::counter(
            "parted_pages",
            "Pages given their own copy because their process left the group, or came from another one",
            |status| one(status.targets.parted_pages),
        ),
        StatusRow::counter(
            "frames_made",
            "Frames made, those taken over from an earlier daemon included",
            |status| one(status.kernel.counts.frames_made),
        ),
        StatusRow::counter(
            "frames_adopted",
            "Frames taken over from an earlier daemon",
            |status| one(status.kernel.counts.adopted),
        ),
        StatusRow::counter(
            "frames_freed",
            "Frames freed, by request or because memory was short",
            |status| one(status.kernel.counts.frames_freed),
        ),
        StatusRow::counter(
            "huge_splits",
            "Huge pages split to merge pages of them",
            |status| one(status.huge.splits),
        ),
        StatusRow::counter(
            "huge_kept",
            "Blocks of huge pages left whole because too few of their pages had partners",
            |status| one(status.huge.policy.kept),
        ),
        StatusRow::counter(
            "huge_again",
            "How often the kernel has made a huge page again of zeros that were merged",
            |status| one(status.huge.policy.again),
        ),
        StatusRow::counter(
            "split_zeroed_pages",
            "Zero pages that the kernel itself freed when a huge page was split",
            |status| one(status.kernel.counts.split_zeroed),
        ),
    ]
}

fn targets() -> Vec<StatusRow> {
    vec![
        StatusRow::gauge("processes", "Processes followed", |status| {
            one(status.targets.processes)
        }),
        StatusRow::gauge("spaces", "Address spaces followed", |status| {
            one(status.targets.spaces.spaces)
        }),
        StatusRow::gauge(
            "spaces_unlisted",
            "Address spaces whose mappings were not listed yet",
            |status| one(status.targets.spaces.unlisted),
        ),
        StatusRow::gauge(
            "left_out",
            "Memory left out because of max_regions or max_process_regions",
            |status| one(bytes(status.targets.spaces.left_out_pages)),
        )
        .unit("bytes"),
        StatusRow::gauge(
            "followed_resident",
            "Memory of all regions that is believed to be in memory",
            |status| one(bytes(status.targets.regions.resident_pages)),
        )
        .unit("bytes"),
        StatusRow::gauge(
            "regions_young",
            "Regions still too young to be looked at",
            |status| one(status.targets.regions.young),
        ),
        StatusRow::gauge(
            "processes_failed",
            "Processes that were named and could not be attached; each is tried again",
            |status| one(u64::try_from(status.targets.failed.len()).unwrap_or(u64::MAX)),
        ),
        StatusRow::gauge(
            "processes_locked",
            "Processes that have held their own locks for long, so that their memory cannot be \
             examined",
            |status| one(status.targets.locked_processes),
        ),
        StatusRow::counter(
            "lock_timeouts",
            "Calls that gave up on a process that holds its own locks; each is made again",
            |status| one(status.targets.lock_timeouts),
        ),
        StatusRow::gauge(
            "processes_told",
            "Whether the kernel reports new processes by events: 1 or 0",
            |status| one(status.targets.told),
        ),
        StatusRow::counter(
            "process_events_lost",
            "Losses of process events; each time all processes were searched",
            |status| one(status.targets.events_lost),
        ),
    ]
}

fn ladder() -> Vec<StatusRow> {
    vec![
        StatusRow::gauge(
            "regions",
            "Regions followed, by their level of the ladder, from 1, the bottom",
            |status| by_level(status, |level| level.regions.into()),
        )
        .by("level"),
        StatusRow::gauge(
            "region_size",
            "Memory of the regions of a level, mapped or not",
            |status| by_level(status, |level| bytes(level.pages).into()),
        )
        .unit("bytes")
        .by("level"),
        StatusRow::gauge(
            "level_budget",
            "Share of one core that the level may use",
            |status| by_level(status, |level| level.share.into()),
        )
        .unit("ratio")
        .by("level"),
        StatusRow::gauge("level_round", "Length of the level's round", |status| {
            by_level(status, |level| level.round_seconds.into())
        })
        .unit("seconds")
        .by("level"),
        StatusRow::counter("level_rounds", "Rounds completed", |status| {
            by_level(status, |level| level.rounds.into())
        })
        .by("level"),
        StatusRow::counter(
            "level_sampled_pages",
            "Pages sampled for the level",
            |status| by_level(status, |level| level.sampled.into()),
        )
        .by("level"),
        StatusRow::counter("level_cpu", "CPU time used for the level", |status| {
            by_level(status, |level| level.used_seconds.into())
        })
        .unit("seconds")
        .by("level"),
        StatusRow::counter(
            "region_moves",
            "Moves of regions on the ladder, and regions held back, by \
                      cause; cow_broken: merged pages are written too fast",
            |status| {
                let of = &status.promotions;
                each([
                    ("promoted", of.promoted),
                    ("leapt", of.leapt),
                    ("demoted", of.demoted),
                    ("finished", of.finished),
                    ("cow_broken", of.cow_broken),
                    ("held_young", of.held_young),
                    ("died_young", of.died_young),
                ])
            },
        )
        .by("cause"),
        StatusRow::counter("swept_pages", "Pages read by first sweeps", |status| {
            one(status.sampling.swept_first)
        }),
        StatusRow::gauge(
            "hash_lines",
            "Cache lines of a page that are hashed now, of 64",
            |status| one(u64::from(status.strength.lines)),
        ),
        StatusRow::counter("hash_line_changes", "How often that changed", |status| {
            one(status.strength.changes)
        }),
    ]
}

fn costs() -> Vec<StatusRow> {
    vec![
        StatusRow::counter(
            "cpu",
            "CPU time of the worker altogether, or of a daemon without groups",
            |status| one(status.cpu.process_seconds),
        )
        .unit("seconds"),
        StatusRow::counter(
            "discovery_cpu",
            "CPU time for finding processes and mappings",
            |status| one(status.cpu.policy.discovery_seconds),
        )
        .unit("seconds"),
        StatusRow::gauge("cpu_used", "Share of one core used lately", |status| {
            one(status.cpu.policy.recent_share)
        })
        .unit("ratio"),
        StatusRow::gauge(
            "cpu_budget",
            "Share of one core that may be used",
            |status| one(status.cpu.policy.budget_share),
        )
        .unit("ratio"),
        StatusRow::gauge(
            "memory",
            "All memory of the worker, or of a daemon without groups",
            |status| one(status.memory.resident_bytes),
        )
        .unit("bytes"),
        StatusRow::gauge(
            "index",
            "Of that, both indexes and the table of frames",
            |status| one(status.memory.index.index_bytes),
        )
        .unit("bytes"),
        StatusRow::gauge(
            "index_entries",
            "Pages in the index of unmerged pages",
            |status| one(status.memory.index.index_entries),
        ),
        StatusRow::gauge(
            "region_memory",
            "Of that, the tables of regions and address spaces",
            |status| one(status.memory.regions.region_bytes),
        )
        .unit("bytes"),
        StatusRow::counter(
            "shortages",
            "Calls that the kernel had no memory for; each is tried again",
            |status| one(status.memory.shortages),
        ),
    ]
}

fn hints() -> Vec<StatusRow> {
    vec![
        StatusRow::counter("hints", "Hints of I/O, by what became of them before they were followed", |status| {
            let of = &status.hints.policy;
            each([("taken", of.taken), ("lost", of.lost), ("refused", of.refused)])
        })
        .by("outcome"),
        StatusRow::counter("hint_pages", "Pages of hints, by what became of them", |status| {
            let of = &status.hints.policy;
            each([
                ("again", of.again_pages),
                ("aged", of.aged_pages),
                ("left_out", of.left_out_pages),
                ("useless", of.useless_pages),
                ("gone", of.gone_pages),
                ("nowhere", of.nowhere_pages),
                ("sampled", of.sampled_pages),
                ("expected", of.expected_pages),
            ])
        })
        .by("outcome"),
        StatusRow::counter("hint_merged_pages", "Pages merged because of a hint, by how soon after it", |status| {
            let of = &status.hints.policy;
            each([
                ("100ms", of.merged_within_100_ms),
                ("1s", of.merged_within_1_s),
                ("10s", of.merged_within_10_s),
                ("later", of.merged_after_10_s),
            ])
        })
        .by("within"),
        StatusRow::gauge("hint_waiting_pages", "Pages of hints that wait", |status| one(status.hints.policy.waiting_pages)),
        StatusRow::counter("hint_grown", "Hints that memory has appeared in a process", |status| {
            one(status.hints.policy.grown)
        }),
        StatusRow::counter("hint_cpu", "CPU time used for hints", |status| one(status.hints.policy.used_seconds)).unit("seconds"),
        StatusRow::counter("hint_program_cpu", "CPU time of the programs in the kernel, which those who read and write spend; in no budget", |status| {
            one(status.hints.program_seconds)
        })
        .unit("seconds"),
    ]
}

fn faults() -> Vec<StatusRow> {
    vec![
        StatusRow::counter(
            "frames_poisoned",
            "Frames given up because their memory had failed",
            |status| one(status.kernel.counts.poisoned),
        ),
        StatusRow::counter(
            "frames_changed",
            "Frames given up because their contents had changed",
            |status| one(status.kernel.counts.changed),
        ),
        StatusRow::gauge(
            "equation_holds",
            "Whether the module's counts of pages tried add up: 1 or 0, which is a bug to report",
            |status| one(status.kernel.equation_holds),
        ),
        StatusRow::counter(
            "unread",
            "Failed reads of processes; what was known of these processes is kept",
            |status| one(status.targets.unread),
        ),
    ]
}

/// A total of the ledger, if it has records of the group.
fn total<F: Into<MetricValue>>(status: &Status, figure: fn(&Amounts) -> F) -> Vec<Sample> {
    let has_records = status.ledger.seconds > 0.0;
    known(has_records.then(|| figure(&status.ledger)))
}

/// A total of the ledger, which continues over restarts.
fn ledger() -> Vec<StatusRow> {
    vec![
        StatusRow::counter(
            "ledger",
            "Time for which the group has been accounted; all of ledger \
                      continues over restarts of workers and daemon",
            |status| total(status, |of| of.seconds),
        )
        .unit("seconds"),
        StatusRow::counter("ledger_cpu", "CPU time of its workers", |status| {
            total(status, |of| of.cpu_seconds)
        })
        .unit("seconds"),
        StatusRow::counter("ledger_saved", "Bytes saved, times seconds", |status| {
            total(status, |of| of.saved_byte_seconds)
        })
        .unit("byte_seconds"),
        StatusRow::counter(
            "ledger_worker",
            "Bytes of its workers' memory, times seconds",
            |status| total(status, |of| of.worker_byte_seconds),
        )
        .unit("byte_seconds"),
        StatusRow::counter(
            "ledger_index",
            "Bytes of its workers' indexes, times seconds",
            |status| total(status, |of| of.index_byte_seconds),
        )
        .unit("byte_seconds"),
        StatusRow::counter("ledger_frame", "Bytes of frames, times seconds", |status| {
            total(status, |of| of.frame_byte_seconds)
        })
        .unit("byte_seconds"),
        StatusRow::counter(
            "ledger_held",
            "Freed bytes that members held, times seconds",
            |status| total(status, |of| of.held_byte_seconds),
        )
        .unit("byte_seconds"),
        StatusRow::counter(
            "ledger_merged_pages",
            "Pages merged, with frames or with the zero page",
            |status| total(status, |of| of.merged_pages),
        ),
        StatusRow::counter(
            "ledger_broken_pages",
            "Pages that the daemon gave their own copies, those given back included",
            |status| total(status, |of| of.broken_pages),
        ),
        StatusRow::counter(
            "ledger_written_pages",
            "Merged pages that processes of the group wrote or unmapped",
            |status| total(status, |of| of.written_pages),
        ),
        StatusRow::counter("ledger_freed_frames", "Frames freed", |status| {
            total(status, |of| of.freed_frames)
        }),
        StatusRow::counter(
            "ledger_restarts",
            "Workers that had died and were replaced",
            |status| total(status, |of| of.restarts),
        ),
        StatusRow::counter(
            "ledger_given",
            "Bytes by which members were made larger",
            |status| total(status, |of| of.given_bytes),
        )
        .unit("bytes"),
        StatusRow::counter(
            "ledger_hint_merged_pages",
            "Pages merged because of a hint, by how soon after it",
            |status| {
                let of = &status.ledger;
                if of.seconds == 0.0 {
                    return Vec::new();
                }
                each([
                    ("100ms", of.hint_merged_within_100_ms),
                    ("1s", of.hint_merged_within_1_s),
                    ("10s", of.hint_merged_within_10_s),
                    ("later", of.hint_merged_after_10_s),
                ])
            },
        )
        .by("within"),
        StatusRow::counter(
            "ledger_taken_back",
            "Bytes by which members were made smaller again",
            |status| total(status, |of| of.taken_back_bytes),
        )
        .unit("bytes"),
    ]
}
