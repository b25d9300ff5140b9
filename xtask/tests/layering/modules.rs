//! The files of a crate that name an item in another file.
//!
//! Problem: a path names a module, an item of one, or an item that a module has imported from a
//! third.
//!
//! Approach: files are read as tokens, without code for tests. Each path (`crate::…`, `super::…`,
//! `self::…`, a child's, or one that begins with an imported name) is followed through modules and
//! imports to the file that defines its item. `mod child;` needs no file, and neither does a `pub
//! use` whose names the file does not use itself: it only re-exports them. A path to a module
//! itself needs no file either; the items taken from it do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::circles::Needs;
use crate::tree::{small_tree, sources, text};

/// Names from the crate's root to a module or an item.
type Names = Vec<String>;

/// Imports that lead to imports are followed this far.
const DEPTH: usize = 8;

/// A path as a file has it.
struct UsedPath {
    names: Names,
    /// Its name in the file; `*` for all names.
    called: String,
}

/// A module that is a file.
#[derive(Default)]
struct Module {
    file: String,
    /// Its imports, and whether they are only re-exported.
    imports: Vec<(UsedPath, bool)>,
    /// All other paths.
    paths: Vec<UsedPath>,
    /// Identifiers outside of imports.
    identifiers: BTreeSet<String>,
    /// Modules for tests only.
    tests: BTreeSet<String>,
}

/// The files that each file below a crate's `src` needs. The root is `lib.rs`, or `main.rs` where
/// there is no library.
pub(crate) fn needs(src: &Path) -> Needs {
    let mut modules: BTreeMap<Names, Module> = BTreeMap::new();
    let root = if src.join("lib.rs").exists() {
        "lib.rs"
    } else {
        "main.rs"
    };
    for path in sources(src, &["rs"]) {
        let within = path.strip_prefix(src).expect("a file of the crate");
        let mut names: Names = within
            .with_extension("")
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let is_root = within == Path::new(root);
        names.pop_if(|last| last == "mod" || is_root);
        let mut module = Module {
            file: within.display().to_string(),
            ..Module::default()
        };
        let tokens = text(&path).parse().expect("a file is Rust");
        let tokens = without_tests(tokens, &mut module.tests);
        module.read(&tokens);
        modules.insert(names, module);
    }
    let tests: Vec<Names> = modules
        .iter()
        .flat_map(|(names, module)| module.tests.iter().map(|test| joined(names, test)))
        .collect();
    modules.retain(|names, _| !tests.iter().any(|test| names.starts_with(test)));
    let mut found = Needs::new();
    for (names, module) in &modules {
        let used = module
            .imports
            .iter()
            .filter(|(written, shows)| !shows || module.identifiers.contains(&written.called))
            .map(|(written, _)| written);
        let needed = used
            .chain(&module.paths)
            .filter_map(|written| home(&modules, names, written))
            .filter(|file| *file != module.file)
            .collect();
        found.insert(module.file.clone(), needed);
    }
    found
}

fn joined(names: &[String], last: &str) -> Names {
    let mut joined = names.to_vec();
    joined.push(last.to_owned());
    joined
}

/// The file that defines the item of a path; none for a module, and for items of other crates.
fn home(modules: &BTreeMap<Names, Module>, at: &[String], written: &UsedPath) -> Option<String> {
    let (module, is_module) = follow(modules, at, &written.names, DEPTH)?;
    (!is_module || written.called == "*").then(|| modules[&module].file.clone())
}

/// The module in which a path ends, and whether it names the module itself.
fn follow(
    modules: &BTreeMap<Names, Module>,
    at: &[String],
    names: &[String],
    depth: usize,
) -> Option<(Names, bool)> {
    let mut here: Names = at.to_vec();
    let mut rest = names;
    let mut is_rooted = false;
    while let [first, behind @ ..] = rest {
        match first.as_str() {
            "crate" => here.clear(),
            "super" => {
                here.pop()?;
            }
            "self" => {}
            _ => break,
        }
        is_rooted = true;
        rest = behind;
    }
    while let [first, behind @ ..] = rest {
        let child = joined(&here, first);
        if modules.contains_key(&child) {
            here = child;
        } else {
            let import = modules
                .get(&here)?
                .imports
                .iter()
                .find(|(written, _)| written.called == *first);
            // An import of a name from outside has no target, nor has one of itself.
            let imported = import
                .filter(|(written, _)| depth > 0 && written.names != rest)
                .map(|(written, _)| [&written.names[..], behind].concat());
            return match imported {
                Some(names) => follow(modules, &here, &names, depth - 1),
                None if is_rooted => Some((here, false)),
                None => None,
            };
        }
        is_rooted = true;
        rest = behind;
    }
    modules.contains_key(&here).then_some((here, true))
}

impl Module {
    /// Sorts tokens into imports, other paths and identifiers.
    fn read(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        let mut shows = false;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(word) if word == "pub" => {
                    shows = true;
                    let scope = matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
                        if group.delimiter() == Delimiter::Parenthesis);
                    at += if scope { 2 } else { 1 };
                    continue;
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = tokens[at..]
                        .iter()
                        .position(|token| is_punct(token, ';'))
                        .map_or(tokens.len(), |length| at + length);
                    let mut written = Vec::new();
                    import(&tokens[at + 1..end], &[], &mut written);
                    self.imports
                        .extend(written.into_iter().map(|path| (path, shows)));
                    at = end;
                }
                TokenTree::Ident(_) => {
                    let is_field = at > 0 && is_punct(&tokens[at - 1], '.');
                    let mut names = Names::new();
                    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
                        names.push(word.to_string());
                        self.identifiers.insert(word.to_string());
                        if !is_colons(&tokens[at + 1..]) {
                            break;
                        }
                        at += 3;
                    }
                    // A path that ends in `::<` or the like has gone one too far.
                    if at >= tokens.len() || !matches!(tokens[at], TokenTree::Ident(_)) {
                        at -= 1;
                    }
                    if names.len() > 1 && !is_field {
                        self.paths.push(UsedPath {
                            called: names[names.len() - 1].clone(),
                            names,
                        });
                    }
                }
                TokenTree::Group(group) => {
                    self.read(&group.stream().into_iter().collect::<Vec<_>>());
                }
                _ => {}
            }
            shows = false;
            at += 1;
        }
    }
}

/// Reads the tokens between `use` and `;`, behind these names.
fn import(tokens: &[TokenTree], behind: &[String], written: &mut Vec<UsedPath>) {
    for branch in tokens.split(|token| is_punct(token, ',')) {
        let mut names = behind.to_vec();
        let mut called = None;
        let mut is_alias = false;
        for token in branch {
            match token {
                TokenTree::Ident(word) if word == "as" => is_alias = true,
                TokenTree::Ident(word) if is_alias => called = Some(word.to_string()),
                // `a::{self}` names a.
                TokenTree::Ident(word) if word == "self" && !names.is_empty() => {}
                TokenTree::Ident(word) => names.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => called = Some("*".to_owned()),
                TokenTree::Group(group) => {
                    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    import(&inside, &names, written);
                    names.clear();
                }
                _ => {}
            }
        }
        if let Some(last) = names.last() {
            let called = called.unwrap_or_else(|| last.clone());
            written.push(UsedPath { names, called });
        }
    }
}

/// Leaves out each `#[cfg(test)]` item; notes the modules among them.
pub(crate) fn without_tests(tokens: TokenStream, tests: &mut BTreeSet<String>) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut rest = tokens.into_iter();
    while let Some(token) = rest.next() {
        let is_test = matches!(&token, TokenTree::Group(group)
            if group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "cfg (test)")
            && kept.last().is_some_and(|before| is_punct(before, '#'));
        if !is_test {
            kept.push(token);
            continue;
        }
        kept.pop();
        let mut before = String::new();
        for token in rest.by_ref() {
            match &token {
                TokenTree::Ident(word) => {
                    if before == "mod" {
                        tests.insert(word.to_string());
                    }
                    before = word.to_string();
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                token if is_punct(token, ';') => break,
                _ => {}
            }
        }
    }
    kept
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [first, second, ..] if is_punct(first, ':') && is_punct(second, ':'))
}

/// Needs of a small crate, as "from: to to".
fn shown(contents: &[(&str, &str)]) -> Vec<String> {
    let root = small_tree(contents);
    needs(root.path())
        .into_iter()
        .filter(|(_, needed)| !needed.is_empty())
        .map(|(file, needed)| {
            format!(
                "{file}: {}",
                needed.into_iter().collect::<Vec<_>>().join(" ")
            )
        })
        .collect()
}

#[test]
fn paths_and_imports_are_followed_to_the_file_that_defines_the_name() {
    let found = shown(&[
        ("lib.rs", "mod a; mod b; mod c; pub use c::d::{D, E as F};"),
        (
            "a.rs",
            "use crate::{b::B, D}; fn f() { assert!(crate::c::g()); }",
        ),
        (
            "b.rs",
            "use super::c::{self, d as other}; fn f() { other::D; c::d::E } pub struct B;",
        ),
        (
            "c.rs",
            "pub mod d; use std::fmt; pub fn g() -> fmt::Result {}",
        ),
        (
            "c/d.rs",
            "use super::g; use super::super::a; pub struct D; pub struct E;",
        ),
    ]);
    assert_eq!(
        found,
        ["a.rs: b.rs c.rs c/d.rs", "b.rs: c/d.rs", "c/d.rs: c.rs"]
    );
}

#[test]
fn declaring_or_showing_a_child_needs_it_not_and_using_it_does() {
    let child = ("a/b.rs", "use super::*; pub struct B;");
    let found = shown(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; pub use b::B;"),
        child,
    ]);
    assert_eq!(found, ["a/b.rs: a.rs"]);
    let found = shown(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; pub(crate) use b::B; struct A(B);"),
        child,
    ]);
    assert_eq!(found, ["a.rs: a/b.rs", "a/b.rs: a.rs"]);
}

#[test]
fn what_only_tests_see_counts_not() {
    let found = shown(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "#[cfg(test)] mod tests; #[cfg(test)] mod more { use crate::b::B; }",
        ),
        ("a/tests.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B;"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}
