//! Where the kernel's file systems are.

use std::path::PathBuf;

use clap::Args;

/// Where the kernel's file systems are; tests put folders here.
#[derive(Debug, Clone, Args)]
pub(crate) struct Roots {
    /// The process file system.
    #[arg(long, hide = true, default_value = "/proc")]
    pub(crate) proc_root: PathBuf,
    /// KSM's folder, by which a kernel with KSM is told.
    #[arg(long, hide = true, default_value = "/sys/kernel/mm/ksm")]
    pub(crate) ksm_root: PathBuf,
}
