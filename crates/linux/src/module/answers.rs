//! Constants of a domain, and the answers of its calls.

use uksm_policy::command::{Frame, SpaceId};
use uksm_policy::params::Contents;

use super::raw;

/// Constants of a domain; 0 keeps the module's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Seed of the line hash; 0: random.
    pub hash_seed: u64,
    /// Maximum number of frames of the domain; 0: the machine's limit.
    pub frame_limit: u64,
    /// Maximum number of mappings of one frame; 0: the module's limit, 256; 1 is refused.
    pub sharer_limit: u32,
    /// The contents that may be merged.
    pub merge: Contents,
    /// Minimum number of spaces that must hold a content for a frame; 0: one.
    pub least_spaces: u32,
    /// Whether pages of different nodes of memory are not merged with each other.
    pub keeps_nodes: bool,
}

impl Configuration {
    /// The flags of its policy.
    #[must_use]
    pub fn policy(&self) -> u32 {
        let contents = match self.merge {
            Contents::All => 0,
            Contents::Between => raw::UKSM_POLICY_BETWEEN,
            Contents::Zero => raw::UKSM_POLICY_ZERO,
        };
        let nodes = if self.keeps_nodes {
            raw::UKSM_POLICY_NODES
        } else {
            0
        };
        contents | nodes
    }
}

/// An attached address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachAnswer {
    /// Its id.
    pub space: SpaceId,
    /// Whether this domain had it already (a thread, or a vfork child).
    pub existing: bool,
}

/// The result of a BREAK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakAnswer {
    /// The next address; the end of the range when complete.
    pub next: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Whether it stopped for lack of memory for a copy.
    pub stopped: bool,
}

/// Pages of a range by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountAnswer {
    /// The next address; the end of the range when complete.
    pub next: u64,
    /// Pages by the number of their `PageState`.
    pub pages: [u64; 16],
    /// The number of `Anon` pages in huge pages.
    pub huge: u64,
}

/// A part of the listing of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesAnswer {
    /// Frames, in ascending order of their ids.
    pub frames: Vec<Frame>,
    /// The next cursor; 0 when complete.
    pub cursor: u32,
    /// The number of frames freed by this listing.
    pub freed: u32,
}

/// The progress of a list of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingsAnswer {
    /// To the end.
    Through,
    /// The list goes on from this address.
    Until(u64),
    /// No list: the space's process is gone.
    Gone,
}
