//! Every parameter of the policy: one row each (UKSM Table 1, §7).
//!
//! To add a parameter, add its row here and use the field. From the row come its option, its key in
//! the configuration, its reading, its check and what help and manual say of it; see
//! [`parameters!`](crate::parameters). Parameters that contradict each other are refused in
//! `levels.rs`.
//!
//! Shares are parts of one core or of a number of pages (0 to 1), times are [`Nanos`], sizes are
//! bytes.
//!
//! The source is UKSM Table 1, §5.2, §5.3, §6.1, §7, §8.1.2 and §8.1.3.

pub mod form;
mod governor;
mod levels;
pub mod row;
mod text;

pub(crate) use crate::command::{MILLISECOND, SECOND};
use crate::command::{Nanos, PAGE_LINES};
use form::{Form as _, count, each_level, optional, share, size, switch, time, time_or_off};
pub use governor::{Contents, Governor, Thp};
pub use row::{ParamError, Row};

const HOUR: Nanos = 3600 * SECOND;

/// Most mappings that a machine gives one frame (`UKSM_MAX_SHARERS`).
pub const MAX_SHARERS: u32 = uksm_interface::UKSM_MAX_SHARERS;

/// Most spaces that can be asked for before what they hold is merged.
pub const MAX_LEAST_SPACES: u32 = uksm_interface::UKSM_MAX_LEAST_SPACES;

crate::parameters! {
    /// The parameters of one engine. Build with [`Params::governor`] and change fields; the engine
    /// checks them all when it is made.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Params, made by governor(governor: Governor) {
        /// Share of one core the top level may use.
        cpu: f64 = governor.cpu(), share(0.002..=0.95);

        /// Share of one core the bottom level may use.
        bottom_cpu: f64 = 0.002, share(0.00001..=0.95).and("at most cpu");

        /// Levels of the ladder (N).
        ///
        /// UKSM §7: 4.
        levels: usize = 4, count(2..=8);

        /// Length of a global sampling round (t), split evenly over the levels.
        round: Nanos = governor.round(), time(MILLISECOND..=HOUR);

        /// Round time of each level, bottom first (t_l), instead of an even split.
        ///
        /// Their sum is then the length of a global round (UKSM §8.1.3).
        level_rounds: Option<Vec<Nanos>> = None,
            optional("even", each_level("times", time(MILLISECOND..=HOUR)));

        /// CPU share of each level, bottom first (p_l), instead of halving downwards from cpu.
        level_shares: Option<Vec<f64>> = None,
            optional("halving", each_level("shares", share(0.0001..=0.95)))
                .and("rising from bottom_cpu to cpu");

        /// Sleep of a sleep-scan cycle (T_s).
        ///
        /// UKSM §5.2.
        sleep: Nanos = SECOND / 50, time(MILLISECOND..=10 * SECOND);

        /// Regions with a higher share of duplicates are promoted (V_dup).
        v_dup: f64 = 0.1, share(0.001..=1.0);

        /// Regions with a higher share of broken pages are demoted (V_cow).
        ///
        /// `None` turns this filter off (UKSM §8.1.2).
        v_cow: Option<f64> = Some(0.5), optional("off", share(0.001..=1.0));

        /// Regions younger than this are left alone (V_life).
        ///
        /// 0 turns the lifetime filter off, learned lifetimes included (UKSM §8.1.3).
        v_life: Nanos = SECOND / 10, time_or_off(HOUR);

        /// Turns of hints for every `scan_runs` turns of scanning; this divides cpu between them.
        ///
        /// 0 turns hints off (XLH §4.3: 1 to 1).
        hint_runs: u32 = 1, count(0..=100);

        /// Turns of scanning for every `hint_runs` turns of hints.
        scan_runs: u32 = 1, count(1..=100);

        /// Which pages may be merged: all equal pages, none within one process, or only pages of
        /// zeros, which reveal nothing about another process.
        ///
        /// With `zero` there are no frames, and no index. Pages of zeros are merged with all three.
        merge: Contents = Contents::All, Contents::form();

        /// Only contents that at least this many processes hold become frames.
        ///
        /// 1 merges what one process alone holds, too.
        merge_spaces: u32 = 1, count(1..=MAX_LEAST_SPACES);

        /// Whether pages that lie on different nodes of memory are merged with each other.
        ///
        /// As KSM's setting of this name. With `false` a page never leaves its node by merging.
        merge_across_nodes: bool = true, switch();

        /// Cache lines of a page that are hashed.
        ///
        /// Pages that they do not distinguish are read in full; with `merge = "zero"` none is, and
        /// at least 16 lines are hashed. `None` adapts the number to the contents (UKSM §6.1).
        strength: Option<u16> = Some(4), optional("adaptive", count(1..=PAGE_LINES).of("lines"));

        /// Most memory for the index of unmerged pages.
        ///
        /// `None` is 12 bytes for each page in memory that may be merged.
        index_bytes: Option<usize> = None, optional("auto", size(1 << 16..=1 << 40));

        /// Whether huge pages are split.
        thp: Thp = Thp::Profit, Thp::form();

        /// Share of a huge page's pages that must have partners before it is split.
        thp_share: f64 = 0.25, share(0.0..=1.0);

        /// Merge also pages of mlocked mappings.
        locked: bool = false, switch();

        /// Large mappings are cut into regions of this size.
        region_bytes: u64 = 64 << 20, size(2 << 20..=1 << 40)
            .power_of_two()
            .and("in proportion to max_regions");

        /// Most regions to follow; `status` shows how much memory is left out because of this
        /// limit.
        max_regions: usize = 1 << 19, count(64..=1 << 24);

        /// Most regions of one process to follow.
        max_process_regions: usize = 1 << 16, count(64..=1 << 24);

        /// Interval between checks that the contents of frames are unchanged.
        ///
        /// A frame that has changed is given up, and the log names the processes that share it. 0
        /// turns checks off.
        patrol: Nanos = HOUR, time_or_off(1000 * HOUR);

        /// Most mappings of one frame.
        ///
        /// The machine has the same limit.
        max_sharers: u32 = MAX_SHARERS, count(2..=MAX_SHARERS);
    }
}

impl Params {
    /// So many spaces must hold what a new frame is made of.
    #[must_use]
    pub fn spaces_needed(&self) -> u32 {
        match self.merge {
            Contents::Between => self.merge_spaces.max(2),
            Contents::All | Contents::Zero => self.merge_spaces,
        }
    }
}

#[cfg(test)]
mod tests;
