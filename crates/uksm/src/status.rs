//! What the daemon says of itself.
//!
//! # Problem
//! An operator wants to know what is saved, at what price, and where it comes from; savings that
//! leave out what the daemon itself takes are no savings.
//!
//! # Approach
//! One structure that is the JSON of `uksm status --json`, and is printed for people. Pages saved
//! are the kernel's counts: mappings of frames less frames held. Zero pages have no such count,
//! because the kernel's zero page counts no mappings; the policy's count stands for them, never
//! more than the module ever zeroed. The split by self and cross-process is the policy's, of all
//! pages merged since the start.
//!
//! # Units
//! Pages are 4 KiB; times are seconds; shares are parts of one core. Each is in its field's name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Everything that `uksm status` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// How long it has run.
    pub uptime_seconds: f64,
    /// Its governor.
    pub governor: String,
    /// Whether it merges nothing.
    pub dry_run: bool,
    /// Who is merged.
    pub targets: Targets,
    /// The ladder, bottom first.
    pub levels: Vec<Level>,
    /// Pages merged.
    pub merged: Merged,
    /// Frames.
    pub frames: Frames,
    /// What it is all worth.
    pub saved: Saved,
    /// Processor time.
    pub cpu: Cpu,
    /// Memory of the daemon.
    pub memory: Memory,
    /// Hash strength.
    pub strength: Strength,
    /// Huge pages.
    pub huge: Huge,
    /// Promotions and demotions.
    pub promotions: Promotions,
    /// The module's counts.
    pub kernel: Kernel,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
    )*};
}

counts! {
    /// Who is merged.
    Targets {
        /// Processes followed.
        processes: u64,
        /// Their address spaces; fewer where processes share one.
        spaces: u64,
        /// Regions of those.
        regions: u64,
        /// Regions too young to be looked at.
        young: u64,
        /// Mappings too large to be cut before something is found in them.
        sparse_mappings: u64,
        /// Pages of mappings that nobody follows, because there are as many regions as may be.
        left_out_pages: u64,
        /// Address spaces of which something is left out.
        crowded: u64,
        /// Reads of processes that failed; what was known of those stayed.
        unread: u64,
        /// Processes that were chosen and could not be attached; each is tried again.
        failed: Vec<Failed>,
    }
    /// A process that could not be attached.
    Failed {
        /// Its id.
        pid: u32,
        /// Why.
        error: String,
    }
    /// A level of the ladder.
    Level {
        /// From 1, the bottom.
        level: u64,
        /// Share of one core it may use.
        share: f64,
        /// Length of its round.
        round_seconds: f64,
        /// Regions in it.
        regions: u64,
        /// Their pages, mapped or not.
        pages: u64,
        /// Rounds completed.
        rounds: u64,
        /// Pages sampled.
        sampled: u64,
        /// Processor time used.
        used_seconds: f64,
    }
    /// Pages merged since the start, by what with; broken ones included.
    Merged {
        /// With the zero page.
        zero: u64,
        /// With pages of the same process.
        same_process: u64,
        /// With pages of another process.
        cross_process: u64,
        /// Merged now, by the policy's belief: frames' mappings and zero pages.
        now: u64,
        /// Duplicates believed to be left.
        left: u64,
    }
    /// Frames of the domain, counted by the module for this status.
    Frames {
        /// Held.
        held: u64,
        /// Without mappings, not freed yet.
        unmapped: u64,
        /// Mappings.
        sharers: u64,
        /// Most that may be held.
        limit: u64,
    }
    /// What it is all worth, in pages: `net = frames + zero − daemon`.
    Saved {
        /// Mappings of frames less frames held.
        frames_pages: i64,
        /// Pages that are the zero page now.
        zero_pages: u64,
        /// Memory of the daemon.
        daemon_pages: u64,
        /// The sum.
        net_pages: i64,
        /// The sum in MiB.
        net_mib: f64,
    }
    /// Processor time.
    Cpu {
        /// Share of one core that may be used.
        budget_share: f64,
        /// Share used lately.
        recent_share: f64,
        /// Share used since the start.
        mean_share: f64,
        /// Used by the policy and what it made the kernel do.
        used_seconds: f64,
        /// Of that, for finding processes and mappings.
        discovery_seconds: f64,
        /// Used by the daemon altogether, starting up and answering included.
        process_seconds: f64,
    }
    /// Memory of the daemon.
    Memory {
        /// All of it.
        resident_bytes: u64,
        /// Both indexes.
        index_bytes: u64,
        /// Pages in the index of unmerged pages.
        index_entries: u64,
        /// What is kept of regions and spaces.
        region_bytes: u64,
        /// Calls that the kernel had no memory for; nothing was lost, they are tried again.
        shortages: u64,
    }
    /// Hash strength.
    Strength {
        /// Cache lines of a page that are hashed now.
        lines: u64,
        /// How often that changed.
        changes: u64,
    }
    /// Huge pages.
    Huge {
        /// Split by the module.
        splits: u64,
        /// Judged worth a split by the policy.
        worth: u64,
        /// Left whole because too few of their pages had partners.
        kept: u64,
    }
    /// Promotions and demotions, and what held regions back.
    Promotions {
        /// Steps upwards.
        promoted: u64,
        /// Moves upwards over several levels.
        leapt: u64,
        /// Steps downwards.
        demoted: u64,
        /// Returns to the bottom with nothing left to merge.
        finished: u64,
        /// Returns to the bottom because merged pages were written too fast.
        cow_broken: u64,
        /// Regions not looked at because their kind dies young.
        held_young: u64,
    }
    /// The module's counts of this domain, and their equation:
    /// `tried == merged + already + zeroed + differed + busy + gone + full + refused`.
    Kernel {
        /// Entries of folds.
        tried: u64,
        /// Now map a frame.
        merged: u64,
        /// Did before.
        already: u64,
        /// Now map the zero page.
        zeroed: u64,
        /// Have other contents.
        differed: u64,
        /// Were in use.
        busy: u64,
        /// Were no longer there.
        gone: u64,
        /// Met a limit.
        full: u64,
        /// Are never merged.
        refused: u64,
        /// Given their own copy again by a break.
        broken: u64,
        /// Pages whose contents were sampled.
        sampled: u64,
        /// Frames made.
        frames_made: u64,
        /// Those of them that an earlier daemon had left.
        adopted: u64,
        /// Frames freed, by request or because memory was short.
        frames_freed: u64,
        /// Those of them given up because their memory had failed.
        poisoned: u64,
        /// Zero pages that the kernel itself freed when a huge page was split.
        split_zeroed: u64,
        /// Whether the equation holds.
        equation_holds: bool,
    }
}

impl Kernel {
    /// Takes the counts over and tries the equation.
    #[must_use]
    pub fn new(info: &uksm_linux::module::Info) -> Kernel {
        let outcomes = [
            info.merged,
            info.already,
            info.zeroed,
            info.differed,
            info.busy,
            info.gone,
            info.full,
            info.refused,
        ];
        Kernel {
            tried: info.tried,
            merged: info.merged,
            already: info.already,
            zeroed: info.zeroed,
            differed: info.differed,
            busy: info.busy,
            gone: info.gone,
            full: info.full,
            refused: info.refused,
            broken: info.broken,
            sampled: info.sampled,
            frames_made: info.frames_made,
            adopted: info.adopted,
            frames_freed: info.frames_freed,
            poisoned: info.poisoned,
            split_zeroed: info.split_zeroed,
            equation_holds: info.tried == outcomes.iter().sum::<u64>(),
        }
    }
}

impl Saved {
    /// Adds up what is saved and what it takes.
    #[must_use]
    pub fn new(frames: &Frames, zero_pages: u64, resident_bytes: u64) -> Saved {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let frames_pages = signed(frames.sharers) - signed(frames.held);
        let daemon_pages = resident_bytes / uksm_policy::command::PAGE_SIZE;
        let net_pages = frames_pages + signed(zero_pages) - signed(daemon_pages);
        Saved {
            frames_pages,
            zero_pages,
            daemon_pages,
            net_pages,
            net_mib: mib(net_pages),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for reading, not for counting on"
)]
fn mib(pages: i64) -> f64 {
    pages as f64 / 256.0
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |n: u64| mib(i64::try_from(n).unwrap_or(i64::MAX));
        let dry = if self.dry_run {
            ", dry run: nothing is merged"
        } else {
            ""
        };
        let Status {
            version,
            pid,
            governor,
            ..
        } = self;
        writeln!(f, "uksm {version}, process {pid}, governor {governor}{dry}")?;
        writeln!(f, "running    {:.0} s", self.uptime_seconds)?;
        let s = &self.saved;
        writeln!(
            f,
            "saved      {:.1} MiB net = {:.1} by frames + {:.1} by zero pages - {:.1} daemon",
            s.net_mib,
            mib(s.frames_pages),
            signed(s.zero_pages),
            signed(s.daemon_pages)
        )?;
        let m = &self.merged;
        writeln!(
            f,
            "merged     {} zero, {} same process, {} cross process pages since start; {} now, {} left",
            m.zero, m.same_process, m.cross_process, m.now, m.left
        )?;
        let (r, k) = (&self.frames, &self.kernel);
        writeln!(
            f,
            "frames     {} of {} held, {} mappings, {} unmapped; {} adopted, {} failed",
            r.held, r.limit, r.sharers, r.unmapped, k.adopted, k.poisoned
        )?;
        let c = &self.cpu;
        writeln!(
            f,
            "processor  {} lately, {} on average, of {}; {:.2} s, of which discovery {:.2} s",
            percent(c.recent_share),
            percent(c.mean_share),
            percent(c.budget_share),
            c.used_seconds,
            c.discovery_seconds
        )?;
        let memory = &self.memory;
        writeln!(
            f,
            "daemon     {:.1} MiB resident: indexes {:.1} ({} entries), regions {:.1}",
            signed(memory.resident_bytes / 4096),
            signed(memory.index_bytes / 4096),
            memory.index_entries,
            signed(memory.region_bytes / 4096)
        )?;
        if memory.shortages > 0 {
            writeln!(
                f,
                "           {} calls had to wait for memory",
                memory.shortages
            )?;
        }
        let t = &self.targets;
        writeln!(
            f,
            "targets    {} processes, {} spaces, {} regions ({} young), {} sparse mappings",
            t.processes, t.spaces, t.regions, t.young, t.sparse_mappings
        )?;
        if t.crowded > 0 {
            writeln!(
                f,
                "           {} pages of {} spaces are left out: more regions than may be followed",
                t.left_out_pages, t.crowded
            )?;
        }
        if t.unread > 0 {
            writeln!(
                f,
                "           {} times a process could not be read and was taken as it was",
                t.unread
            )?;
        }
        for failed in &t.failed {
            writeln!(f, "           process {}: {}", failed.pid, failed.error)?;
        }
        let Strength { lines, changes } = &self.strength;
        writeln!(f, "strength   {lines} of 64 lines, {changes} changes")?;
        let h = &self.huge;
        writeln!(
            f,
            "huge pages {} split, {} worth it, {} kept; {} pages of zeros freed by splits",
            h.splits, h.worth, h.kept, k.split_zeroed
        )?;
        let v = &self.promotions;
        writeln!(
            f,
            "promotions {} up, {} leaps, {} down, {} finished, {} broken by writes, {} held young",
            v.promoted, v.leapt, v.demoted, v.finished, v.cow_broken, v.held_young
        )?;
        writeln!(
            f,
            "level  share    round    regions       pages     rounds      sampled   used"
        )?;
        for level in &self.levels {
            writeln!(
                f,
                "{:>5}  {:<8} {:<8} {:>7} {:>11} {:>10} {:>12}   {:.2} s",
                level.level,
                percent(level.share),
                format!("{:.3} s", level.round_seconds),
                level.regions,
                level.pages,
                level.rounds,
                level.sampled,
                level.used_seconds
            )?;
        }
        let sign = if k.equation_holds { "=" } else { "IS NOT" };
        write!(
            f,
            "kernel     tried {} {sign} merged {} + already {} + zeroed {} + differed {} + busy {} + \
             gone {} + full {} + refused {}",
            k.tried, k.merged, k.already, k.zeroed, k.differed, k.busy, k.gone, k.full, k.refused
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_linux::module::Info;

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
        assert!(Kernel::new(&info).equation_holds);
        info.gone += 1;
        assert!(!Kernel::new(&info).equation_holds);
    }

    #[test]
    fn savings_are_net_of_frames_and_daemon() {
        let frames = Frames {
            held: 10,
            unmapped: 2,
            sharers: 100,
            ..Frames::default()
        };
        let saved = Saved::new(&frames, 5, 20 * 4096);
        assert_eq!((saved.frames_pages, saved.net_pages), (90, 75));
        let nothing = Saved::new(&Frames::default(), 0, 256 * 4096);
        assert_eq!((nothing.net_pages, nothing.net_mib), (-256, -1.0));
    }
}
