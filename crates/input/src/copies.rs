//! Copies of merged pages after writes, among the kernel's events.
//!
//! # Units
//! Pages of the whole host, since it started.
//!
//! # Source
//! Kernel documentation, `admin-guide/mm/ksm.rst`: `cow_ksm`, since 5.19.

use std::num::ParseIntError;

/// The count in the text of `/proc/vmstat`; none if the kernel does not count them.
///
/// # Errors
/// The count is no number.
pub fn counted(vmstat: &str) -> Result<Option<u64>, ParseIntError> {
    let mut lines = vmstat.lines();
    let count = lines.find_map(|line| line.strip_prefix("cow_ksm "));
    count.map(|count| count.trim().parse()).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_of_merged_pages_are_counted() {
        assert_eq!(
            counted("cow_ksm_x 3\npgfault 7\ncow_ksm 12\n"),
            Ok(Some(12))
        );
        assert_eq!(counted("pgfault 7\n"), Ok(None));
        assert!(counted("cow_ksm x\n").is_err());
    }
}
