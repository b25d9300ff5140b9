//! A file that gives control groups labels.
//!
//! # Problem
//! The program that starts customers' containers may know which processes belong together, even if
//! nothing that the kernel shows reveals it.
//!
//! # Approach
//! That program writes a file: on each line the path of a control group and its label. A process
//! has the label of the deepest control group above it that has one. The writer of the file is
//! responsible for the named paths; control groups that a customer makes below do not matter. The
//! file is read as a whole, so one bad line changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use uksm_input::regular_file;

use super::Cgroup;

/// Maximum length of a label, in bytes.
const MAX_LABEL_BYTES: usize = 255;

/// Labels of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    file: PathBuf,
    /// Labels by path.
    labels: BTreeMap<String, String>,
}

impl Labels {
    /// Reads a file of lines `PATH LABEL`; a line that begins with `#` is a comment.
    ///
    /// # Errors
    /// The file cannot be read, or a line is malformed: one line that names file and line.
    pub fn read(file: &Path) -> Result<Labels, String> {
        let text = regular_file::read_text(file)
            .map_err(|error| format!("{}: cannot read the labels: {error}", file.display()))?;
        Labels::parse(file, &text)
    }

    fn parse(file: &Path, text: &str) -> Result<Labels, String> {
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let refuse = |what: &str| format!("{}:{number}: {what}", file.display());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // A path can have spaces in it.
            let Some((path, label)) = line.rsplit_once(char::is_whitespace) else {
                return Err(refuse(
                    "a line must be the path of a control group and its label",
                ));
            };
            let cgroup: Cgroup = path
                .trim_end()
                .parse()
                .map_err(|error: String| refuse(&error))?;
            if !cgroup.is_one() {
                return Err(refuse(&format!(
                    "'{cgroup}' is a pattern: a line must name one control group"
                )));
            }
            if label.len() > MAX_LABEL_BYTES {
                return Err(refuse(&format!(
                    "a label has at most {MAX_LABEL_BYTES} bytes"
                )));
            }
            let before = labels.insert(cgroup.path().to_owned(), label.to_owned());
            if before.is_some_and(|before| before != label) {
                return Err(refuse(&format!("{cgroup} has another label already")));
            }
        }
        Ok(Labels {
            file: file.to_owned(),
            labels,
        })
    }

    /// The file of the labels.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The label of a process with this path in `/proc/PID/cgroup`.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&str> {
        let mut rest = path.trim_end_matches('/');
        loop {
            if let Some(label) = self.labels.get(rest) {
                return Some(label);
            }
            rest = &rest[..rest.rfind('/')?];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Labels, String> {
        Labels::parse(Path::new("/etc/tenants"), text)
    }

    #[test]
    fn a_process_has_the_label_of_the_deepest_group_above_it() {
        let labels = parse("# who\n\n/t/a  blue\n/t/a/x red\n/t/b c\tblue\n").unwrap();
        for (path, label) in [
            ("/t/a", Some("blue")),
            ("/t/a/y/z", Some("blue")),
            ("/t/a/x/y", Some("red")),
            ("/t/b c/d", Some("blue")),
            ("/t/ab", None),
            ("/t", None),
            ("/", None),
        ] {
            assert_eq!(labels.of(path), label, "{path}");
        }
        let all = parse("/ everybody\n").unwrap();
        assert_eq!(
            (all.of("/"), all.of("/a/b")),
            (Some("everybody"), Some("everybody"))
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let long = format!("/a {}", "x".repeat(256));
        for (text, expected) in [
            ("/a x\n/b\n", "/etc/tenants:2: a line must be the path of"),
            (
                "a x",
                "/etc/tenants:1: 'a' is not the path of a control group",
            ),
            ("/a/* x", "/etc/tenants:1: '/a/*' is a pattern"),
            (
                "/a x\n\n/a y",
                "/etc/tenants:3: /a has another label already",
            ),
            (&long, "/etc/tenants:1: a label has at most 255 bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = Labels::read(Path::new("/nonexistent/x")).unwrap_err();
        assert!(
            error.starts_with("/nonexistent/x: cannot read the labels: "),
            "{error}"
        );
    }

    #[test]
    fn a_pipe_in_place_of_the_file_is_refused_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("labels");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = Labels::read(&pipe).unwrap_err();
        assert!(
            error.contains("/labels: cannot read the labels: is a pipe, not a regular file"),
            "{error}"
        );
    }
}
