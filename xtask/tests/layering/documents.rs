//! The statements of documents on the tree are true: decision records have no gaps in their
//! numbers, the paths in CONTRIBUTING's table exist, and links lead to existing documents and
//! headings.

use std::path::Path;

use crate::none;
use crate::tree::{files, small_tree, sources, text, tree};

/// Beginning of the table that leads from a wish to a file.
const TABLE: &str = "| I want to change";
/// Least number of concerns in the table.
const CONCERNS: usize = 20;

/// Decision records are named `NNNN-topic.md`, from 0001 on. The index beside them is `README.md`.
fn misnumbered_records(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let mut next = 1;
    let folder = root.join("docs/decisions");
    let index = folder.join("README.md");
    for path in files(&folder).into_iter().filter(|path| *path != index) {
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

/// Links to missing documents or headings, and named documents of `docs/` that do not exist.
fn dead_ends(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["md"]) {
        let contents = text(&path);
        let folder = path.parent().unwrap_or(root);
        let mut complain = |to: &str| {
            let from = path.strip_prefix(root).unwrap_or(&path);
            broken.push(format!("{}: {to}", from.display()));
        };
        for link in contents.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if !file.ends_with(".md") || file.contains("://") {
                continue;
            }
            let leads = |to: &Path| {
                to.is_file()
                    && (heading.is_empty() || headings(&text(to)).any(|own| own == heading))
            };
            if !leads(&folder.join(file)) {
                complain(link);
            }
        }
        for named in in_backticks(&contents).filter(|word| word.starts_with("docs/")) {
            if named.ends_with(".md") && !root.join(named).is_file() {
                complain(named);
            }
        }
    }
    broken
}

/// Headings of a document as links name them.
fn headings(document: &str) -> impl Iterator<Item = String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        words
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    })
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
fn index_of_decision_records_has_no_number() {
    for (beside, is_wrong) in [
        ("README.md", false),
        ("readme.md", true),
        ("a/README.md", true),
    ] {
        let path = format!("docs/decisions/{beside}");
        let root = small_tree(&[("docs/decisions/0001-a.md", ""), (path.as_str(), "")]);
        let broken = misnumbered_records(root.path());
        assert_eq!(broken.len(), usize::from(is_wrong), "{beside}");
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

#[test]
fn documents_lead_to_documents() {
    assert_eq!(dead_ends(&tree()), none());
}

#[test]
fn link_to_no_document_and_to_no_heading_is_caught() {
    for (from, is_dead) in [
        (
            "see [it](b.md), `docs/b.md`, [here](b.md#two-of-all)",
            false,
        ),
        ("see [it](https://a.example/b.md)", false),
        ("see [it](c.md)", true),
        ("see [it](../b.md)", true),
        ("see [it](b.md#three)", true),
        ("see `docs/c.md`", true),
    ] {
        let root = small_tree(&[
            ("docs/a.md", from),
            ("docs/b.md", "# One\n\n## Two, of `all`\n"),
        ]);
        assert_eq!(dead_ends(root.path()).len(), usize::from(is_dead), "{from}");
    }
}
