//! The needs of some work for a guest.

/// The guest's configuration for some work.
pub(crate) struct Needs {
    /// Memory at the default sizes, MiB.
    pub memory_mib: u32,
    /// Options of the harness for packages beside the workspace's programs.
    pub packed: &'static [&'static str],
    /// Whether each program is at random addresses, as on any machine, each time it is started.
    pub random_addresses: bool,
}
