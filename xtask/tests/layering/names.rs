//! Types have nouns as names.
//!
//! Problem: a participle as a name fits any type, so it is soon the name of many, and a reader of
//! one must look up which.

use std::path::Path;

use crate::none;
use crate::tree::{small_tree, sources, text, tree};

/// The folders in which the rule holds.
const FOLDERS: [&str; 1] = ["crates/uksm/src"];

/// Names of types that name no thing.
const PARTICIPLES: [&str; 16] = [
    "Asked", "Chosen", "Found", "Given", "Held", "Kept", "Known", "Made", "Said", "Seen", "Sorted",
    "Spoken", "Taken", "Told", "Wanted", "Heard",
];

fn participles(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        for path in sources(&root.join(folder), &["rs"]) {
            for (number, line) in (1..).zip(text(&path).lines()) {
                let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let is_type = |word: &str| ["struct", "enum", "trait", "type"].contains(&word);
                let name = words.find(|word| is_type(word)).and_then(|_| words.next());
                if let Some(name) = name.filter(|name| PARTICIPLES.contains(name)) {
                    found.push(format!("{}:{number}: {name}", path.display()));
                }
            }
        }
    }
    found
}

#[test]
fn no_type_is_named_by_a_participle() {
    assert_eq!(participles(&tree()), none());
}

#[test]
fn a_participle_is_caught() {
    let root = small_tree(&[(
        "crates/uksm/src/a.rs",
        "//! x\npub(crate) struct Told<T>(T);\n",
    )]);
    assert_eq!(participles(root.path()).len(), 1);
}
