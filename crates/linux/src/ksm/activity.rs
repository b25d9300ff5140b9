//! Whether in-kernel KSM runs now.
//!
//! # Problem
//! An administrator, or a tuner, starts and stops KSM at any time. A worker of a group may open no
//! file once it has begun.
//!
//! # Approach
//! The file stays open and is read again each time: 1 µs. On a kernel without KSM, or where the
//! file cannot be read, KSM does not run.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst, `run`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::sysfs::KSM_PATH;

/// The state of in-kernel KSM.
#[derive(Debug)]
pub struct KsmActivity {
    file: Option<File>,
}

impl KsmActivity {
    /// The state on this host.
    #[must_use]
    pub fn of_host() -> KsmActivity {
        KsmActivity::at(Path::new(KSM_PATH))
    }

    /// The state in this folder.
    #[must_use]
    pub fn at(root: &Path) -> KsmActivity {
        KsmActivity {
            file: File::open(root.join("run")).ok(),
        }
    }

    /// Whether ksmd merges now: `run` is 1. With 0 it is stopped, and with 2 it unmerges all pages.
    #[must_use]
    pub fn now(&self) -> bool {
        let mut text = [0];
        let read = self.file.as_ref().map(|file| file.read_at(&mut text, 0));
        matches!(read, Some(Ok(1))) && text == *b"1"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ksm_runs_while_its_file_says_1() {
        let root = tempfile::tempdir().unwrap();
        assert!(!KsmActivity::at(root.path()).now(), "a kernel without KSM");
        let file = root.path().join("run");
        std::fs::write(&file, "0\n").unwrap();
        let ksm = KsmActivity::at(root.path());
        for (text, runs) in [("0\n", false), ("1\n", true), ("2\n", false), ("1\n", true)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(ksm.now(), runs, "{text}");
        }
    }
}
