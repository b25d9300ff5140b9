//! Each file has the licence of its place.

use std::path::Path;

use crate::none;
use crate::tree::{files, has_extension, small_tree, sources, text, tree};

const GPL: &str = "SPDX-License-Identifier: GPL-2.0-only";
const SYSCALL_NOTE: &str = "SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note";
const APACHE: &str = "SPDX-License-Identifier: Apache-2.0";

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
    for folder in ["kernel", "guest-tests/kernel", "bpf", "vm/plugin"] {
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

#[test]
fn every_file_has_the_licence_of_its_place() {
    assert!(!files(&tree().join("kernel")).is_empty());
    assert_eq!(wrong_licences(&tree()), none());
}

#[test]
fn wrong_or_missing_licence_is_caught() {
    let cases = [
        ("kernel/a.c", "/* nothing */\n"),
        (
            "vm/plugin/e.c",
            "/* SPDX-License-Identifier: Apache-2.0 */\n",
        ),
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
