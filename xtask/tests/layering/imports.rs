//! The permitted dependencies of crates, and the items that the policy must not use.

use std::collections::BTreeMap;
use std::path::Path;

use crate::none;
use crate::tree::{small_tree, sources, text, tree};

/// The crates of ours that a crate may depend on. A crate that is not listed is an error, so a new
/// crate needs a line here.
const LAYERS: [(&str, &[&str]); 17] = [
    ("uksm-interface", &[]),
    ("uksm-bpf", &[]),
    ("uksm-policy", &["uksm-interface"]),
    ("uksm-results", &[]),
    ("uksm-sketch", &[]),
    ("uksm-input", &[]),
    ("uksm-testkit", &[]),
    ("uksm-simulator", &["uksm-policy", "uksm-results"]),
    (
        "uksm-linux",
        &[
            "uksm-interface",
            "uksm-bpf",
            "uksm-policy",
            "uksm-sketch",
            "uksm-input",
        ],
    ),
    ("uksm-redistribution", &["uksm-input"]),
    ("uksm-agent", &["uksm-interface"]),
    (
        "uksm",
        &[
            "uksm-policy",
            "uksm-sketch",
            "uksm-input",
            "uksm-linux",
            "uksm-redistribution",
        ],
    ),
    ("uksm-vm-protocol", &[]),
    ("uksm-vm", &["uksm-vm-protocol"]),
    (
        "uksm-guest-tests",
        &[
            "uksm-policy",
            "uksm-linux",
            "uksm-testkit",
            "uksm-vm-protocol",
        ],
    ),
    (
        "xtask",
        &[
            "uksm-vm",
            "uksm-vm-protocol",
            "uksm-guest-tests",
            "uksm-redistribution",
        ],
    ),
    (
        "uksm-bench",
        &[
            "uksm-policy",
            "uksm-linux",
            "uksm-results",
            "uksm-simulator",
            "uksm-sketch",
            "uksm-testkit",
        ],
    ),
];

/// Sources of the policy, and those parts of redistribution that decide.
const PURE: [&str; 5] = [
    "crates/policy/src",
    "crates/redistribution/src/guard",
    "crates/redistribution/src/proportional_shares",
    "crates/redistribution/src/rates",
    "crates/redistribution/src/targets",
];

/// Items forbidden there: these sources have no clock, thread, random source or I/O of their own.
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

/// Parsers of other crates that fail on text under a process's control. procfs-core panics on a
/// mapped file named `/SYSV1`.
const FAIL_AT_NAMES: [&str; 2] = ["procfs_core::process", "procfs::process"];

/// The crate that every crate may use for its tests.
const TEST_TOOLS: &str = "uksm-testkit";

/// The crates that a manifest depends on, in any of its sections: each with the section's name.
fn dependencies(manifest: &toml::Table) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else {
            continue;
        };
        if key.ends_with("dependencies") {
            for (name, how) in table {
                let renamed = how.get("package").and_then(toml::Value::as_str);
                let path = how.get("path").and_then(toml::Value::as_str);
                found.push((key.as_str(), renamed.unwrap_or(name).to_owned()));
                // A path can lead to a sibling under any name.
                let folder = path.and_then(|path| Path::new(path).file_name());
                found.extend(folder.map(|folder| {
                    let folder = folder.to_string_lossy();
                    let name = if folder.starts_with("uksm") {
                        folder.into_owned()
                    } else {
                        format!("uksm-{folder}")
                    };
                    (key.as_str(), name)
                }));
            }
        } else if key == "target" {
            let targets = table.values().filter_map(toml::Value::as_table);
            found.extend(targets.flat_map(dependencies));
        }
    }
    found
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
        for (section, needed) in dependencies(&manifest) {
            let is_for_tests = section == "dev-dependencies" && needed == TEST_TOOLS;
            let is_allowed = is_for_tests || allowed.contains(&needed.as_str());
            if layers.contains_key(needed.as_str()) && !is_allowed {
                broken.push(format!("{name} must not depend on {needed}"));
            }
        }
    }
    broken.sort();
    broken.dedup();
    broken
}

/// Sources that include files of another crate without cargo's knowledge.
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

/// Uses of parsers that fail on names of processes.
fn fragile_parsers(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(root, &["rs"]) {
        if path.ends_with("xtask/tests/layering/imports.rs") {
            continue;
        }
        for (number, line) in (1..).zip(text(&path).lines()) {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(parser) = FAIL_AT_NAMES.iter().find(|parser| code.contains(*parser)) {
                broken.push(format!("{}:{number}: {parser}", path.display()));
            }
        }
    }
    broken
}

fn impure_policy(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let is_pure = |path: &Path| {
        let own = path.strip_prefix(root).unwrap_or(path);
        PURE.iter()
            .any(|pure| own.starts_with(pure) || own.with_extension("") == Path::new(pure))
    };
    let pure = sources(&root.join("crates"), &["rs"]);
    for path in pure.into_iter().filter(|path| is_pure(path)) {
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
fn test_tools_are_for_tests_only() {
    let broken = |section: &str| {
        let manifest = format!(
            "[package]\nname = \"uksm-linux\"\n[{section}]\nuksm-testkit = {{ workspace = true }}\n"
        );
        let root = small_tree(&[
            ("Cargo.toml", "[workspace]\nmembers = [\"crates/linux\"]\n"),
            ("crates/linux/Cargo.toml", &manifest),
        ]);
        broken_layers(root.path())
    };
    assert_eq!(broken("dev-dependencies"), none());
    assert_eq!(
        broken("dependencies"),
        ["uksm-linux must not depend on uksm-testkit"]
    );
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
fn nothing_imports_suite_or_benchmarks_and_only_the_suite_imports_the_harness() {
    for (name, allowed) in LAYERS {
        let imports = |other| allowed.contains(&other);
        assert!(!imports("xtask") && !imports("uksm-bench"), "{name}");
        let harness = imports("uksm-vm") || imports("uksm-guest-tests");
        assert!(name == "xtask" || !harness, "{name}");
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
fn text_of_processes_is_parsed_by_own_code() {
    assert_eq!(fragile_parsers(&tree()), none());
}

#[test]
fn parser_that_fails_at_names_is_caught() {
    let root = small_tree(&[(
        "crates/linux/src/a.rs",
        "//! x
use procfs_core::Meminfo;
use procfs_core::process::MemoryMaps;\n",
    )]);
    assert_eq!(fragile_parsers(root.path()).len(), 1);
}

#[test]
fn policy_has_no_clock_no_thread_and_no_io() {
    for pure in PURE {
        let path = tree().join(pure);
        assert!(
            path.is_dir() || path.with_extension("rs").exists(),
            "{pure}"
        );
    }
    assert_eq!(impure_policy(&tree()), none());
}

#[test]
fn clock_in_the_policy_is_caught_and_one_in_a_comment_is_not() {
    for path in [
        "crates/policy/src/a.rs",
        "crates/redistribution/src/guard.rs",
    ] {
        let root = small_tree(&[(path, "//! no std::time here\nuse std::time::Instant;\n")]);
        let broken = impure_policy(root.path());
        assert!(
            broken.len() == 1 && broken[0].contains(&format!("{path}:2")),
            "{broken:?}"
        );
    }
}
