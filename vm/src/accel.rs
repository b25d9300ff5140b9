//! The ways in which guests run: KVM or emulation, and the source of the guest's clock.
//!
//! A guest whose clock is to follow its instructions is emulated in any case: KVM cannot count
//! them. [`kvm_probe`](crate::kvm_probe) chooses the way on this machine.

use std::fmt;

use clap::ValueEnum;

/// The way in which guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The CPU itself runs the guest.
    Kvm,
    /// Emulated (TCG), several CPUs at once; the guest's clock is real time.
    Emulated,
    /// Emulated, one CPU after the other; the guest's clock is real time. For guests that run
    /// guests: see [`crate::machine`].
    InTurn,
    /// Emulated, one CPU after the other; the guest's clock is the number of its instructions.
    Counted,
}

impl Accel {
    /// The same for a guest that runs guests of its own.
    #[must_use]
    pub const fn nested(self) -> Self {
        match self {
            Self::Emulated => Self::InTurn,
            other => other,
        }
    }

    /// Whether the guest is emulated.
    #[must_use]
    pub const fn is_emulated(self) -> bool {
        matches!(self, Self::Emulated | Self::InTurn | Self::Counted)
    }
}

/// What a guest's clock follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// Real time
    #[default]
    Time,
    /// The guest's instructions, a nanosecond each (emulated, and slower than time)
    Instructions,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Emulated => "tcg",
            Self::InTurn => "tcg, one CPU after the other",
            Self::Counted => "tcg, counting instructions",
        })
    }
}
