//! Copies of merged pages after writes, on the whole host.
//!
//! # Problem
//! A write to a merged page makes the kernel copy it, which ends the saving. The kernel does not
//! report it to the module, and no counter of the module includes the copy.
//!
//! # Approach
//! The kernel counts the copy as one of a KSM page (`cow_ksm` in `/proc/vmstat`), because a frame
//! is such a page. Copies that uksm makes itself, when it breaks pages, are counted too: the caller
//! subtracts them. Where KSM merges, or has merged pages, its copies cannot be distinguished from
//! those of frames, and there is no count.
//!
//! # Units
//! Pages, since the host started.
//!
//! # Source
//! Kernel documentation, `admin-guide/mm/ksm.rst`.

use std::path::Path;

/// Copies of merged pages since the host started; none where KSM has merged pages too, or where the
/// kernel does not count them (before 5.19).
#[must_use]
pub fn of_host(proc_root: &Path, ksm_root: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(ksm_root.join(name)).ok()?;
        text.trim().parse().ok()
    };
    if number("run")? == 1 || number("pages_shared")? > 0 {
        return None;
    }
    let events = std::fs::read_to_string(proc_root.join("vmstat")).ok()?;
    uksm_input::copies::counted(&events).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_where_ksm_has_no_part_in_them() {
        let root = tempfile::tempdir().unwrap();
        let host = |run: &str, shared: &str, events: &str| {
            for (name, text) in [("run", run), ("pages_shared", shared), ("vmstat", events)] {
                std::fs::write(root.path().join(name), text).unwrap();
            }
            of_host(root.path(), root.path())
        };
        let events = "pgfault 7\ncow_ksm 12\nzswpin 0\n";
        assert_eq!(host("0\n", "0\n", events), Some(12));
        assert_eq!(host("1\n", "0\n", events), None);
        assert_eq!(host("0\n", "3\n", events), None);
        assert_eq!(host("2\n", "0\n", "pgfault 7\n"), None);
        assert_eq!(of_host(Path::new("/none"), root.path()), None);
    }
}
