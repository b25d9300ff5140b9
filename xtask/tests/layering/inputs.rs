//! Each input that a less privileged user decides has a test that exists: the table of
//! `docs/threat-model.md`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::none;
use crate::tree::{small_tree, sources, text, tree};

/// Beginning of the table.
const TABLE: &str = "| input | who decides it |";

/// Least number of inputs in the table.
const MIN_INPUTS: usize = 10;

/// Names of all functions of the tree.
fn functions(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in sources(root, &["rs"]) {
        let code = text(&path);
        for behind in code.split("fn ").skip(1) {
            let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.insert(behind[..end.unwrap_or(behind.len())].to_owned());
        }
    }
    names
}

/// Rows whose last column names no test, or a missing test or folder.
fn untested(root: &Path) -> Vec<String> {
    let document = text(&root.join("docs/threat-model.md"));
    let rows: Vec<&str> = document
        .lines()
        .skip_while(|line| !line.starts_with(TABLE))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let mut broken = Vec::new();
    if rows.len() < MIN_INPUTS {
        broken.push(format!("{} inputs, fewer than {MIN_INPUTS}", rows.len()));
    }
    let functions = functions(root);
    for row in rows {
        let tests = row.trim_end_matches(['|', ' ']).rsplit('|').next();
        let mut tests = tests
            .unwrap_or_default()
            .split('`')
            .skip(1)
            .step_by(2)
            .peekable();
        if tests.peek().is_none() {
            broken.push(format!("names no test: {row}"));
        }
        for test in tests {
            let name = test.rsplit("::").next().unwrap_or(test);
            let is_there = match test.contains('/') {
                true => root.join(test).exists(),
                false => functions.contains(name),
            };
            if !is_there {
                broken.push(format!("{test} does not exist"));
            }
        }
    }
    broken
}

#[test]
fn each_input_that_others_decide_has_a_test() {
    assert_eq!(untested(&tree()), none());
}

#[test]
fn input_without_a_test_is_caught() {
    let good =
        "| a | b | c | d | `it_holds`, `a::it_holds`, `a` says `a/b.rs` |\n".repeat(MIN_INPUTS);
    let broken = |row: &str| {
        let table = format!("{TABLE} bound |\n|---|---|---|\n{good}{row}\n\nafterwards\n");
        let root = small_tree(&[
            ("a/b.rs", "fn a() {}\n#[test]\nfn it_holds() {}\n"),
            ("docs/threat-model.md", table.as_str()),
        ]);
        untested(root.path())
    };
    assert_eq!(broken(""), none());
    assert_eq!(
        broken("| a | b | c | d | `it_fails` |"),
        ["it_fails does not exist"]
    );
    assert_eq!(
        broken("| a | b | c | d | `a/c.rs` |"),
        ["a/c.rs does not exist"]
    );
    assert_eq!(broken("| a | b | `it_holds` | d | tests |").len(), 1);
}
