//! A criu for the guest.
//!
//! Problem: an experiment writes processes to files and restores them, on machines that need not
//! have the program that does so.
//!
//! Approach: Debian's package and its libraries are unpacked into the cache, as [`crate::redis`]
//! is. At its start criu tests the kernel's features of sockets and networks, and refuses to go on
//! without them: [`MODULES`] provide them, together with a loopback device that is up.

use anyhow::{Context as _, Result};

use crate::initramfs::Initramfs;
use crate::{cache, packages};

/// Its path in the guest.
const PROGRAM: &str = "/usr/sbin/criu";

/// Modules of the kernel's own that it needs.
pub const MODULES: [&str; 11] = [
    "unix_diag",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "raw_diag",
    "af_packet_diag",
    "netlink_diag",
    "nfnetlink",
    "nf_tables",
    "veth",
    "tun",
];

/// Packs the program.
///
/// # Errors
/// The sources do not offer it.
pub fn pack(files: &mut Initramfs) -> Result<()> {
    let package = packages::candidate("criu")?.with_context(|| packages::unknown("criu"))?;
    let key = package.version.replace(':', "_");
    let root = cache::entry("criu", &key, |root| {
        eprintln!("getting criu {}", package.version);
        let parts = packages::closure(&["criu"], |name| {
            name.starts_with("lib") && !name.starts_with("libc6")
        })?;
        packages::unpack(&parts, root)
    })?;
    let libraries = packages::library_folders(&root);
    files.program(PROGRAM, &root.join(&PROGRAM[1..]), &libraries)
}
