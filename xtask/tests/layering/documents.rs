//! What the documents say of the tree is true: decision records have no holes in their numbers, and
//! the paths in CONTRIBUTING's table exist.

use std::path::Path;

use crate::none;
use crate::tree::{files, small_tree, text, tree};

/// How the table begins that leads from a wish to a file.
const TABLE: &str = "| I want to change";
/// Concerns that the table has at least.
const CONCERNS: usize = 20;

/// Records are called `NNNN-what.md`, from 0001 on.
fn misnumbered_records(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let mut next = 1;
    for path in files(&root.join("docs/decisions")) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("{next:04}-")) {
            next += 1;
        } else {
            broken.push(format!("docs/decisions/{name}: expected {next:04}"));
        }
    }
    broken
}

/// Rows without a path, paths that do not exist, and a table that is too short.
fn wrong_paths(root: &Path) -> Vec<String> {
    let contributing = text(&root.join("CONTRIBUTING.md"));
    let rows: Vec<&str> = contributing
        .lines()
        .skip_while(|line| !line.starts_with(TABLE))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let mut broken = Vec::new();
    if rows.len() < CONCERNS {
        broken.push(format!("{} concerns, fewer than {CONCERNS}", rows.len()));
    }
    for row in rows {
        let paths: Vec<&str> = in_backticks(row).filter(|word| is_path(word)).collect();
        if paths.is_empty() {
            broken.push(format!("names no path: {row}"));
        }
        broken.extend(
            paths
                .into_iter()
                .filter(|path| !root.join(path).exists())
                .map(|path| format!("{path} does not exist")),
        );
    }
    broken
}

fn in_backticks(row: &str) -> impl Iterator<Item = &str> {
    row.split('`').skip(1).step_by(2)
}

/// A path has a folder or an extension in it, and no blanks.
fn is_path(word: &str) -> bool {
    !word.contains("::")
        && !word.contains(char::is_whitespace)
        && (word.contains('/') || Path::new(word).extension().is_some())
}

#[test]
fn decision_records_are_numbered_without_holes() {
    assert!(!files(&tree().join("docs/decisions")).is_empty());
    assert_eq!(misnumbered_records(&tree()), none());
}

#[test]
fn hole_or_missing_number_of_a_decision_record_is_caught() {
    for second in ["0003-b.md", "0001-b.md", "b.md"] {
        let path = format!("docs/decisions/{second}");
        let root = small_tree(&[("docs/decisions/0001-a.md", ""), (path.as_str(), "")]);
        assert_eq!(misnumbered_records(root.path()).len(), 1, "{second}");
    }
}

#[test]
fn each_path_in_the_table_of_concerns_exists() {
    assert_eq!(wrong_paths(&tree()), none());
}

#[test]
fn path_that_does_not_exist_and_row_without_one_are_caught() {
    let good = "| a counter | `a/b.rs`, for `Counter::new` |\n".repeat(CONCERNS);
    let table =
        |row: &str| format!("{TABLE} | open |\n|---|---|\n{good}{row}\n\nafterwards `x/y`\n");
    let broken = |row: &str| {
        let contents = table(row);
        let root = small_tree(&[("a/b.rs", ""), ("CONTRIBUTING.md", contents.as_str())]);
        wrong_paths(root.path())
    };
    assert_eq!(broken(""), none());
    assert_eq!(broken("| a knob | `a/c.rs` |"), ["a/c.rs does not exist"]);
    assert_eq!(broken("| a knob | `Knob` |").len(), 1);
    let root = small_tree(&[("CONTRIBUTING.md", "no table\n")]);
    assert_eq!(wrong_paths(root.path()), ["0 concerns, fewer than 20"]);
}
