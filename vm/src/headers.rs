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
            "{}: no line 'include /usr/src/…' in it, or another use of /usr/src: the packaging has changed",
            makefile.display()
        );
    };
    fs::write(&makefile, text).with_context(|| makefile.display().to_string())
}

/// Replaces `include /usr/src/X` by an include relative to the makefile's own folder, and
/// `KBUILD_OUTPUT=/usr/src/X` of 7.x by that path in full; `None` if the first is not there, or
/// anything else names that place.
fn relative_includes(text: &str) -> Option<String> {
    const PLACE: &str = "/usr/src/";
    const CHANGES: [(&str, &str); 2] = [
        (
            "include /usr/src/",
            "include $(dir $(lastword $(MAKEFILE_LIST)))../",
        ),
        (
            "KBUILD_OUTPUT=/usr/src/",
            "KBUILD_OUTPUT:=$(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)/",
        ),
    ];
    text.lines()
        .any(|line| line.starts_with(CHANGES[0].0))
        .then_some(())?;
    text.lines()
        .map(|line| {
            let change = CHANGES.iter().find(|(from, _)| line.starts_with(from));
            match change {
                Some((from, to)) => Some(line.replacen(from, to, 1) + "\n"),
                None if line.contains(PLACE) => None,
                None => Some(line.to_owned() + "\n"),
            }
        })
        .collect()
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
    fn output_folder_is_the_makefiles_own() {
        let text = "KBUILD_OUTPUT=/usr/src/x\ninclude /usr/src/x-common/Makefile\n";
        assert_eq!(
            relative_includes(text).unwrap(),
            "KBUILD_OUTPUT:=$(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)/x\ninclude $(dir $(lastword $(MAKEFILE_LIST)))../x-common/Makefile\n"
        );
    }

    #[test]
    fn unknown_shape_is_noticed() {
        for text in [
            "include ../common/Makefile\n",
            "include /usr/src/x/Makefile\nOTHER=/usr/src/x\n",
        ] {
            assert_eq!(relative_includes(text), None);
        }
    }

    #[test]
    fn headers_without_a_makefile_are_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = relocate(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("Makefile"), "{error:#}");
    }
}
