//! Every parameter of the policy, its default and its bounds (UKSM Table 1, §7).

use crate::command::Nanos;

/// How huge pages are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thp {
    /// Huge pages are read and never split.
    Never,
    /// A huge page is split where enough of its sampled pages have partners.
    Profit,
}

/// How eager the engine is: a named set of shares and round times (UKSM §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Governor {
    /// 95 % of a core, a round in 2 s.
    Full,
    /// 47.5 %, 4 s.
    Medium,
    /// 23.75 %, 8 s.
    Low,
    /// 1 %, 20 s.
    Quiet,
}

/// The parameters of one engine. Build with [`Params::governor`] and change fields; the engine
/// checks them all when it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Share of one core the top level may use, 0.002 to 0.95.
    pub cpu: f64,
    /// Share of one core the bottom level may use.
    pub bottom_cpu: f64,
    /// Number of levels of the ladder, 2 to 8 (UKSM §7: 4).
    pub levels: usize,
    /// Length of a global sampling round, split evenly over the levels.
    pub round: Nanos,
    /// Round time of each level, bottom first, instead of an even split (UKSM §8.1.3).
    pub level_rounds: Option<Vec<Nanos>>,
    /// CPU share of each level, bottom first, instead of halving downwards from `cpu`.
    pub level_shares: Option<Vec<f64>>,
    /// T_s, the sleep of a sleep-scan cycle (UKSM §5.2).
    pub sleep: Nanos,
    /// V_dup: regions with a higher share of duplicates are promoted.
    pub v_dup: f64,
    /// V_cow: regions of which a higher share of merged pages is broken are demoted; `None`
    /// turns this filter off (UKSM §8.1.2).
    pub v_cow: Option<f64>,
    /// V_life: regions younger than this are left alone; 0 turns the lifetime filter off, learned
    /// lifetimes included (UKSM §8.1.3).
    pub v_life: Nanos,
    /// Hash strength in lines, 1 to 64; `None` adapts it (UKSM §6.1).
    pub strength: Option<u16>,
    /// Bytes the index of unmerged pages may take.
    pub index_bytes: usize,
    /// How huge pages are treated.
    pub thp: Thp,
    /// Share of a huge page's pages that must have partners before it is split.
    pub thp_share: f64,
    /// Merge pages of mlocked mappings, too.
    pub locked: bool,
    /// Large mappings are cut into regions of this many bytes, a power of two, at least 2 MiB.
    pub region_bytes: u64,
}

impl Params {
    /// The parameters of a governor (UKSM §7).
    #[must_use]
    pub fn governor(governor: Governor) -> Params {
        const SECOND: Nanos = 1_000_000_000;
        let (cpu, round) = match governor {
            Governor::Full => (0.95, 2 * SECOND),
            Governor::Medium => (0.475, 4 * SECOND),
            Governor::Low => (0.2375, 8 * SECOND),
            Governor::Quiet => (0.01, 20 * SECOND),
        };
        Params {
            cpu,
            bottom_cpu: 0.002,
            levels: 4,
            round,
            level_rounds: None,
            level_shares: None,
            sleep: SECOND / 50,
            v_dup: 0.1,
            v_cow: Some(0.5),
            v_life: SECOND / 10,
            strength: None,
            index_bytes: 64 << 20,
            thp: Thp::Profit,
            thp_share: 0.25,
            locked: false,
            region_bytes: 64 << 20,
        }
    }
}
