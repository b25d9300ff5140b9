//! Files are short, named for their subject, open with their purpose, and have their tests in one
//! of two places.

use std::path::Path;

use crate::none;
use crate::tree::{has_extension, small_tree, sources, text, tree};

/// Limit of the lines of a source file.
const MAX_LINES: usize = 600;

/// Limit of the columns of a comment line in Rust: rustfmt wraps code there, and no comment.
const MAX_COMMENT_COLUMNS: usize = 100;

/// File names that do not describe the file.
const EMPTY_WORDS: [&str; 8] = [
    "util", "utils", "common", "manager", "helper", "helpers", "misc", "shared",
];

fn bad_files(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["rs", "c", "h", "sh"]) {
        let text = text(&path);
        let lines = text.lines().count();
        if lines > MAX_LINES {
            broken.push(format!(
                "{}: {lines} lines, more than {MAX_LINES}",
                path.display()
            ));
        }
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let folder = path
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for word in [stem, folder] {
            if EMPTY_WORDS.contains(&word.as_str()) {
                broken.push(format!(
                    "{}: '{word}' says nothing about what is in it",
                    path.display()
                ));
            }
        }
        if has_extension(&path, &["rs"]) && !text.starts_with("//!") {
            broken.push(format!(
                "{}: does not open with what it is for (//!)",
                path.display()
            ));
        }
    }
    broken
}

#[test]
fn files_are_short_named_for_their_subject_and_open_with_their_purpose() {
    assert_eq!(bad_files(&tree()), none());
}

#[test]
fn long_nameless_or_unexplained_file_is_caught() {
    let long = format!("//! x\n{}", "\n".repeat(MAX_LINES));
    let cases = [
        ("crates/a/src/a.rs", long.as_str()),
        ("crates/a/src/utils.rs", "//! x\n"),
        ("crates/common/b.rs", "//! x\n"),
        ("a.rs", "fn main() {}\n"),
    ];
    for (path, contents) in cases {
        let root = small_tree(&[(path, contents)]);
        assert_eq!(bad_files(root.path()).len(), 1, "{path}");
    }
}

/// Unit tests stand in `mod tests` at the end of the file they test, or, when they are long, in
/// `foo/tests.rs` beside `foo.rs`.
fn misplaced_tests(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["rs"]) {
        let within = path.strip_prefix(root).expect("a file of the tree");
        if !within.iter().any(|folder| folder == "src") {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if stem == "tests" {
            let tested = path.parent().expect("a folder").with_extension("rs");
            if !tested.exists() {
                broken.push(format!(
                    "{}: beside no file that it tests",
                    within.display()
                ));
            }
        } else if stem.ends_with("_tests") || stem.ends_with("_test") {
            broken.push(format!(
                "{}: unit tests are in foo/tests.rs",
                within.display()
            ));
        }
    }
    broken
}

#[test]
fn unit_tests_are_in_the_file_they_test_or_beside_it() {
    assert_eq!(misplaced_tests(&tree()), none());
}

#[test]
fn unit_tests_in_another_place_are_caught() {
    for path in ["crates/a/src/b_tests.rs", "crates/a/src/b/tests.rs"] {
        let root = small_tree(&[(path, "//! x\n")]);
        assert_eq!(misplaced_tests(root.path()).len(), 1, "{path}");
    }
    let root = small_tree(&[("crates/a/src/b.rs", ""), ("crates/a/src/b/tests.rs", "")]);
    assert_eq!(misplaced_tests(root.path()), none());
}

/// Words that say nothing of how many, or make a call of speech (`CONTRIBUTING.md`).
const VAGUE_WORDS: [&str; 4] = ["so many", "so much", "heard", "told of"];

fn vague_comments(root: &Path) -> Vec<String> {
    let mut vague = Vec::new();
    for path in sources(root, &["rs"]) {
        for (number, line) in (1..).zip(text(&path).lines()) {
            let comment = line.trim_start();
            for word in VAGUE_WORDS {
                if comment.starts_with("//") && comment.contains(word) {
                    vague.push(format!("{}:{number}: '{word}'", path.display()));
                }
            }
        }
    }
    vague
}

#[test]
fn comments_name_numbers_and_calls() {
    assert_eq!(vague_comments(&tree()), none());
}

#[test]
fn a_vague_comment_is_caught() {
    let root = small_tree(&[("crates/a/src/b.rs", "//! x\n/// At most so many.\n")]);
    assert_eq!(vague_comments(root.path()).len(), 1);
}

fn wide_comments(root: &Path) -> Vec<String> {
    let mut wide = Vec::new();
    for path in sources(root, &["rs"]) {
        for (number, line) in (1..).zip(text(&path).lines()) {
            let columns = line.chars().count();
            if line.trim_start().starts_with("//") && columns > MAX_COMMENT_COLUMNS {
                wide.push(format!(
                    "{}:{number}: a comment of {columns} columns",
                    path.display()
                ));
            }
        }
    }
    wide
}

#[test]
fn comments_are_as_wide_as_code_at_most() {
    assert_eq!(wide_comments(&tree()), none());
}

#[test]
fn a_comment_wider_than_code_is_caught() {
    let wide = format!("//! x\n// {}\n", "y".repeat(MAX_COMMENT_COLUMNS));
    let root = small_tree(&[("crates/a/src/b.rs", &wide)]);
    assert_eq!(wide_comments(root.path()).len(), 1);
}
