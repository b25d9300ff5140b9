//! Lists the mappings of a space.
//!
//! # Problem
//! A process can have 60,000 mappings. One call of the module lists a part of them, while the
//! process goes on changing them.
//!
//! # Approach
//! Each part is translated as it comes, so a list of all mappings is never stored; the policy
//! mostly needs a few of 60,000. The next part begins where the last one ended, so the parts are
//! ascending and disjoint even if mappings change between them. No state is kept for the next list:
//! the policy itself asks more rarely where a list is long.
//!
//! A process can hold its locks so that each call advances only a little. Then the list ends after
//! `MAX_CALLS` calls and `MAX_LIST_NS`, with the error of a call that does not advance at all
//! (`EAGAIN`).
//!
//! # Source
//! `UKSM_IOC_MAPPINGS` of the contract.

use rustix::io::Errno;
use uksm_policy::command::{Mapping, Nanos, SpaceId};

use crate::domain::Domain;
use crate::module::{self, MappingsAnswer, Verb, raw};
use crate::{clock, mapping_kinds};

/// Number of calls that any list may make: enough for 130,000 mappings.
const MAX_CALLS: u32 = 32;
/// Maximum time of a list with more calls.
const MAX_LIST_NS: Nanos = 2_000_000_000;

/// The mappings of a space in which pages can be merged, given whether in-kernel KSM runs; none if
/// its process is gone.
///
/// # Errors
/// The module fails, or knows no such space; the process holds its locks.
pub fn mergeable(
    domain: &mut impl Domain,
    space: SpaceId,
    ksm_runs: bool,
) -> module::Result<Option<Vec<Mapping>>> {
    list(domain, space, |part, mappings| {
        mapping_kinds::add_mergeable(part, mappings, ksm_runs);
    })
}

/// The ranges of a space that can hold merged pages, as `(start, end)`; none if its process is
/// gone.
///
/// # Errors
/// The module fails, or knows no such space; the process holds its locks.
pub fn breakable(
    domain: &mut impl Domain,
    space: SpaceId,
) -> module::Result<Option<Vec<(u64, u64)>>> {
    list(domain, space, mapping_kinds::add_breakable)
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
            MappingsAnswer::Until(next) => start = next,
            MappingsAnswer::Through => return Ok(Some(found)),
            MappingsAnswer::Gone => return Ok(None),
        }
        if calls >= MAX_CALLS && clock::now().saturating_sub(begun) >= MAX_LIST_NS {
            break;
        }
    }
    let (verb, errno) = (Verb::Mappings, Errno::AGAIN);
    Err(module::Error::Call { verb, errno })
}
