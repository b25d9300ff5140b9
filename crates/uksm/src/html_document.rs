//! A document for a browser: one file that needs no other.
//!
//! # Problem
//! A page that is sent by mail or kept for a year must not need a network, a script or a second
//! file, and must be readable without colours or pictures. A run of an hour must not end with a
//! path that cannot be written.
//!
//! # Approach
//! Plots are SVG in the text, each with a summary in words. [`DocumentFile`] is made before
//! anything is read, so that a path that cannot be written is reported at once; it gets its name
//! when it is whole, and until then an earlier file stays. The text is both HTML and well-formed
//! XML, so that any parser of either can check that it is whole.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use html_escape::{encode_double_quoted_attribute, encode_text};
use tempfile::{Builder, NamedTempFile};

const STYLE: &str = "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .5em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}figure{margin:1em 0}";

/// The whole text. The body is HTML.
pub(crate) fn html(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{}</title><style>{STYLE}</style></head><body>\n\
         {body}</body></html>\n",
        encode_text(title)
    )
}

/// A plot, and a summary in words for readers who do not see it.
pub(crate) fn figure(words: &str, svg: &str) -> String {
    format!(
        "<figure role=\"img\" aria-label=\"{}\">{svg}</figure>\n",
        encode_double_quoted_attribute(words)
    )
}

/// A table of cells that are escaped here, the first row its head.
pub(crate) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let line = |cell: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .map(|text| format!("<{cell}>{}</{cell}>", encode_text(text)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let mut text = format!("<table>{}\n", line("th", &head.map(str::to_owned)));
    for row in rows {
        text += &line("td", &row);
        text.push('\n');
    }
    text + "</table>\n"
}

/// A file to be written.
#[derive(Debug)]
pub(crate) struct DocumentFile {
    file: NamedTempFile,
    path: PathBuf,
    /// The option that named it.
    option: &'static str,
}

impl DocumentFile {
    /// Makes a temporary file beside the final path.
    ///
    /// # Errors
    /// It cannot be written there.
    pub(crate) fn create(option: &'static str, path: &Path) -> anyhow::Result<DocumentFile> {
        let what = || format!("{option} {}", path.display());
        if path.is_dir() {
            return Err(anyhow!("is a folder")).with_context(what);
        }
        // A file takes its name: a device of that name would be lost.
        if path.exists() && !path.is_file() {
            return Err(anyhow!("is not a regular file")).with_context(what);
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(anyhow!("there is no folder {}", folder.display())).with_context(what);
        }
        let file = Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)
            // The message would name the temporary file.
            .map_err(|error| anyhow!(error.kind()))
            .with_context(what)?;
        Ok(DocumentFile {
            file,
            path: path.to_owned(),
            option,
        })
    }

    /// Writes it, and gives it its final name.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(mut self, text: &str) -> anyhow::Result<()> {
        let what = format!("{} {}", self.option, self.path.display());
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| what.clone())?;
        let kept = self.file.persist(&self.path).map_err(|kept| kept.error);
        kept.map(drop).context(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_chose_is_escaped_in_titles_words_and_cells() {
        let text = html("a<b", "");
        assert!(text.contains("<title>a&lt;b</title>"), "{text}");
        let text = figure("\"><script>", "<svg></svg>");
        assert!(
            text.contains("aria-label=\"&quot;&gt;&lt;script&gt;\"")
                && text.contains("<svg></svg>"),
            "{text}"
        );
        let text = table(["x&y"], [["<b>".to_owned()]]);
        assert!(text.contains("<th>x&amp;y</th>") && text.contains("<td>&lt;b&gt;</td>"));
    }

    #[test]
    fn what_is_there_stays_until_all_is_written_and_a_device_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        std::fs::write(&path, "before").unwrap();
        let file = DocumentFile::create("--output", &path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        file.write("after").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = DocumentFile::create("--output", &socket).unwrap_err();
        let line = format!("{error:#}");
        assert!(
            line.starts_with("--output /") && line.ends_with("/socket: is not a regular file"),
            "{line}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
