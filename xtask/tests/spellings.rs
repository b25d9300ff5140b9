//! Each known spelling of the kernel's interfaces compiles; an unknown one stops the build.
//!
//! Problem: the module has branches for kernels whose headers no package source here offers.
//!
//! Approach: `kernel/test/spellings/include` holds small headers with all spellings that
//! `kernel/Kbuild` looks for, each in a marked block. The headers of a kernel are these with the
//! blocks of its spellings alone. make finds the spellings in them by the lines of Kbuild, and the
//! compiler reads `compat.h`, `symbols.h` and `shrinker_registration.h`. The table of
//! `docs/kernels.md` lists the spellings of each kernel. No header of a kernel is needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Kernels that are in use: those that were tried, and those between.
const KERNELS: [&str; 10] = [
    "6.1", "6.6", "6.8", "6.12", "6.14", "6.17", "6.18", "7.0", "7.2", "7.3",
];

/// Settings that the module needs.
const NEEDED: [&str; 2] = ["CONFIG_X86_64", "CONFIG_KSM"];

/// Settings that change the code of the module.
const OPTIONAL: [&str; 3] = [
    "CONFIG_MEMCG",
    "CONFIG_TRANSPARENT_HUGEPAGE",
    "CONFIG_USERFAULTFD",
];

/// A line of Kbuild: a spelling, and the header that Kbuild searches for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Feature {
    name: String,
    /// Below `include/linux`.
    header: String,
}

/// Spellings of one interface, of which a kernel has exactly one.
#[derive(Debug)]
struct Group {
    names: Vec<String>,
    /// The error that stops the build.
    message: String,
}

/// A row of the table of interfaces.
#[derive(Debug)]
struct Row {
    since: Series,
    until: Option<Series>,
    feature: String,
}

/// 6 and 12 of 6.12.
type Series = (u32, u32);

/// What make and the compiler found.
#[derive(Debug)]
struct Found {
    compiles: bool,
    features: BTreeSet<String>,
    errors: String,
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    let path = tree().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of Kbuild that look for a declaration.
fn features() -> Vec<Feature> {
    let text = text("kernel/Kbuild");
    let calls = text.lines().filter_map(|line| {
        let call = line.strip_prefix("ccflags-y += $(call has,")?;
        let (name, rest) = call.split_once(',')?;
        Some(Feature {
            name: name.to_owned(),
            header: rest.split_once(',')?.0.to_owned(),
        })
    });
    calls.collect()
}

/// The conditions of compat.h on features, each with the error behind it.
fn groups() -> Vec<Group> {
    let text = text("kernel/compat.h").replace("\\\n", " ");
    let mut groups = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let error = lines.peek().and_then(|next| next.strip_prefix("#error "));
        if let (true, Some(error)) = (line.contains("defined(UKSM_HAS_"), error) {
            let names = line.split("defined(").skip(1);
            groups.push(Group {
                names: names
                    .map(|rest| rest.split(')').next().unwrap().to_owned())
                    .collect(),
                message: error.trim_matches('"').to_owned(),
            });
        }
    }
    groups
}

fn series(text: &str) -> Series {
    let parsed = text.split_once('.');
    let parsed = parsed.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parsed.unwrap_or_else(|| panic!("docs/kernels.md: '{text}' is no kernel series"))
}

/// The rows of the table of interfaces, without those that need no feature.
fn rows() -> Vec<Row> {
    let text = text("docs/kernels.md");
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| what for |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let until = Some(cells[4]).filter(|until| !until.is_empty());
        Some(Row {
            since: series(cells[3]),
            until: until.map(series),
            feature: cells[5].split('`').nth(1)?.to_owned(),
        })
    };
    table.filter_map(row).collect()
}

/// The lines of Kbuild that a kernel has by the table, and the macros and settings that it has.
fn of_kernel(kernel: &str) -> (Vec<Feature>, Vec<String>) {
    let features = features();
    let kernel = series(kernel);
    let mut rows = rows();
    rows.retain(|row| row.since <= kernel && row.until.is_none_or(|until| kernel <= until));
    let (mut lines, mut macros) = (Vec::new(), Vec::new());
    for Row { feature, .. } in rows {
        let spelling = format!("UKSM_HAS_{feature}");
        if let Some(line) = features.iter().find(|line| line.name == spelling) {
            lines.push(line.clone());
        } else if feature.starts_with("CONFIG_") {
            macros.push(feature);
        } else {
            macros.push(format!("STUB_{feature}"));
        }
    }
    (lines, macros)
}

/// These settings, and the macros of the newest kernel.
fn with_settings(settings: &[&str]) -> Vec<String> {
    let (_, mut defined) = of_kernel(KERNELS[KERNELS.len() - 1]);
    defined.extend(settings.iter().map(|&name| name.to_owned()));
    defined
}

/// The same with all settings.
fn newest() -> Vec<String> {
    with_settings(&[&NEEDED[..], &OPTIONAL].concat())
}

/// A header with the blocks of these spellings only; all blocks that it has are added to `blocks`.
fn header(text: &str, name: &str, chosen: &[Feature], blocks: &mut Vec<Feature>) -> String {
    let mut kept = String::new();
    let mut keep = true;
    for line in text.lines() {
        if let Some(spelling) = line.strip_prefix("/* SPELLING ") {
            let feature = Feature {
                name: spelling.trim_end_matches(" */").to_owned(),
                header: name.to_owned(),
            };
            keep = chosen.contains(&feature);
            blocks.push(feature);
        } else if line == "/* END */" {
            keep = true;
        } else if keep {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Writes the headers of a kernel with these spellings. Returns all spellings that there are.
fn lay_out(from: &Path, to: &Path, below: &str, chosen: &[Feature]) -> Vec<Feature> {
    let mut blocks = Vec::new();
    fs::create_dir_all(to.join(below)).unwrap();
    for entry in fs::read_dir(from.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            blocks.extend(lay_out(from, to, &format!("{path}/"), chosen));
            continue;
        }
        let name = path
            .strip_prefix("linux/")
            .map_or_else(|| format!("../{path}"), str::to_owned);
        let text = fs::read_to_string(entry.path()).unwrap();
        fs::write(to.join(&path), header(&text, &name, chosen, &mut blocks)).unwrap();
    }
    blocks
}

/// Compiles for a kernel with these spellings and definitions.
fn compile(chosen: &[Feature], defined: &[String]) -> Found {
    let folder = tempfile::tempdir().unwrap();
    let stubs = tree().join("kernel/test/spellings/include");
    lay_out(&stubs, &folder.path().join("include"), "", chosen);
    compile_headers(&folder, defined)
}

/// Compiles for the kernel whose headers are in a folder.
fn compile_headers(folder: &TempDir, defined: &[String]) -> Found {
    let defined: Vec<String> = defined.iter().map(|name| format!("-D{name}")).collect();
    let output = Command::new("make")
        .arg("-sC")
        .arg(tree().join("kernel/test/spellings"))
        .arg(format!("TREE={}", folder.path().display()))
        .arg(format!("CONFIG={}", defined.join(" ")))
        // Variables of the make that runs the tests.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("MFLAGS")
        .output()
        .expect("make starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let names = printed.split_whitespace();
    Found {
        compiles: output.status.success(),
        features: names
            .map(|name| name.trim_start_matches("-D").to_owned())
            .collect(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Compiles, and asserts that exactly these spellings are found and no error.
fn assert_compiles(case: &str, chosen: &[Feature], defined: &[String]) {
    let found = compile(chosen, defined);
    assert!(found.compiles, "{case}: {}", found.errors);
    let expected: BTreeSet<String> = chosen.iter().map(|f| f.name.clone()).collect();
    assert_eq!(found.features, expected, "{case}");
}

/// One spelling of each interface: the `choice`-th, or the last.
fn one_of_each(features: &[Feature], groups: &[Group], choice: usize) -> Vec<Feature> {
    let of_group = |group: &Group| {
        let mut lines: Vec<&Feature> = features.iter().collect();
        lines.retain(|feature| group.names.contains(&feature.name));
        lines[choice.min(lines.len() - 1)].clone()
    };
    groups.iter().map(of_group).collect()
}

#[test]
fn kbuild_compat_the_stubs_and_the_table_know_the_same_spellings() {
    let features = features();
    let folder = tempfile::tempdir().unwrap();
    let stubs = tree().join("kernel/test/spellings/include");
    let mut blocks = lay_out(&stubs, folder.path(), "", &[]);
    let mut lines = features.clone();
    lines.sort();
    blocks.sort();
    assert_eq!(blocks, lines, "blocks of the stubs, and lines of Kbuild");

    let names: BTreeSet<String> = features.iter().map(|f| f.name.clone()).collect();
    let groups = groups();
    let grouped: Vec<&String> = groups.iter().flat_map(|group| &group.names).collect();
    assert_eq!(
        grouped.len(),
        names.len(),
        "each is in one group: {groups:?}"
    );
    assert_eq!(grouped.into_iter().cloned().collect::<BTreeSet<_>>(), names);
    for feature in &features {
        let group = groups.iter().find(|g| g.names.contains(&feature.name));
        let header = feature.header.rsplit('/').next().unwrap();
        let message = &group.unwrap().message;
        assert!(message.contains(header), "{feature:?}: '{message}'");
    }

    let in_table: BTreeSet<String> = rows()
        .into_iter()
        .map(|row| format!("UKSM_HAS_{}", row.feature))
        .collect();
    let missing: Vec<_> = names.difference(&in_table).collect();
    assert!(missing.is_empty(), "not in docs/kernels.md: {missing:?}");
}

#[test]
fn each_kernel_has_one_spelling_of_each_interface_and_compiles() {
    let groups = groups();
    for kernel in KERNELS {
        let (chosen, macros) = of_kernel(kernel);
        let settings = NEEDED.iter().chain(&OPTIONAL).map(|&name| name.to_owned());
        let defined: Vec<String> = macros.into_iter().chain(settings).collect();
        for group in &groups {
            let has = chosen.iter().filter(|f| group.names.contains(&f.name));
            assert_eq!(has.count(), 1, "{kernel}: {group:?}");
        }
        assert_compiles(kernel, &chosen, &defined);
    }
}

#[test]
fn each_spelling_compiles_wherever_kbuild_finds_it() {
    let (features, groups) = (features(), groups());
    let most = groups.iter().map(|group| {
        let lines = features.iter().filter(|f| group.names.contains(&f.name));
        lines.count()
    });
    for choice in 0..most.max().unwrap() {
        let chosen = one_of_each(&features, &groups, choice);
        assert_compiles(&format!("choice {choice}"), &chosen, &newest());
    }
}

#[test]
fn kernels_without_cgroups_huge_pages_or_userfaultfd_compile() {
    let (features, groups) = (features(), groups());
    for choice in 0..2 {
        let chosen = one_of_each(&features, &groups, choice);
        assert_compiles("few settings", &chosen, &with_settings(&NEEDED));
    }
}

#[test]
fn unknown_spelling_stops_the_build_and_names_the_interface() {
    let found = compile(&[], &newest());
    assert!(!found.compiles, "no spelling at all");
    assert!(found.features.is_empty(), "{:?}", found.features);
    for group in groups() {
        assert!(found.errors.contains(&group.message), "{group:?}");
    }
}

/// Lays out the headers of a kernel with these spellings, of which one is not for the compiler.
fn lay_out_hiding(hidden: &Feature, chosen: &[Feature]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (stubs, to) = (
        tree().join("kernel/test/spellings/include"),
        folder.path().join("include"),
    );
    lay_out(&stubs, &to, "", chosen);
    let path = format!("linux/{}", hidden.header);
    let text = fs::read_to_string(stubs.join(&path)).unwrap();
    let block = format!("/* SPELLING {} */\n", hidden.name);
    let block = text.split(&block).nth(1).unwrap();
    let block = block.split("/* ").next().unwrap();
    let hiding = format!(
        "{}\n#if 0\n{block}#endif\n",
        fs::read_to_string(to.join(&path)).unwrap()
    );
    fs::write(to.join(&path), hiding).unwrap();
    folder
}

#[test]
fn text_that_looks_like_a_spelling_stops_the_build() {
    let (features, groups) = (features(), groups());
    for hidden in &features {
        let mut chosen = one_of_each(&features, &groups, 0);
        let group = groups.iter().find(|g| g.names.contains(&hidden.name));
        chosen.retain(|feature| !group.unwrap().names.contains(&feature.name));
        let found = compile_headers(&lay_out_hiding(hidden, &chosen), &newest());
        assert!(found.features.contains(&hidden.name), "{hidden:?}");
        assert!(!found.compiles, "{hidden:?}");
    }
}

#[test]
fn two_spellings_stop_the_build_and_name_the_interface() {
    let (features, groups) = (features(), groups());
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        let names: BTreeSet<&String> = groups
            .iter()
            .flat_map(|group| {
                let last = group.names.len() - 1;
                // Of a pair, both.
                let (first, second) = if last == 1 { (0, 1) } else { (first, second) };
                [&group.names[first], &group.names[second]]
            })
            .collect();
        let mut chosen = features.clone();
        chosen.retain(|feature| names.contains(&feature.name));
        let found = compile(&chosen, &newest());
        assert!(!found.compiles, "{names:?}");
        for group in &groups {
            assert!(found.errors.contains(&group.message), "{group:?}");
        }
    }
}

#[test]
fn kernel_of_another_kind_stops_the_build() {
    let (features, groups) = (features(), groups());
    let chosen = one_of_each(&features, &groups, 0);
    let defined = ["CONFIG_USERFAULTFD", "CONFIG_NO_PAGE_MAPCOUNT"].map(str::to_owned);
    let found = compile(&chosen, &defined);
    assert!(!found.compiles);
    for cause in [
        "x86-64",
        "CONFIG_KSM",
        "CONFIG_PAGE_MAPCOUNT",
        "mm_forbids_zeropage()",
        "__VM_UFFD_FLAGS",
        "FOLIO_MAPPING_KSM",
    ] {
        assert!(found.errors.contains(cause), "{cause}: {}", found.errors);
    }
}
