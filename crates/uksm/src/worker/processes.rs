//! A worker's answer with the figures of each process.
//!
//! It can be requested every second: no page is read and the module is not called for it. It costs
//! the engine a pass over its regions, as a status does, and a millisecond or two for sorting
//! 10,000 spaces; the policy's budget is not charged.

use uksm_linux::clock;
use uksm_linux::discovery::Discovery;
use uksm_linux::domain::Domain;
use uksm_linux::machine::LinuxMachine;

use super::locate::Locate;
use super::{Worker, seconds};
use crate::control::{Answer, Request};
use crate::status::processes::{MAX_SPACES, SpaceList};

impl<D: Domain, P: Discovery> Worker<D, P>
where
    LinuxMachine<D, P>: Locate,
{
    /// Answers [`Request::Spaces`], and [`Request::Processes`] where processes are known.
    pub(super) fn processes(&self, request: &Request) -> Answer {
        let uptime = seconds(clock::now().saturating_sub(self.started));
        let spaces = || SpaceList::of(&self.engine.figures(MAX_SPACES), uptime);
        if *request == Request::Spaces {
            return Answer::Spaces(Box::new(spaces()));
        }
        match self.host.followed() {
            Ok(followed) => Answer::Processes(Box::new(spaces().of_processes(followed))),
            Err(line) => Answer::Error(line),
        }
    }
}
