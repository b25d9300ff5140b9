//! The device, the daemon and the kernel as checks query them; tests replace them.

use std::path::Path;

use uksm_linux::module;

use crate::control::{Answer, NoAnswer};

/// Sources besides files.
pub(in crate::doctor) struct Sources<'a> {
    /// Opens the device; answers whether its module may map frames.
    pub(in crate::doctor) device: &'a dyn Fn(&Path) -> module::Result<bool>,
    /// Asks the daemon for its status.
    pub(in crate::doctor) daemon: &'a dyn Fn(&Path) -> Result<Answer, NoAnswer>,
    /// Whether this kernel keeps mappings of memory that is offered to KSM apart.
    pub(in crate::doctor) mappings_apart: &'a dyn Fn() -> bool,
}
