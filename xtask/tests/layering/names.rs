//! Types have nouns as names, and within a crate each name stands for one type.
//!
//! Problem: a participle as a name fits any type. A reader of a name that several types have must
//! look up which one is meant, and a search for it finds all of them.
//!
//! Approach: files are read as tokens, without code for tests. The types of a crate are those that
//! its modules define, inline ones and calls of macros included. Associated types, and types within
//! functions, are not among them: nothing else can use their bare names.

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::modules::without_tests;
use crate::none;
use crate::tree::{small_tree, sources, text, tree};

/// The crates without participles as names of types.
const NOUN_CRATES: [&str; 5] = [
    "crates/agent",
    "crates/input",
    "crates/linux",
    "crates/policy",
    "crates/uksm",
];

/// Names of types that name no thing.
const PARTICIPLES: [&str; 50] = [
    "Accounted",
    "Added",
    "Allowed",
    "Answered",
    "Asked",
    "Broken",
    "Chosen",
    "Colliding",
    "Compared",
    "Configured",
    "Counted",
    "Dissolved",
    "Explained",
    "Extended",
    "Failed",
    "Found",
    "Gathered",
    "Given",
    "Heard",
    "Held",
    "Hinted",
    "Judged",
    "Kept",
    "Known",
    "LeftOut",
    "Locked",
    "Made",
    "Merged",
    "Missed",
    "Moved",
    "Named",
    "Offered",
    "Pending",
    "Refused",
    "Resolved",
    "Restored",
    "Running",
    "Said",
    "Sampled",
    "Saved",
    "Seen",
    "Sorted",
    "Spoken",
    "Surveyed",
    "Taken",
    "Told",
    "Unmerged",
    "Waiting",
    "Wanted",
    "Watched",
];

/// Names that several types of a crate may have: the error of a module, and the results with it.
/// Other modules use them with the name of the module, as `proc::Error`.
const SHARED_NAMES: [&str; 2] = ["Error", "Result"];

/// The files that define types of each name. A file stands there once for each definition.
type Types = BTreeMap<String, Vec<PathBuf>>;

/// The types of the crate in a folder, outside of its tests and of the crates below it.
fn types(root: &Path, name: &str) -> Types {
    let folder = root.join(name);
    let mut types = Types::new();
    for path in sources(&folder, &["rs"]) {
        let within = path.strip_prefix(&folder).expect("a file of the crate");
        let is_test = within
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        let mut folders = path.ancestors().skip(1);
        let crate_folder = folders.find(|folder| folder.join("Cargo.toml").exists());
        if is_test || crate_folder.is_some_and(|found| found != folder) {
            continue;
        }
        let tokens: TokenStream = text(&path)
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut found = Vec::new();
        defined(&without_tests(tokens, &mut Default::default()), &mut found);
        for name in found {
            types.entry(name).or_default().push(within.to_owned());
        }
    }
    types
}

/// Adds the names of the types that these tokens define, not looking into functions, traits and
/// implementations.
fn defined(tokens: &[TokenTree], found: &mut Vec<String>) {
    let mut is_body = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let is_type = ["struct", "enum", "union", "trait", "type"].contains(&&*word);
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && is_type
                    && !is_body
                {
                    found.push(name.to_string());
                }
                is_body |= ["fn", "impl", "trait"].contains(&&*word);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_body = false,
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace && !mem::take(&mut is_body) =>
            {
                defined(&group.stream().into_iter().collect::<Vec<_>>(), found);
            }
            _ => {}
        }
    }
}

fn participles(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in NOUN_CRATES {
        for (name, files) in types(root, folder) {
            if PARTICIPLES.contains(&&*name) {
                found.push(format!("{folder}: {name}: {files:?}"));
            }
        }
    }
    found
}

/// Names that stand for several types of one crate, with the files that define these.
fn shared_names(root: &Path) -> Vec<String> {
    let workspace: toml::Table = text(&root.join("Cargo.toml"))
        .parse()
        .expect("the manifest of the workspace is TOML");
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("the workspace lists its members");
    let mut shared = Vec::new();
    for member in members {
        let member = member.as_str().expect("a member is a folder");
        for (name, files) in types(root, member) {
            if files.len() > 1 && !SHARED_NAMES.contains(&&*name) {
                shared.push(format!("{member}: {name}: {files:?}"));
            }
        }
    }
    shared
}

#[test]
fn no_type_is_named_by_a_participle() {
    for folder in NOUN_CRATES {
        assert!(
            !types(&tree(), folder).is_empty(),
            "{folder}: nothing was read"
        );
    }
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

#[test]
fn no_type_name_of_a_crate_stands_for_two_types() {
    assert_eq!(shared_names(&tree()), none());
}

const WORKSPACE: (&str, &str) = ("Cargo.toml", "[workspace]\nmembers = [\"a\", \"a/b\"]\n");

#[test]
fn name_of_two_types_is_caught_in_modules_and_in_macros() {
    for second in [
        "enum Row {}",
        "mod inner { pub(super) union Row { a: u8 } }",
        "fn f() {}\nx::counters! { pub struct Row { a: u8, } }",
        "type Row = u8;",
        "impl X { fn f() {} }\ntrait Row {}",
    ] {
        let root = small_tree(&[
            WORKSPACE,
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", "mod b; pub struct Row(fn());"),
            ("a/src/b.rs", second),
        ]);
        let found = shared_names(root.path());
        assert_eq!(found.len(), 1, "{second}: {found:?}");
        assert!(found[0].starts_with("a: Row: "), "{found:?}");
    }
}

#[test]
fn types_of_tests_of_functions_and_of_other_crates_may_share_a_name() {
    let root = small_tree(&[
        WORKSPACE,
        ("a/Cargo.toml", ""),
        ("a/b/Cargo.toml", ""),
        (
            "a/src/lib.rs",
            "pub struct Row; pub enum Error {} fn f() { struct Row; }\n\
             impl Deref for A { type Row = u8; } trait B { type Row; }\n\
             #[cfg(test)] mod tests { struct Row; }",
        ),
        ("a/src/c.rs", "pub struct Error;"),
        ("a/src/c/tests.rs", "struct Row;"),
        ("a/tests/d/e.rs", "struct Row;"),
        ("a/b/src/lib.rs", "pub struct Row;"),
    ]);
    assert_eq!(shared_names(root.path()), none());
}
