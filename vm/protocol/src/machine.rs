//! The kinds of machine that a test may ask for, and names that harness and guest share.

/// Name of the module, and of its device below `/dev`.
pub const MODULE: &str = "uksm";
/// Name of the module that [`MODULE`] needs, and that stays when it is unloaded.
pub const GUARD: &str = "uksm_guard";
/// Name of the module that migrates memory to a device that does not exist, for tests.
pub const COLLECTOR: &str = "migration_collector";
/// Modules without which no port exists; built into some kernels.
pub const PORT_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// The machine a test needs; tests of one kind share a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// Two CPUs, 1 GiB, the module as it ships.
    Stock,
    /// Two CPUs on two NUMA nodes, of whose memory three quarters are for movable pages, the module
    /// as it ships.
    Numa,
    /// As [`Machine::Stock`], and kernel memory is charged to no control group
    /// (`cgroup.memory=nokmem`).
    NoKmem,
    /// As [`Machine::Counted`], and its CPU has SVM: `kvm` and `kvm_amd` can be loaded.
    Nested,
    /// One CPU whose clock is the number of its instructions, the module as it ships.
    Counted,
    /// Two CPUs, the module's test build, and a simulated device with memory that processors
    /// reach (`DEVICE_COHERENT`).
    Coherent,
    /// Two CPUs, 1 GiB and memory blocks that are offline, the module's test build
    /// (`UKSM_TEST=1`): its safety switches are parameters.
    Faults,
    /// As [`Machine::Nested`], with the module's test build.
    NestedFaults,
}

impl Machine {
    /// Every kind, in the order in which they are booted.
    pub const ALL: [Self; 8] = [
        Self::Stock,
        Self::Numa,
        Self::NoKmem,
        Self::Nested,
        Self::Counted,
        Self::Coherent,
        Self::Faults,
        Self::NestedFaults,
    ];

    /// Whether the module's test build is loaded.
    #[must_use]
    pub const fn has_faults(self) -> bool {
        matches!(self, Self::Coherent | Self::Faults | Self::NestedFaults)
    }
}
