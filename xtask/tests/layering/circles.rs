//! No two files need each other, neither in the crates of [`CRATES`] nor in the module; nor do two
//! folders of the crates of [`CRATES_OF_FOLDERS`].
//!
//! A circle is a strongly connected component of more than one file. In a crate a file needs
//! another if it names an item in it ([`modules`](crate::modules)); a method that is called without
//! its type being named is not seen. In the module a file needs another if it calls a function that
//! the other defines, or takes its address.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::modules;
use crate::none;
use crate::tree::{has_extension, small_tree, sources, text, tree};

/// The crates without circles: all with more than a few files.
const CRATES: [&str; 12] = [
    "bench",
    "crates/agent",
    "crates/linux",
    "crates/policy",
    "crates/redistribution",
    "crates/results",
    "crates/simulator",
    "crates/sketch",
    "crates/testkit",
    "crates/uksm",
    "guest-tests",
    "vm",
];

/// The crates without circles of folders. A folder `a` is `a.rs` and all files below `a/`.
const CRATES_OF_FOLDERS: [&str; 3] = ["bench", "crates/policy", "crates/simulator"];

/// The files that each file needs.
pub(crate) type Needs = BTreeMap<String, BTreeSet<String>>;

/// The strongly connected components of more than one member, sorted.
fn circles(needs: &Needs) -> Vec<BTreeSet<String>> {
    let mut reached = needs.clone();
    for through in needs.keys() {
        let behind = reached.get(through).cloned().unwrap_or_default();
        for from in reached.values_mut() {
            if from.contains(through) {
                from.extend(behind.iter().cloned());
            }
        }
    }
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (file, there) in &reached {
        if there.contains(file) {
            let back = |other: &&String| reached.get(*other).is_some_and(|all| all.contains(file));
            found.insert(there.iter().filter(back).cloned().collect());
        }
    }
    found.into_iter().collect()
}

fn shown(circle: &BTreeSet<String>) -> String {
    circle.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// The circles of a crate's files.
fn crate_circles(root: &Path, name: &str) -> Vec<String> {
    let needs = modules::needs(&root.join(name).join("src"));
    circles(&needs).iter().map(shown).collect()
}

/// The folder of a file, from the crate's `src`.
fn folder(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The circles of a crate's folders.
fn folder_circles(root: &Path, name: &str) -> Vec<String> {
    let mut folders = Needs::new();
    for (file, needed) in modules::needs(&root.join(name).join("src")) {
        let own = folder(&file);
        let others = needed.iter().map(|other| folder(other).to_owned());
        let others = others.filter(|other| other != own);
        folders.entry(own.to_owned()).or_default().extend(others);
    }
    circles(&folders).iter().map(shown).collect()
}

/// C without comments and without quoted text.
fn without_words(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let (start, end) = if rest.starts_with("/*") {
            (2, "*/")
        } else if rest.starts_with("//") {
            (2, "\n")
        } else if rest.starts_with('"') {
            (1, "\"")
        } else if rest.starts_with('\'') {
            (1, "'")
        } else {
            code.push('/');
            rest = &rest[1..];
            continue;
        };
        let mut behind = rest[start..].find(end).map(|length| start + length);
        // A quote behind a backslash does not end the text.
        while let Some(at) = behind
            && end.len() == 1
            && end != "\n"
            && rest[..at].ends_with('\\')
            && !rest[..at].ends_with("\\\\")
        {
            behind = rest[at + 1..].find(end).map(|length| at + 1 + length);
        }
        code.push(' ');
        rest = behind.map_or("", |at| &rest[at + end.len()..]);
    }
    code + rest
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// All words but the tags of structures, which may have the name of a function.
fn named(code: &str) -> BTreeSet<&str> {
    let mut before = "";
    let mut named = BTreeSet::new();
    for word in words(code).filter(|word| !word.is_empty()) {
        if !["struct", "union", "enum"].contains(&before) {
            named.insert(word);
        }
        before = word;
    }
    named
}

/// Functions that other files can call: defined at the start of a line, not static, with a body.
fn functions(code: &str) -> Vec<&str> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let begins = line.starts_with(|c: char| c.is_ascii_alphabetic());
        let Some((before, _)) = line.split_once('(') else {
            continue;
        };
        if !begins || words(line).any(|word| word == "static" || word == "typedef") {
            continue;
        }
        // The body opens on a line of its own, a declaration ends before it.
        let end = lines[at..]
            .iter()
            .find(|line| line.starts_with('{') || line.trim_end().ends_with(';'));
        if end.is_some_and(|line| line.starts_with('{')) {
            found.extend(words(before.trim_end()).last());
        }
    }
    found
}

fn module_needs(root: &Path) -> Needs {
    let folder = root.join("kernel");
    let codes: BTreeMap<String, String> = sources(&folder, &["c"])
        .into_iter()
        .filter(|path| path.parent() == Some(&folder) && has_extension(path, &["c"]))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (name.into_owned(), without_words(&text(&path)))
        })
        .collect();
    let mut homes: BTreeMap<&str, &str> = BTreeMap::new();
    for (file, code) in &codes {
        homes.extend(
            functions(code)
                .into_iter()
                .map(|name| (name, file.as_str())),
        );
    }
    codes
        .iter()
        .map(|(file, code)| {
            let needed = named(code)
                .into_iter()
                .filter_map(|word| homes.get(word))
                .filter(|home| *home != file)
                .map(ToString::to_string);
            (file.clone(), needed.collect())
        })
        .collect()
}

/// The circles of the module's files.
fn module_circles(root: &Path) -> Vec<String> {
    circles(&module_needs(root)).iter().map(shown).collect()
}

fn needs_of(pairs: &[(&str, &str)]) -> Needs {
    let mut needs = Needs::new();
    for (from, to) in pairs {
        needs
            .entry((*from).into())
            .or_default()
            .insert((*to).into());
        needs.entry((*to).into()).or_default();
    }
    needs
}

#[test]
fn circles_are_found_and_chains_are_none() {
    let chain = needs_of(&[("a", "b"), ("b", "c"), ("a", "c")]);
    assert!(circles(&chain).is_empty());
    let two = needs_of(&[
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),
        ("c", "d"),
        ("d", "e"),
        ("e", "d"),
    ]);
    let found: Vec<String> = circles(&two).iter().map(shown).collect();
    assert_eq!(found, ["a, b, c", "d, e"]);
}

#[test]
fn no_files_of_a_crate_need_each_other() {
    for name in CRATES {
        let needs = modules::needs(&tree().join(name).join("src"));
        assert!(
            needs.values().any(|needed| !needed.is_empty()),
            "{name}: no file needs another: nothing was read"
        );
        assert_eq!(crate_circles(&tree(), name), none(), "{name}");
    }
}

#[test]
fn circle_in_a_library_is_caught() {
    let root = small_tree(&[
        ("crates/policy/src/lib.rs", "mod a; mod b; pub use a::A;"),
        (
            "crates/policy/src/a.rs",
            "use crate::b::B; pub struct A(B);",
        ),
        (
            "crates/policy/src/b.rs",
            "pub struct B; fn f(_: &crate::A) {}",
        ),
    ]);
    assert_eq!(crate_circles(root.path(), "crates/policy"), ["a.rs, b.rs"]);
}

#[test]
fn circle_through_the_root_of_a_program_is_caught() {
    let root = small_tree(&[
        ("p/src/main.rs", "mod a; fn main() { a::f(); }"),
        ("p/src/a.rs", "pub fn f(_: crate::Failure) {}"),
    ]);
    assert_eq!(crate_circles(root.path(), "p"), ["a.rs, main.rs"]);
}

#[test]
fn no_folders_of_a_crate_need_each_other() {
    for name in CRATES_OF_FOLDERS {
        assert_eq!(folder_circles(&tree(), name), none(), "{name}");
    }
}

#[test]
fn circle_of_folders_without_a_circle_of_files_is_caught() {
    let root = small_tree(&[
        ("p/src/lib.rs", "mod a; mod b; pub use a::one::One;"),
        ("p/src/a.rs", "pub mod one; pub mod two;"),
        ("p/src/a/one.rs", "pub struct One(crate::b::B);"),
        ("p/src/a/two.rs", "pub struct Two;"),
        ("p/src/b.rs", "pub struct B(crate::a::two::Two);"),
    ]);
    assert_eq!(crate_circles(root.path(), "p"), none());
    assert_eq!(folder_circles(root.path(), "p"), ["a, b"]);
}

#[test]
fn no_files_of_the_module_need_each_other() {
    let needs = module_needs(&tree());
    assert!(
        needs.values().any(|needed| !needed.is_empty()),
        "no file needs another: nothing was read"
    );
    assert_eq!(module_circles(&tree()), none());
}

#[test]
fn circle_in_the_module_is_caught() {
    let root = small_tree(&[
        (
            "kernel/a.c",
            "long uksm_a(int x,\n\t   int y)\n{\n\treturn uksm_b();\n}\n",
        ),
        (
            "kernel/b.c",
            "/* uksm_c() */\nint uksm_b(struct uksm_c *c)\n{\n\tcall(uksm_a, \"uksm_c\");\n}\n",
        ),
        (
            "kernel/c.c",
            "int uksm_b(void);\nint uksm_c(void)\n{\n\treturn uksm_b();\n}\n",
        ),
    ]);
    assert_eq!(module_circles(root.path()), ["a.c, b.c"]);
}
