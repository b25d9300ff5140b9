//! What a guest needs for some work.

/// What the guest needs for some work.
pub(crate) struct Needs {
    /// Memory at the default sizes, MiB.
    pub memory_mib: u32,
    /// Options of the harness for what is packed beside the workspace's programs.
    pub packed: &'static [&'static str],
    /// Whether each program is at addresses of its own, as on any machine, each time it is started.
    pub random_addresses: bool,
}
