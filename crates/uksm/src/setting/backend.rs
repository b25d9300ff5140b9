//! What merges: the module, or in-kernel KSM where it cannot be loaded.

use uksm_policy::params::form::{Choice, choice};

/// What merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Backend {
    /// The kernel module.
    #[default]
    Module,
    /// In-kernel KSM.
    Ksm,
}

impl Backend {
    /// The word by which it is chosen.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Module => "module",
            Backend::Ksm => "ksm",
        }
    }

    /// The form in which it is given.
    pub(super) fn form() -> Choice<Backend, 2> {
        choice(
            "name",
            [Backend::Module, Backend::Ksm].map(|one| (one.name(), one)),
        )
    }
}
