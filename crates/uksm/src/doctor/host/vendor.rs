//! The distribution of the host, and the version by which its kernel's vendor is known.

use crate::doctor::distribution::Distribution;
use crate::doctor::probe::{FileContent, Root};

/// Files with the name of the distribution; the first that exists has it.
const OS_RELEASE: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

/// The vendor of host and kernel.
pub(in crate::doctor) struct HostVendor {
    pub(in crate::doctor) distribution: Distribution,
    /// As `uname -v` prints it.
    pub(in crate::doctor) kernel_version: FileContent<String>,
}

impl HostVendor {
    /// Reads the state, for the kernel of this release.
    pub(in crate::doctor) fn read(root: &Root, release: &str) -> HostVendor {
        let texts = OS_RELEASE.map(|path| root.text(path));
        let text = texts.iter().find_map(FileContent::there);
        HostVendor {
            distribution: Distribution::of(text.map_or("", |text| text), release),
            kernel_version: root.text("proc/sys/kernel/version"),
        }
    }
}
