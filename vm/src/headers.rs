//! Kernel headers that work in the folder where they were unpacked.
//!
//! Problem: Debian's headers name each other by absolute paths below
//! `/usr/src`, where they would be installed.
//!
//! Approach: the paths are made relative to the file that contains them. Links in the packages are
//! relative already.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Makes the headers in `folder` (`…/usr/src/linux-headers-<release>`) usable
/// in place.
///
/// # Errors
/// The folder is not of the expected shape.
pub fn relocate(folder: &Path) -> Result<()> {
    let makefile = folder.join("Makefile");
    let text = fs::read_to_string(&makefile).with_context(|| makefile.display().to_string())?;
    let Some(text) = relative_includes(&text) else {
        bail!(
            "{}: no 'include /usr/src/…' in it: the packaging has changed",
            makefile.display()
        );
    };
    fs::write(&makefile, text).with_context(|| makefile.display().to_string())
}

/// Replaces `include /usr/src/X` by an include relative to the makefile's own
/// folder; `None` if there is nothing to replace.
fn relative_includes(text: &str) -> Option<String> {
    const ABSOLUTE: &str = "include /usr/src/";
    const RELATIVE: &str = "include $(dir $(lastword $(MAKEFILE_LIST)))../";
    text.lines()
        .any(|line| line.starts_with(ABSOLUTE))
        .then(|| {
            text.lines()
                .map(|line| line.replacen(ABSOLUTE, RELATIVE, 1) + "\n")
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_include_becomes_relative_to_the_makefile() {
        let text = "include /usr/src/linux-headers-6.1.0-56-common/Makefile\n";
        assert_eq!(
            relative_includes(text).unwrap(),
            "include $(dir $(lastword $(MAKEFILE_LIST)))../linux-headers-6.1.0-56-common/Makefile\n"
        );
    }

    #[test]
    fn unknown_shape_is_noticed() {
        assert_eq!(relative_includes("include ../common/Makefile\n"), None);
    }

    #[test]
    fn headers_without_a_makefile_are_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = relocate(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("Makefile"), "{error:#}");
    }
}
