//! KSM's settings before they were changed.
//!
//! # Problem
//! KSM's settings persist when the program that set them ends, in any way. They must be restored,
//! in an order that the kernel accepts: with the scan-time advisor on, `pages_to_scan` cannot be
//! written, and writing `run` takes effect at once.
//!
//! # Approach
//! A fixed list of files is changed. Their contents are read before the first change, kept as text,
//! and restored in one order. `run=2`, which unmerges everything once, counts as `0`: restoring
//! does not unmerge pages merged since.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst; `advisor_mode_store` and `pages_to_scan_store` of
//! `mm/ksm.c`.

use std::collections::BTreeMap;

use super::sysfs::{Error, Result, Sysfs};

/// The files changed while ksmd is driven.
const FILES: [&str; 4] = ["pages_to_scan", "sleep_millisecs", "advisor_mode", "run"];

/// Files of `FILES` that not every kernel has.
const OPTIONAL_FILE: &str = "advisor_mode";

/// The settings before the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalSettings {
    values: BTreeMap<String, String>,
}

impl OriginalSettings {
    /// The present settings.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn of(sysfs: &Sysfs) -> Result<OriginalSettings> {
        let mut values = BTreeMap::new();
        for name in FILES {
            if name == OPTIONAL_FILE && !sysfs.has(name) {
                continue;
            }
            let value = sysfs.text(name)?;
            let value = match (name, value.as_str()) {
                ("run", "2") => "0".to_owned(),
                _ => value,
            };
            values.insert(name.to_owned(), value);
        }
        Ok(OriginalSettings { values })
    }

    /// The settings from stored values.
    #[must_use]
    pub fn from_values(values: BTreeMap<String, String>) -> Option<OriginalSettings> {
        let has = |name: &&str| *name == OPTIONAL_FILE || values.contains_key(*name);
        let is_known = |name: &String| FILES.contains(&name.as_str());
        let is_whole = FILES.iter().all(has) && values.keys().all(is_known);
        is_whole.then_some(OriginalSettings { values })
    }

    /// The values to store.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Whether ksmd ran.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.values.get("run").is_some_and(|run| run == "1")
    }

    /// Prepares for bursts: ksmd is stopped, no advisor changes the batches, nothing sleeps between
    /// them.
    ///
    /// # Errors
    /// One cannot be set.
    pub fn begin(sysfs: &Sysfs) -> Result<()> {
        sysfs.write_text("run", "0")?;
        if sysfs.has(OPTIONAL_FILE) {
            sysfs.write_text(OPTIONAL_FILE, "none")?;
        }
        sysfs.write_text("sleep_millisecs", "0")
    }

    /// Restores all; goes on after a failure.
    ///
    /// # Errors
    /// The first file that could not be restored.
    pub fn put_back(&self, sysfs: &Sysfs) -> Result<()> {
        // Another program may have turned the advisor on since; then pages_to_scan cannot be set.
        let advisor_off = match sysfs.has(OPTIONAL_FILE) {
            true => sysfs.write_text(OPTIONAL_FILE, "none"),
            false => Ok(()),
        };
        let put = |name: &&str| match self.values.get(*name) {
            Some(value) => sysfs.write_text(name, value),
            None => Ok(()),
        };
        // Collected first, so that all are tried.
        let results: Vec<Result<()>> = FILES.iter().map(put).collect();
        let first = |failed: Option<Error>| failed.map_or(Ok(()), Err);
        let all = std::iter::once(advisor_off).chain(results);
        first(all.filter_map(Result::err).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Proc;

    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join(name), format!("{text}\n")).unwrap();
        }
        let sysfs = Sysfs::at(root.path(), Proc::default()).unwrap();
        (root, sysfs)
    }

    fn all(sysfs: &Sysfs) -> Vec<String> {
        FILES.iter().map(|name| sysfs.text(name).unwrap()).collect()
    }

    #[test]
    fn knobs_become_what_they_were() {
        for (mode, chosen, run) in [
            ("[none] scan-time", "none", "0"),
            ("none [scan-time]", "scan-time", "1"),
        ] {
            let (_root, sysfs) = fake(&[
                ("run", run),
                ("pages_to_scan", "123"),
                ("sleep_millisecs", "45"),
                ("advisor_mode", mode),
            ]);
            let before = OriginalSettings::of(&sysfs).unwrap();
            assert_eq!(before.ran(), run == "1");
            OriginalSettings::begin(&sysfs).unwrap();
            sysfs.write("pages_to_scan", 5000).unwrap();
            assert_eq!(all(&sysfs), ["5000", "0", "none", "0"]);
            let kept = OriginalSettings::from_values(before.values().clone()).unwrap();
            kept.put_back(&sysfs).unwrap();
            assert_eq!(all(&sysfs), ["123", "45", chosen, run]);
        }
    }

    #[test]
    fn a_kernel_without_advisor_has_none_to_put_back() {
        let files = [
            ("run", "2"),
            ("pages_to_scan", "100"),
            ("sleep_millisecs", "20"),
        ];
        let (root, sysfs) = fake(&files);
        let before = OriginalSettings::of(&sysfs).unwrap();
        OriginalSettings::begin(&sysfs).unwrap();
        before.put_back(&sysfs).unwrap();
        assert!(!root.path().join("advisor_mode").exists());
        assert_eq!(
            sysfs.text("run").unwrap(),
            "0",
            "nothing is unmerged by that"
        );
    }

    #[test]
    fn what_was_not_kept_whole_is_not_put_back() {
        let (_root, sysfs) = fake(&[
            ("run", "0"),
            ("pages_to_scan", "1"),
            ("sleep_millisecs", "2"),
        ]);
        let values = OriginalSettings::of(&sysfs).unwrap().values().clone();
        for missing in ["run", "pages_to_scan", "sleep_millisecs"] {
            let mut values = values.clone();
            values.remove(missing);
            assert_eq!(OriginalSettings::from_values(values), None, "{missing}");
        }
        let mut more = values;
        more.insert("../../x".to_owned(), "1".to_owned());
        assert_eq!(
            OriginalSettings::from_values(more),
            None,
            "no other file is written"
        );
    }

    #[test]
    fn one_that_cannot_be_put_back_does_not_keep_the_others() {
        let (root, sysfs) = fake(&[
            ("run", "1"),
            ("pages_to_scan", "1"),
            ("sleep_millisecs", "2"),
        ]);
        let before = OriginalSettings::of(&sysfs).unwrap();
        OriginalSettings::begin(&sysfs).unwrap();
        std::fs::remove_file(root.path().join("pages_to_scan")).unwrap();
        let error = before.put_back(&sysfs).unwrap_err().to_string();
        assert!(error.contains("/pages_to_scan: "), "{error}");
        assert_eq!(
            (
                sysfs.read("run").unwrap(),
                sysfs.read("sleep_millisecs").unwrap()
            ),
            (1, 2)
        );
    }
}
