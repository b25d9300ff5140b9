//! Lists the mappings of a space.
//!
//! # Problem
//! A process can have 60,000 mappings. One call of the module lists a part of them, while the
//! process goes on changing them.
//!
//! # Approach
//! Each part is translated as it comes, so that no list of all mappings is ever held; what the
//! policy sees of 60,000 is mostly a few. The next part begins where the last one ended, so the
//! parts are ascending and disjoint whatever happens between them. Nothing is kept for the next
//! list: the policy itself asks more rarely where a list is long.
//!
//! A process can hold its locks so that each call comes a little further only. Then the list ends
//! with the error that a call has which comes nowhere (`EAGAIN`), after [`MAX_CALLS`] calls and
//! [`MAX_LIST_NS`].
//!
//! # Source
//! `UKSM_IOC_MAPPINGS` of the contract.

use rustix::io::Errno;
use uksm_policy::command::{Mapping, Nanos, SpaceId};

use crate::domain::Domain;
use crate::module::{self, Listed, Verb, raw};
use crate::{clock, maps};

/// Calls that are made for any list: enough for 130,000 mappings.
const MAX_CALLS: u32 = 32;
/// Longer lists go on for so long.
const MAX_LIST_NS: Nanos = 2_000_000_000;

/// The mappings of a space in which pages are to be merged, knowing whether in-kernel KSM runs;
/// none if its process is gone.
///
/// # Errors
/// The module fails, or knows no such space; the process holds its locks.
pub fn mergeable(
    domain: &mut impl Domain,
    space: SpaceId,
    ksm_runs: bool,
) -> module::Result<Option<Vec<Mapping>>> {
    list(domain, space, |part, mappings| {
        maps::add_mergeable(part, mappings, ksm_runs);
    })
}

/// The ranges of a space in which merged pages can be, as `(start, end)`; none if its process is
/// gone.
///
/// # Errors
/// The module fails, or knows no such space; the process holds its locks.
pub fn breakable(
    domain: &mut impl Domain,
    space: SpaceId,
) -> module::Result<Option<Vec<(u64, u64)>>> {
    list(domain, space, maps::add_breakable)
}

fn list<T>(
    domain: &mut impl Domain,
    space: SpaceId,
    add: impl Fn(&[raw::uksm_mapping], &mut Vec<T>),
) -> module::Result<Option<Vec<T>>> {
    let mut found = Vec::new();
    let mut part = Vec::new();
    let mut start = 0;
    let begun = clock::now();
    for calls in 1.. {
        let listed = domain.mappings(space, start, &mut part)?;
        add(&part, &mut found);
        match listed {
            Listed::Until(next) => start = next,
            Listed::Through => return Ok(Some(found)),
            Listed::Gone => return Ok(None),
        }
        if calls >= MAX_CALLS && clock::now().saturating_sub(begun) >= MAX_LIST_NS {
            break;
        }
    }
    let (verb, errno) = (Verb::Mappings, Errno::AGAIN);
    Err(module::Error::Call { verb, errno })
}
