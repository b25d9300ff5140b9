//! Settings that are paths.

use std::path::PathBuf;

use uksm_policy::params::form::Form;

/// Any path.
pub(super) struct AnyPath;

/// Any path.
pub(super) fn path() -> AnyPath {
    AnyPath
}

impl Form for AnyPath {
    type Value = PathBuf;

    fn unit(&self) -> &'static str {
        "path"
    }

    fn bounds(&self) -> String {
        String::new()
    }

    fn read(&self, text: &str) -> Option<PathBuf> {
        Some(PathBuf::from(text))
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn accepts(&self, _: &PathBuf) -> bool {
        true
    }
}

/// A folder; `none`, or no text, is none.
pub(super) struct FolderOrNone;

impl Form for FolderOrNone {
    type Value = Option<PathBuf>;

    fn unit(&self) -> &'static str {
        "path"
    }

    fn bounds(&self) -> String {
        "none, or a folder".to_owned()
    }

    fn read(&self, text: &str) -> Option<Self::Value> {
        let is_none = text.is_empty() || text == "none";
        Some((!is_none).then(|| PathBuf::from(text)))
    }

    fn show(&self, value: &Self::Value) -> String {
        let path = value.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| "none".to_owned())
    }

    fn accepts(&self, _: &Self::Value) -> bool {
        true
    }
}
