//! The kernel's treatment of mappings that are offered to KSM.

/// The kernel's default limit of mappings.
const DEFAULT_MAX_MAPPINGS: u64 = 65_530;

/// The kernel's treatment of mappings.
pub(in crate::doctor) struct MappingTreatment {
    pub(in crate::doctor) are_apart: bool,
    /// Maximum number of mappings of a process.
    pub(in crate::doctor) max: u64,
}

impl MappingTreatment {
    /// Reads the limit; whether neighbours stay apart was tried already.
    pub(in crate::doctor) fn read(
        root: &crate::doctor::probe::Root,
        are_apart: bool,
    ) -> MappingTreatment {
        let max = root.text("proc/sys/vm/max_map_count");
        MappingTreatment {
            are_apart,
            max: max.text().parse().unwrap_or(DEFAULT_MAX_MAPPINGS),
        }
    }
}
