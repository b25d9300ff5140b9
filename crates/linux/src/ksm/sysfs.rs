//! KSM's settings and counters: `/sys/kernel/mm/ksm`, and its thread ksmd.
//!
//! # Problem
//! The files depend on the kernel, and a test has no kernel to change.
//!
//! # Approach
//! The root can be a folder, and so can `/proc`. An error names the file that is missing. The
//! counters do not fall while ksmd is stopped.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst.

use std::path::{Path, PathBuf};

use uksm_policy::command::Nanos;

use crate::clock;
use crate::proc::{self, Proc};

/// The kernel's folder.
pub const KSM_PATH: &str = "/sys/kernel/mm/ksm";

/// The reason why KSM cannot be read or set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This kernel has no KSM.
    #[error("{}: missing: this kernel was built without CONFIG_KSM", path.display())]
    Missing {
        /// The folder that was searched.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file does not hold a number.
    #[error("{}:1: not a number: '{text}'", path.display())]
    Number {
        /// The file.
        path: PathBuf,
        /// The file's text.
        text: String,
    },
    /// ksmd cannot be found or read.
    #[error("ksmd: {0}")]
    Thread(#[from] proc::Error),
    /// There is no ksmd.
    #[error("ksmd: no such thread")]
    NoThread,
}

/// A result of KSM.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether ksmd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Stopped; merged pages stay.
    Stop = 0,
    /// Running.
    Start = 1,
}

/// The scan rate of ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRate {
    /// Pages of one scan before a sleep.
    pub pages_to_scan: u64,
    /// The sleep in milliseconds.
    pub sleep_millisecs: u64,
}

impl ScanRate {
    /// The rate with which kernels ship.
    pub const SHIPPED: ScanRate = ScanRate {
        pages_to_scan: 100,
        sleep_millisecs: 20,
    };
    /// Ten times the shipped rate.
    pub const THOUSAND: ScanRate = ScanRate {
        pages_to_scan: 1000,
        sleep_millisecs: 20,
    };
    /// The maximum of ksmd. `run=0` takes effect only after the scan in progress, so a scan is kept
    /// short.
    pub const UNLIMITED: ScanRate = ScanRate {
        pages_to_scan: 2000,
        sleep_millisecs: 0,
    };
    /// Fast enough to drop ksmd's data on ended processes, and quick to stop.
    pub const CLEAN_UP: ScanRate = ScanRate {
        pages_to_scan: 1000,
        sleep_millisecs: 1,
    };
}

/// The counters every supported kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Complete scans of all advised memory.
    pub full_scans: u64,
    /// Merged pages in memory.
    pub pages_shared: u64,
    /// Their mappings beyond the first of each: pages saved.
    pub pages_sharing: u64,
    /// Pages that were scanned and had no duplicate.
    pub pages_unshared: u64,
    /// Pages that change too fast.
    pub pages_volatile: u64,
}

/// KSM of this host.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
    proc: Proc,
}

impl Sysfs {
    /// The folder of the running kernel.
    ///
    /// # Errors
    /// The kernel has no KSM.
    pub fn open() -> Result<Sysfs> {
        Sysfs::at(Path::new(KSM_PATH), Proc::default())
    }

    /// The folder below `root`, with its thread below `proc`.
    ///
    /// # Errors
    /// There is none.
    pub fn at(root: &Path, proc: Proc) -> Result<Sysfs> {
        if root.join("run").exists() {
            return Ok(Sysfs {
                root: root.to_owned(),
                proc,
            });
        }
        Err(Error::Missing {
            path: root.to_owned(),
        })
    }

    /// Starts or stops ksmd.
    ///
    /// # Errors
    /// No right.
    pub fn run(&self, run: Run) -> Result<()> {
        self.write("run", run as u64)
    }

    /// Sets the scan rate.
    ///
    /// # Errors
    /// No right.
    pub fn set_scan_rate(&self, rate: ScanRate) -> Result<()> {
        self.write("pages_to_scan", rate.pages_to_scan)?;
        self.write("sleep_millisecs", rate.sleep_millisecs)
    }

    /// Sets `advisor_mode` to `scan-time` or `none` (6.8 and later).
    ///
    /// # Errors
    /// No right, or a kernel without it.
    pub fn set_advisor(&self, on: bool) -> Result<()> {
        self.write_text("advisor_mode", if on { "scan-time" } else { "none" })
    }

    /// Whether this kernel has the scan-time advisor.
    #[must_use]
    pub fn has_advisor(&self) -> bool {
        self.root.join("advisor_mode").exists()
    }

    /// The counters.
    ///
    /// # Errors
    /// Unreadable.
    pub fn counters(&self) -> Result<Counters> {
        Ok(Counters {
            full_scans: self.read("full_scans")?,
            pages_shared: self.read("pages_shared")?,
            pages_sharing: self.read("pages_sharing")?,
            pages_unshared: self.read("pages_unshared")?,
            pages_volatile: self.read("pages_volatile")?,
        })
    }

    /// The number in the file of this name, for files that not every kernel has.
    ///
    /// # Errors
    /// Missing, unreadable, not a number.
    pub fn read(&self, name: &str) -> Result<u64> {
        let path = self.root.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse()
                .map_err(|_| Error::Number { path, text }),
            Err(source) => Err(Error::File { path, source }),
        }
    }

    /// Sets the number in the file of this name.
    ///
    /// # Errors
    /// Missing, no right, refused.
    pub fn write(&self, name: &str, value: u64) -> Result<()> {
        self.write_text(name, &value.to_string())
    }

    /// The text of a file, without the end of its line; if it lists choices, the one in brackets.
    ///
    /// # Errors
    /// Missing or unreadable.
    pub fn text(&self, name: &str) -> Result<String> {
        let path = self.root.join(name);
        let text = std::fs::read_to_string(&path).map_err(|source| Error::File { path, source })?;
        let text = text.trim();
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Ok(chosen.map_or(text, |(word, _)| word).to_owned())
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.root.join(name).exists()
    }

    /// Sets the text of the file of this name.
    ///
    /// # Errors
    /// Missing, no right, refused.
    pub fn write_text(&self, name: &str, text: &str) -> Result<()> {
        let path = self.root.join(name);
        // Not created: a folder of the kernel takes no new files, and a test should notice.
        let file = std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path);
        let written =
            file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|source| Error::File { path, source })
    }

    /// The id of ksmd.
    ///
    /// # Errors
    /// There is none, or `/proc` is unreadable.
    pub fn thread(&self) -> Result<u32> {
        let mut pids = Vec::new();
        self.proc.list(&mut pids)?;
        for pid in pids {
            match self.proc.stat(pid) {
                Ok(stat) if stat.comm == "ksmd" && !stat.has_memory() => return Ok(pid),
                Ok(_) | Err(proc::Error::Gone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::NoThread)
    }

    /// Processor time of a thread, which [`Sysfs::thread`] found.
    ///
    /// # Errors
    /// It is gone.
    pub fn used(thread: u32) -> Result<Nanos> {
        clock::process_cpu_of(thread).map_err(|_| Error::NoThread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let (ksm, proc) = (root.path().join("ksm"), root.path().join("proc"));
        std::fs::create_dir_all(&ksm).unwrap();
        std::fs::create_dir_all(proc.join("42")).unwrap();
        for (name, text) in [
            ("run", "0\n"),
            ("pages_to_scan", "100\n"),
            ("sleep_millisecs", "20\n"),
            ("full_scans", "3\n"),
            ("pages_shared", "10\n"),
            ("pages_sharing", "90\n"),
            ("pages_unshared", "7\n"),
            ("pages_volatile", "1\n"),
        ] {
            std::fs::write(ksm.join(name), text).unwrap();
        }
        let stat = "42 (ksmd) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 25 5 1 0 9 0 0 0\n";
        std::fs::write(proc.join("42/stat"), stat).unwrap();
        let ksm = Sysfs::at(&ksm, Proc::at(&proc)).unwrap();
        (root, ksm)
    }

    #[test]
    fn settings_are_written_and_counters_read() {
        let (_root, ksm) = fake();
        let rate = || (ksm.read("pages_to_scan"), ksm.read("sleep_millisecs"));
        assert!(matches!(rate(), (Ok(100), Ok(20))), "{:?}", rate());
        ksm.set_scan_rate(ScanRate::THOUSAND).unwrap();
        assert!(matches!(rate(), (Ok(1000), Ok(20))), "{:?}", rate());
        ksm.run(Run::Start).unwrap();
        assert_eq!(ksm.read("run").unwrap(), 1);
        let counters = ksm.counters().unwrap();
        assert_eq!((counters.full_scans, counters.pages_sharing), (3, 90));
    }

    #[test]
    fn the_thread_is_found() {
        let (_root, ksm) = fake();
        assert_eq!(ksm.thread().unwrap(), 42);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (root, ksm) = fake();
        assert!(!ksm.has_advisor());
        let error = ksm.set_advisor(true).unwrap_err().to_string();
        assert!(error.contains("/ksm/advisor_mode: "), "{error}");
        std::fs::write(root.path().join("ksm/run"), "yes\n").unwrap();
        assert!(
            ksm.read("run")
                .unwrap_err()
                .to_string()
                .contains("/ksm/run:1: not a number")
        );
        let error = Sysfs::at(&root.path().join("none"), Proc::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("missing: this kernel was built without CONFIG_KSM"),
            "{error}"
        );
    }
}
