//! No circle of files in the module.
//!
//! If file A uses a function of file B, and B, perhaps through others, one of A, then neither can
//! be understood or changed alone. The test reads the sources: which file defines each function
//! (`x.c` and `x.h` count as one file), and which files name it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The module's folder.
fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("a crate lies two folders deep")
        .join("kernel")
}

/// C source without comments, strings and preprocessor lines; macro bodies stay.
fn code_of(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if next == '"' || next == '\'' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == next && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            rest = end.map_or("", |end| &rest[end + 2..]);
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    code.lines()
        .filter(|line| !line.starts_with("#include"))
        .fold(String::new(), |code, line| code + line + "\n")
}

/// All identifiers, except the tags of structs, unions and enums.
fn names(code: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = Vec::new();
    let mut after_tag_word = false;
    for word in code.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
        if !after_tag_word {
            names.push(word);
        }
        after_tag_word = ["struct", "union", "enum"].contains(&word);
    }
    names
}

/// The functions that a source defines for others: kernel style begins a definition in the first
/// column, and its body with a brace in the first column. Only a header shares static functions.
fn definitions(code: &str, is_header: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut head = String::new();
    for line in code.lines() {
        if line.starts_with('{') {
            let name = head
                .split_once('(')
                .filter(|(before, _)| is_header || !before.starts_with("static "))
                .and_then(|(before, _)| names(before).pop().map(str::to_owned));
            found.extend(name);
            head.clear();
        } else if line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            line.clone_into(&mut head);
        } else if line.ends_with(';') || line.starts_with('}') || line.trim().is_empty() {
            head.clear();
        } else if !head.is_empty() {
            head.push_str(line);
        }
    }
    found
}

/// Which files use functions of which.
fn graph(folder: &Path) -> Graph {
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_source = name.ends_with(".c") || name.ends_with(".h");
        if is_source && !name.ends_with(".mod.c") {
            let stem = name[..name.len() - 2].to_owned();
            let source = fs::read_to_string(&path).expect("a source is text");
            let code = code_of(&source);
            for function in definitions(&code, name.ends_with(".h")) {
                owners.entry(function).or_default().insert(stem.clone());
            }
            sources.entry(stem).or_default().push_str(&code);
        }
    }
    sources
        .iter()
        .map(|(file, code)| {
            // A name that several files define is each file's own.
            let used = names(code)
                .into_iter()
                .filter_map(|name| owners.get(name))
                .filter(|owners| owners.len() == 1)
                .flatten()
                .filter(|owner| *owner != file)
                .cloned()
                .collect();
            (file.clone(), used)
        })
        .collect()
}

/// All files that a file uses, directly or through others.
fn reach(graph: &Graph, file: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file.to_owned()];
    while let Some(file) = open.pop() {
        for next in graph.get(&file).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

/// Groups of files that all use each other, directly or through others.
fn circles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached: Graph = graph
        .keys()
        .map(|file| (file.clone(), reach(graph, file)))
        .collect();
    reached
        .iter()
        .map(|(file, files)| {
            files
                .iter()
                .filter(|other| reached[*other].contains(file))
                .cloned()
                .collect::<Vec<_>>()
        })
        .filter(|circle| !circle.is_empty())
        .collect()
}

#[test]
fn no_files_of_the_module_use_each_other_in_a_circle() {
    let graph = graph(&module());
    // The parser sees what it must see.
    for (file, used) in [
        ("main", "domain"),
        ("fold", "exchange"),
        ("exchange", "candidate"),
        ("candidate", "batch"),
        ("batch", "frame"),
        ("frame", "domain"),
        ("domain", "frame_id"),
        ("page_state", "frame"),
        ("verb_list", "sample"),
    ] {
        assert!(graph[file].contains(used), "{file} uses {used}: {graph:?}");
    }
    let none: BTreeSet<Vec<String>> = BTreeSet::new();
    assert_eq!(circles(&graph), none);
}

#[test]
fn circle_through_three_files_and_a_header_is_found() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, source: &str| {
        fs::write(folder.path().join(name), source).expect("a file can be written");
    };
    write(
        "a.c",
        "/* c() */\nlong a(struct b *x,\n\t int i)\n{\n\treturn b(\"c()\");\n}\n",
    );
    write("b.h", "static inline int b(int i)\n{\n\treturn c(i);\n}\n");
    write(
        "c.c",
        "static int own(void)\n{\n\treturn 0;\n}\n\nint c(int i)\n{\n\treturn own() + (int)a(0, 0);\n}\n",
    );
    write(
        "d.c",
        "int d(void)\n{\n\tint i = a(0, 0);\n\n\treturn i;\n}\n",
    );
    let expected: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
    let found = circles(&graph(folder.path()));
    assert_eq!(found, BTreeSet::from([expected]));
}

#[test]
fn prototypes_tags_comments_and_strings_are_no_use() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, source: &str| {
        fs::write(folder.path().join(name), source).expect("a file can be written");
    };
    write("a.c", "int a(void)\n{\n\treturn b();\n}\n");
    write(
        "b.c",
        "/* See a(). */\nint b(void)\n{\n\tstruct a x = \"a\";\n\n\treturn 0;\n}\n",
    );
    assert!(circles(&graph(folder.path())).is_empty());
}
