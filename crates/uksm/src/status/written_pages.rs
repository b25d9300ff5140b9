//! Merged pages that processes of this host wrote since the daemon started.
//!
//! The kernel counts copies of all merged pages together ([`uksm_linux::copies`]), including those
//! that uksm makes when it breaks pages. The rest was written. The count ends as soon as KSM was
//! seen to run beside uksm: its copies would be in all later counts.

use std::cell::Cell;
use std::path::PathBuf;

use uksm_linux::copies;

/// The count of one daemon.
#[derive(Debug)]
pub(crate) struct WrittenPages {
    proc_root: PathBuf,
    ksm_root: PathBuf,
    /// Copies at the start; none if KSM was seen to contribute to the count.
    at_start: Cell<Option<u64>>,
    /// Pages broken in domains that no longer exist.
    broken: Cell<u64>,
}

impl WrittenPages {
    /// A count from now on, for a host whose files are in these folders.
    pub(crate) fn from_now_on(proc_root: PathBuf, ksm_root: PathBuf) -> WrittenPages {
        let at_start = copies::of_host(&proc_root, &ksm_root);
        WrittenPages {
            proc_root,
            ksm_root,
            at_start: Cell::new(at_start),
            broken: Cell::default(),
        }
    }

    /// Adds the pages that were broken in a domain that is about to end.
    pub(crate) fn break_pages(&self, broken: u64) {
        self.broken.set(self.broken.get() + broken);
    }

    /// Pages written so far, if `broken` pages were broken in existing domains.
    pub(crate) fn count(&self, broken: u64) -> Option<u64> {
        let Some(now) = copies::of_host(&self.proc_root, &self.ksm_root) else {
            self.at_start.set(None);
            return None;
        };
        let copied = now.saturating_sub(self.at_start.get()?);
        Some(copied.saturating_sub(broken + self.broken.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_that_uksm_did_not_make_were_written() {
        let root = tempfile::tempdir().unwrap();
        let copied = |run: &str, copies: u64| {
            std::fs::write(root.path().join("run"), run).unwrap();
            std::fs::write(root.path().join("pages_shared"), "0\n").unwrap();
            std::fs::write(root.path().join("vmstat"), format!("cow_ksm {copies}\n")).unwrap();
        };
        let begin = || WrittenPages::from_now_on(root.path().into(), root.path().into());
        copied("0\n", 100);
        let written = begin();
        assert_eq!(written.count(0), Some(0));
        copied("0\n", 150);
        assert_eq!(written.count(20), Some(30));
        written.break_pages(5);
        assert_eq!(written.count(15), Some(30));
        copied("1\n", 150);
        assert_eq!((written.count(20), begin().count(0)), (None, None));
        copied("0\n", 170);
        assert_eq!(written.count(20), None, "some of the 20 may be KSM's");
    }
}
