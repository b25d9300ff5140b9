//! The tree keeps to its layers, licences and sizes.
//!
//! Problem: a rule of architecture that nobody checks is gone after a few
//! changes.
//!
//! Approach: each rule reads the tree (manifests as TOML, sources as text) and
//! gives the places that break it. For each rule there is a test that the real
//! tree keeps it, and one that a small tree which breaks it is caught.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which of our crates a crate may depend on. What is not listed is an error,
/// so a new crate needs a line here.
const LAYERS: [(&str, &[&str]); 9] = [
    ("uksm-policy", &[]),
    ("uksm-simulator", &["uksm-policy"]),
    ("uksm-linux", &["uksm-policy"]),
    ("uksm", &["uksm-policy", "uksm-linux"]),
    ("uksm-vm-protocol", &[]),
    ("uksm-vm", &["uksm-vm-protocol"]),
    (
        "uksm-guest-tests",
        &["uksm-policy", "uksm-linux", "uksm-vm-protocol"],
    ),
    (
        "xtask",
        &["uksm-vm", "uksm-vm-protocol", "uksm-guest-tests"],
    ),
    (
        "uksm-bench",
        &["uksm-policy", "uksm-linux", "uksm-simulator"],
    ),
];

/// What the policy must not touch: it has no clock, thread, random source or
/// I/O of its own.
const FORBIDDEN_IN_POLICY: [&str; 9] = [
    "std::time",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "rand::",
    "libc::",
];

/// Longest source file, in lines.
const LONGEST: usize = 600;

/// File names that say nothing about what is in the file.
const EMPTY_WORDS: [&str; 8] = [
    "util", "utils", "common", "manager", "helper", "helpers", "misc", "shared",
];

const GPL: &str = "SPDX-License-Identifier: GPL-2.0-only";
const SYSCALL_NOTE: &str = "SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note";
const APACHE: &str = "SPDX-License-Identifier: Apache-2.0";

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(1)
        .expect("a crate lies two folders deep")
        .into()
}

/// All files below a folder that are ours, sorted; none if there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("a folder can be read").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !["target", "results", ".git"].contains(&name.as_str()) {
                found.extend(files(&path));
            }
        } else if !name.ends_with(".mod.c") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|own| extensions.iter().any(|extension| own == *extension))
}

fn sources(root: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    files(root)
        .into_iter()
        .filter(|path| has_extension(path, extensions))
        .collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the crates that a manifest depends on, in any of its sections.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else {
            continue;
        };
        if key.ends_with("dependencies") {
            for (name, how) in table {
                let renamed = how.get("package").and_then(toml::Value::as_str);
                let path = how.get("path").and_then(toml::Value::as_str);
                names.push(renamed.unwrap_or(name).to_owned());
                // A path can lead to a sibling under any name.
                names.extend(
                    path.and_then(|path| Path::new(path).file_name())
                        .map(|dir| {
                            let dir = dir.to_string_lossy();
                            if dir.starts_with("uksm") {
                                dir.into_owned()
                            } else {
                                format!("uksm-{dir}")
                            }
                        }),
                );
            }
        } else if key == "target" {
            names.extend(
                table
                    .values()
                    .filter_map(toml::Value::as_table)
                    .flat_map(dependencies),
            );
        }
    }
    names
}

fn broken_layers(root: &Path) -> Vec<String> {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.into_iter().collect();
    let workspace: toml::Table = text(&root.join("Cargo.toml"))
        .parse()
        .expect("the workspace's manifest is TOML");
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("the workspace lists its members");
    let mut broken = Vec::new();
    for member in members {
        let path = root
            .join(member.as_str().expect("a member is a path"))
            .join("Cargo.toml");
        let manifest: toml::Table = text(&path).parse().expect("a manifest is TOML");
        let name = manifest["package"]["name"]
            .as_str()
            .expect("a package has a name");
        let Some(allowed) = layers.get(name) else {
            broken.push(format!("{name} is in no layer: add it to LAYERS"));
            continue;
        };
        for needed in dependencies(&manifest) {
            if layers.contains_key(needed.as_str()) && !allowed.contains(&needed.as_str()) {
                broken.push(format!("{name} must not depend on {needed}"));
            }
        }
    }
    broken.sort();
    broken.dedup();
    broken
}

/// Sources that pull in files of another crate behind cargo's back.
fn reached_across(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["rs"]) {
        for (number, line) in (1..).zip(text(&path).lines()) {
            let code = line.trim_start();
            let reaches = (code.starts_with("#[path") || code.starts_with("include!("))
                && code.contains("..");
            if reaches {
                broken.push(format!("{}:{number}: {code}", path.display()));
            }
        }
    }
    broken
}

fn impure_policy(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(&root.join("crates/policy/src"), &["rs"]) {
        for (number, line) in (1..).zip(text(&path).lines()) {
            let code = line.split("//").next().unwrap_or_default();
            // Tests of a module stand at its end, and may read vectors.
            if code.starts_with("#[cfg(test)]") || code.starts_with("mod tests") {
                break;
            }
            if let Some(word) = FORBIDDEN_IN_POLICY.iter().find(|word| code.contains(*word)) {
                broken.push(format!("{}:{number}: {word}", path.display()));
            }
        }
    }
    broken
}

fn wrong_licences(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let mut expect = |path: &Path, licence: &str| {
        let start: String = text(path).lines().take(2).collect::<Vec<_>>().join("\n");
        // The shorter identifier is the beginning of the longer one.
        let exact = start.contains(licence) && (licence == SYSCALL_NOTE || !start.contains("WITH"));
        if !exact {
            broken.push(format!(
                "{}: its first lines lack '{licence}'",
                path.display()
            ));
        }
    };
    let is_build_file = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name == "Kbuild" || name == "Makefile")
    };
    for folder in ["kernel", "bpf"] {
        for path in files(&root.join(folder)) {
            if has_extension(&path, &["c", "h", "S"]) || is_build_file(&path) {
                expect(&path, GPL);
            }
        }
    }
    for path in sources(&root.join("interface"), &["h"]) {
        expect(&path, SYSCALL_NOTE);
    }
    for path in files(&root.join("scripts"))
        .into_iter()
        .chain(files(&root.join(".ci")))
    {
        expect(&path, APACHE);
    }
    for path in files(root)
        .into_iter()
        .filter(|path| path.ends_with("Cargo.toml"))
    {
        let manifest: toml::Table = text(&path).parse().expect("a manifest is TOML");
        let own = manifest
            .get("package")
            .and_then(|package| package.get("license"));
        let common = manifest
            .get("workspace")
            .and_then(|w| w.get("package")?.get("license"));
        let fine = match (own, common) {
            (Some(own), _) => own.get("workspace").and_then(toml::Value::as_bool) == Some(true),
            (None, common) => common.and_then(toml::Value::as_str) == Some("Apache-2.0"),
        };
        if !fine {
            broken.push(format!(
                "{}: its licence is not the workspace's",
                path.display()
            ));
        }
    }
    broken
}

fn bad_files(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["rs", "c", "h", "sh"]) {
        let text = text(&path);
        let lines = text.lines().count();
        if lines > LONGEST {
            broken.push(format!(
                "{}: {lines} lines, more than {LONGEST}",
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

/// A small tree with these files, to break a rule in.
fn small_tree(contents: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder can be made");
    for (path, contents) in contents {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .expect("a folder can be made");
        fs::write(path, contents).expect("a file can be written");
    }
    root
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn crates_depend_on_lower_layers_only() {
    assert_eq!(broken_layers(&tree()), none());
}

#[test]
fn dependency_on_a_sibling_or_upwards_is_caught_in_every_section() {
    for section in [
        "dependencies",
        "dev-dependencies",
        "build-dependencies",
        "target.'cfg(unix)'.dependencies",
    ] {
        for how in [
            "uksm-linux = { workspace = true }",
            "l = { package = \"uksm-linux\", version = \"1\" }",
            "l = { path = \"../linux\" }",
        ] {
            let manifest = format!("[package]\nname = \"uksm-policy\"\n[{section}]\n{how}\n");
            let root = small_tree(&[
                ("Cargo.toml", "[workspace]\nmembers = [\"crates/policy\"]\n"),
                ("crates/policy/Cargo.toml", &manifest),
            ]);
            assert_eq!(
                broken_layers(root.path()),
                ["uksm-policy must not depend on uksm-linux"],
                "{section}: {how}"
            );
        }
    }
}

#[test]
fn crate_that_is_in_no_layer_is_caught() {
    let root = small_tree(&[
        ("Cargo.toml", "[workspace]\nmembers = [\"crates/new\"]\n"),
        ("crates/new/Cargo.toml", "[package]\nname = \"uksm-new\"\n"),
    ]);
    assert_eq!(
        broken_layers(root.path()),
        ["uksm-new is in no layer: add it to LAYERS"]
    );
}

#[test]
fn nothing_imports_the_harness_or_the_benchmarks() {
    for (name, allowed) in LAYERS {
        assert!(
            !allowed.contains(&"xtask") && !allowed.contains(&"uksm-bench"),
            "{name}"
        );
    }
}

#[test]
fn no_source_reaches_into_another_crate() {
    assert_eq!(reached_across(&tree()), none());
}

#[test]
fn source_that_reaches_into_another_crate_is_caught() {
    let root = small_tree(&[(
        "crates/linux/src/lib.rs",
        "//! x\n#[path = \"../../policy/src/lib.rs\"]\nmod policy;\n",
    )]);
    assert_eq!(reached_across(root.path()).len(), 1);
}

#[test]
fn policy_has_no_clock_no_thread_and_no_io() {
    assert!(!sources(&tree().join("crates/policy/src"), &["rs"]).is_empty());
    assert_eq!(impure_policy(&tree()), none());
}

#[test]
fn clock_in_the_policy_is_caught_and_one_in_a_comment_is_not() {
    let root = small_tree(&[(
        "crates/policy/src/a.rs",
        "//! no std::time here\nuse std::time::Instant;\n",
    )]);
    let broken = impure_policy(root.path());
    assert!(
        broken.len() == 1 && broken[0].contains("a.rs:2"),
        "{broken:?}"
    );
}

#[test]
fn every_file_has_the_licence_of_its_place() {
    assert!(!files(&tree().join("kernel")).is_empty());
    assert_eq!(wrong_licences(&tree()), none());
}

#[test]
fn wrong_or_missing_licence_is_caught() {
    let cases = [
        ("kernel/a.c", "/* nothing */\n"),
        ("kernel/b.h", "/* SPDX-License-Identifier: Apache-2.0 */\n"),
        (
            "kernel/c.h",
            "/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */\n",
        ),
        (
            "interface/d.h",
            "/* SPDX-License-Identifier: GPL-2.0-only */\n",
        ),
        ("scripts/e", "#!/bin/sh\n"),
        ("Cargo.toml", "[package]\nname = \"x\"\nlicense = \"MIT\"\n"),
    ];
    for (path, contents) in cases {
        let root = small_tree(&[(path, contents)]);
        assert_eq!(wrong_licences(root.path()).len(), 1, "{path}");
    }
}

#[test]
fn files_are_short_named_for_their_subject_and_open_with_their_purpose() {
    assert_eq!(bad_files(&tree()), none());
}

#[test]
fn long_nameless_or_unexplained_file_is_caught() {
    let long = format!("//! x\n{}", "\n".repeat(LONGEST));
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
