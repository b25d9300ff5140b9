//! Constants of a domain, and what its calls answer.

use uksm_policy::command::{Frame, SpaceId};
use uksm_policy::params::Contents;

use super::raw;

/// Constants of a domain; 0 keeps the module's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Seed of the line hash; 0: random.
    pub hash_seed: u64,
    /// Most frames the domain may hold; 0: a quarter of the machine's pages.
    pub frame_limit: u64,
    /// Most mappings of one frame; 0: as many as the module allows, 256; 1 is refused.
    pub sharer_limit: u32,
    /// What may be merged.
    pub merge: Contents,
    /// So many spaces must hold what a frame is made of; 0: one.
    pub least_spaces: u32,
}

impl Configuration {
    /// The flags of its policy.
    #[must_use]
    pub fn policy(&self) -> u32 {
        match self.merge {
            Contents::All => 0,
            Contents::Between => raw::UKSM_POLICY_BETWEEN,
            Contents::Zero => raw::UKSM_POLICY_ZERO,
        }
    }
}

/// An attached address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Its id.
    pub space: SpaceId,
    /// Whether this domain had it already (a thread, or a vfork child).
    pub existing: bool,
}

/// What a BREAK did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Where to go on; the end of the range when through.
    pub next: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Whether it stopped because a copy would have needed memory that is not there.
    pub stopped: bool,
}

/// Pages of a range by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Where to go on; the end of the range when through.
    pub next: u64,
    /// Pages by the number of their `PageState`.
    pub pages: [u64; 16],
    /// How many of the `Anon` ones are part of a huge page.
    pub huge: u64,
}

/// A part of the listing of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Frames, in ascending order of their ids.
    pub frames: Vec<Frame>,
    /// Where to go on; 0 when through.
    pub cursor: u32,
    /// How many of them were freed by this listing.
    pub freed: u32,
}

/// How far a list of mappings came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// To the end.
    Through,
    /// The list goes on from this address.
    Until(u64),
    /// Nowhere: the space's process is gone.
    Gone,
}
