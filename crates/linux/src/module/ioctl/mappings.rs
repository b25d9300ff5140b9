//! The call that lists mappings.
//!
//! Most processes have some hundred mappings, and one has 60,000: the first call has room for some
//! hundred, and further calls for the maximum that the module returns.

use std::os::fd::AsFd as _;

use uksm_policy::command::SpaceId;

use super::raw;
use super::{Device, MappingsAnswer, Result, Verb, address, call, length, unless_interrupted};

/// Room of a list's first call.
const FIRST_ROOM: usize = 512;

impl Device {
    /// Lists private mappings of a space from `start` on into `mappings`, which is emptied first:
    /// as many as one call takes, ascending and disjoint; none if a signal interrupted.
    ///
    /// # Errors
    /// No such space; an address that is no start of a page of user space; the target holds its
    /// locks.
    pub fn mappings(
        &mut self,
        space: SpaceId,
        start: u64,
        mappings: &mut Vec<raw::uksm_mapping>,
    ) -> Result<MappingsAnswer> {
        let room = if start == 0 {
            FIRST_ROOM
        } else {
            raw::UKSM_MAX_MAPPINGS
        };
        mappings.clear();
        mappings.resize(room, raw::uksm_mapping::default());
        let mut request = raw::uksm_mappings {
            mappings: address(mappings.as_mut_ptr()),
            start,
            space: space.0,
            count: length(Verb::Mappings, room)?,
            ..Default::default()
        };
        // SAFETY: the array is borrowed mutably for the call, with its own length.
        let answer = unless_interrupted(unsafe { call(self.as_fd(), &mut request) });
        let done = matches!(answer, Ok(true)).then_some(request.done);
        mappings.truncate(done.unwrap_or(0) as usize);
        Ok(match answer? {
            false => MappingsAnswer::Until(start),
            true if request.gone != 0 => MappingsAnswer::Gone,
            true if request.next == 0 => MappingsAnswer::Through,
            true => MappingsAnswer::Until(request.next),
        })
    }
}
