//! The sharers of a frame whose content has changed.
//!
//! # Problem
//! The module finds that a frame has changed, but has no list of its mappings.
//!
//! # Approach
//! This happens once in the life of a machine, if at all, so everything is searched: the module
//! counts the frames of each stretch of each space, and where there are some, their states are
//! read. That takes some seconds for a hundred gigabytes. Then the frame is given up: its sharers
//! keep it, and nothing more is merged into it. For a process that holds its own locks, the report
//! states that it was not searched.
//!
//! # Source
//! `UKSM_FRAMES_CHECK` of the contract.

use std::fmt;

use rustix::io::Errno;
use uksm_policy::command::{FrameId, Lines, Nanos, PAGE_SIZE, PageState, Run, SpaceId};

use crate::domain::Domain;
use crate::module::{self, Verb, raw};
use crate::{clock, mapping_lists};

/// Maximum time of the search of one space.
const MAX_LOOK_NS: Nanos = 10_000_000_000;

/// A space that maps a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharer {
    /// The space.
    pub space: SpaceId,
    /// The first address that maps the frame.
    pub address: u64,
    /// Number of mappings of the frame; 0 if unknown, because the process holds its own locks.
    pub pages: u64,
}

/// The spaces among `spaces` that map the frame. Spaces that have gone are left out.
///
/// # Errors
/// The module fails.
pub fn sharers_of(
    domain: &mut impl Domain,
    spaces: &[SpaceId],
    frame: FrameId,
) -> module::Result<Vec<Sharer>> {
    let mut sharers = Vec::new();
    for &space in spaces {
        match sharer(domain, space, frame) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {}
            Err(error) if error.is_locked() => sharers.push(Sharer {
                space,
                address: 0,
                pages: 0,
            }),
            answer => sharers.extend(answer?),
        }
    }
    Ok(sharers)
}

fn sharer(
    domain: &mut impl Domain,
    space: SpaceId,
    frame: FrameId,
) -> module::Result<Option<Sharer>> {
    let mut found: Option<Sharer> = None;
    let begun = clock::now();
    for (mut start, end) in mapping_lists::breakable(domain, space)?.unwrap_or_default() {
        while start < end {
            let counted = domain.count(space, start, end)?;
            // By then, only a process that holds its locks most of the time is not completely
            // searched.
            let is_late = clock::now().saturating_sub(begun) > MAX_LOOK_NS;
            if counted.next <= start || is_late {
                let (verb, errno) = (Verb::Count, Errno::AGAIN);
                return Err(module::Error::Call { verb, errno });
            }
            if counted.pages[PageState::Frame as usize] > 0 {
                each_mapping(
                    domain,
                    space,
                    (start, counted.next),
                    frame,
                    &mut |address| {
                        let sharer = found.get_or_insert(Sharer {
                            space,
                            address,
                            pages: 0,
                        });
                        sharer.pages += 1;
                    },
                )?;
            }
            start = counted.next;
        }
    }
    Ok(found)
}

/// Calls `mapped` with each address in `start..end` that maps the frame.
fn each_mapping(
    domain: &mut impl Domain,
    space: SpaceId,
    (mut start, end): (u64, u64),
    frame: FrameId,
    mapped: &mut impl FnMut(u64),
) -> module::Result<()> {
    let mut pages = Vec::new();
    while start < end {
        let most = (end - start) / PAGE_SIZE;
        let run = Run {
            start,
            space,
            count: u32::try_from(most.min(raw::UKSM_MAX_PAGES as u64)).unwrap_or(1),
            stride: 1,
        };
        domain.sample(&[run], Lines { from: 0, to: 0 }, &mut pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        for page in &pages {
            if page.state == PageState::Frame && page.frame == frame.0 {
                mapped(start);
            }
            start += PAGE_SIZE;
        }
    }
    Ok(())
}

/// The report of a frame that has changed.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    pub(crate) frame: FrameId,
    /// The sharers, each with a process.
    pub(crate) sharers: &'a [(Sharer, Option<u32>)],
}

impl fmt::Display for Finding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "patrol: frame {} has other contents than before: memory has failed, or something \
             wrote to a read-only page (the kernel's log has the number of the page); it is \
             given up, and these processes keep it: ",
            self.frame.0
        )?;
        if self.sharers.is_empty() {
            return f.write_str("no followed process");
        }
        for (number, (sharer, pid)) in self.sharers.iter().enumerate() {
            f.write_str(if number > 0 { "; " } else { "" })?;
            match pid {
                Some(pid) => write!(f, "process {pid}")?,
                None => write!(f, "space {}", sharer.space.0)?,
            }
            if sharer.pages == 0 {
                f.write_str(" (not searched: it holds its own locks)")?;
                continue;
            }
            write!(f, " at {:#x}", sharer.address)?;
            if sharer.pages > 1 {
                write!(f, " and {} more places", sharer.pages - 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_frame_and_everybody() {
        let sharer = |space: u32, pages: u64| Sharer {
            space: SpaceId(space),
            address: 0x7000,
            pages,
        };
        let sharers = [
            (sharer(1, 1), Some(12)),
            (sharer(2, 3), None),
            (sharer(3, 0), Some(7)),
        ];
        let finding = |sharers| {
            let frame = FrameId(5);
            Finding { frame, sharers }.to_string()
        };
        let text = finding(&sharers);
        assert!(
            text.starts_with("patrol: frame 5 has other contents"),
            "{text}"
        );
        assert!(
            text.ends_with(
                ": process 12 at 0x7000; space 2 at 0x7000 and 2 more places; process 7 (not \
                 searched: it holds its own locks)"
            ),
            "{text}"
        );
        assert!(finding(&[]).ends_with("no followed process"));
    }
}
