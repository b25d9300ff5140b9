//! The kernel's figures of this machine's memory.

use anyhow::{Context, Result};

/// A field of `/proc/meminfo`, in KiB.
///
/// # Errors
/// It cannot be read, or has no such field.
pub(crate) fn kib(field: &str) -> Result<u64> {
    let path = "/proc/meminfo";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    found(&text, field).with_context(|| format!("{path}: no {field}"))
}

fn found(text: &str, field: &str) -> Option<u64> {
    let value = |line: &str| {
        let kib = line.strip_prefix(field)?.strip_prefix(':')?.trim();
        kib.strip_suffix("kB")?.trim().parse().ok()
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:        2048 kB\nMem:   1024 kB\nHugePages_Total:       3\n";
        assert_eq!(found(text, "Mem"), Some(1024));
        assert_eq!(found(text, "MemTotal"), Some(2048));
        assert_eq!(found(text, "HugePages_Total"), None);
        assert!(kib("MemAvailable").unwrap() > 0);
    }
}
