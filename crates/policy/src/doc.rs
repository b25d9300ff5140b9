//! Texts for help and manual, taken from doc comments.

/// The first paragraph of a doc comment as one line, without its last full stop.
pub(crate) fn first_paragraph(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| line.trim());
    let first: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let text = first.join(" ");
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}
