//! `scripts/deb` and `scripts/deb-test` name missing or wrong items, `make install` puts each file
//! below the prefix and replaces no configuration.
//!
//! Only `make deb-test` can test the packages on a machine: here their tools are stand-ins.

mod fake_machine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fake_machine::{FakeMachine, ScriptOutcome};

/// Tools of packages, as `scripts/deb` looks for them.
const TOOLS: [&str; 4] = ["dpkg-buildpackage", "dh", "dh_dkms", "lintian"];

/// A machine with all tools, which make packages of nothing.
fn machine() -> FakeMachine {
    let machine = FakeMachine::new();
    for tool in TOOLS {
        machine.with(tool, "exit 0");
    }
    machine.noting(
        "dpkg-buildpackage",
        "head -n 1 debian/changelog >$PLACE/built; touch ../uksm_new_amd64.deb ../uksm-dkms_new_all.deb ../uksm_new_amd64.changes",
    );
    machine.noting("lintian", "exit 0");
    machine
}

fn out(machine: &FakeMachine) -> PathBuf {
    machine.path().join("out")
}

fn deb(machine: &FakeMachine) -> Command {
    let mut command = machine.command("deb");
    command
        .env("CARGO_TARGET_DIR", machine.path().join("target"))
        .env("OUT", out(machine));
    command
}

/// The names in the folder for packages.
fn kept(machine: &FakeMachine) -> Vec<String> {
    let Ok(folder) = fs::read_dir(out(machine)) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = folder
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Asserts that it failed without having built anything; returns its last line.
fn refused(outcome: &ScriptOutcome) -> &str {
    assert!(!outcome.passed, "it should fail: {outcome:?}");
    let built = |call: &String| call.starts_with("dpkg-buildpackage");
    assert!(!outcome.calls.iter().any(built), "{outcome:?}");
    outcome.stderr.lines().last().unwrap_or_default()
}

#[test]
fn packages_replace_older_ones_and_nothing_else() {
    let machine = machine();
    fs::create_dir(out(&machine)).unwrap();
    for name in [
        "uksm_old_amd64.deb",
        "uksm-dkms_old_all.deb",
        "other_1_all.deb",
    ] {
        fs::write(out(&machine).join(name), "").unwrap();
    }
    let outcome = machine.run(&mut deb(&machine));
    assert!(outcome.passed, "{outcome:?}");
    assert!(
        outcome.stdout.contains("/uksm_new_amd64.deb"),
        "{outcome:?}"
    );
    assert_eq!(
        kept(&machine),
        [
            "other_1_all.deb",
            "uksm-dkms_new_all.deb",
            "uksm_new_amd64.deb"
        ]
    );
    let left = fs::read_dir(machine.path().join("target")).unwrap().count();
    assert_eq!(left, 0, "the build's own folder is gone");
}

#[test]
fn packages_that_lintian_complains_of_are_not_kept() {
    let machine = machine();
    machine.noting("lintian", "exit 2");
    let outcome = machine.run(&mut deb(&machine));
    assert!(!outcome.passed, "{outcome:?}");
    assert!(outcome.stderr.contains("none were kept"), "{outcome:?}");
    assert!(kept(&machine).is_empty());
}

#[test]
fn missing_tools_are_named_to_who_is_not_root_and_installed_by_root() {
    let machine = machine();
    machine
        .with("id", "echo 1000")
        .without(&["dh_dkms", "lintian"]);
    let outcome = machine.run(&mut deb(&machine));
    let line = refused(&outcome);
    assert!(line.ends_with("dh-dkms lintian"), "{line}");
    machine.with("id", "echo 0");
    let outcome = machine.run(&mut deb(&machine));
    refused(&outcome);
    let installs = |call: &String| call.contains(" install ") || call.contains("install -y");
    let call = outcome.calls.iter().find(|call| installs(call)).unwrap();
    assert!(call.ends_with("dh-dkms lintian"), "{call}");
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of a file of the tree.
fn text(path: &str) -> String {
    fs::read_to_string(tree().join(path)).unwrap()
}

/// If a make calls the tests, its settings would affect this one.
fn make_alone() -> Command {
    let mut command = Command::new("make");
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command
}

#[test]
fn all_packages_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("kernel/dkms.conf", format!("PACKAGE_VERSION=\"{version}\"")),
        (
            "packaging/deb/changelog",
            format!("uksm ({version}) unstable; urgency=medium"),
        ),
        (
            "packaging/rpm/uksm.spec",
            format!("Version:        {version}"),
        ),
    ] {
        let text = fs::read_to_string(tree().join(file)).unwrap();
        assert!(
            text.lines().any(|there| there == line),
            "{file}: no '{line}'"
        );
    }
}

/// The kernels of these for which DKMS would build the module: it compares names in this way, too.
fn built_for(names: &[&str]) -> Vec<String> {
    const COMPARE: &str = r#". "$0"; for name; do if [[ $name =~ $BUILD_EXCLUSIVE_KERNEL ]]; then echo "$name"; fi; done"#;
    let output = Command::new("bash")
        .args(["-euc", COMPARE])
        .arg(tree().join("kernel/dkms.conf"))
        .args(names)
        .env("kernel_source_dir", "")
        .env("dkms_tree", "")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn dkms_builds_for_every_kernel_from_6_1_on() {
    let built = [
        "6.1.0-56-cloud-amd64",
        "6.2.1",
        "6.8.12-4-pve",
        "6.12.0-55.9.1.el10_0.x86_64",
        "6.12.117+deb12-cloud-amd64",
        "6.120.1",
        "7.0.0-12-generic",
        "7.2.13+deb14-cloud-amd64",
        "8.1.2",
        "10.0.1",
    ];
    assert_eq!(built_for(&built), built);
    let others = [
        "5.10.0-8-amd64",
        "6.0.19",
        "4.19.1",
        "3.10.0-1160.el7.x86_64",
    ];
    assert_eq!(built_for(&others), [""; 0]);
}

#[test]
fn kmm_builds_for_the_kernels_that_dkms_builds_for() {
    let dkms = text("kernel/dkms.conf");
    let mut lines = dkms.lines();
    let pattern = lines.find_map(|line| line.strip_prefix("BUILD_EXCLUSIVE_KERNEL="));
    let pattern = pattern.unwrap().trim_matches('"');
    let kmm = text("packaging/kmm/module.yaml");
    assert!(kmm.contains(&format!("regexp: '{pattern}'")), "{pattern}");
}

#[test]
fn dkms_installs_each_module_that_is_built() {
    let kbuild = text("kernel/Kbuild");
    let dkms = text("kernel/dkms.conf");
    let mut lines = kbuild.lines();
    let built = lines.find_map(|line| line.strip_prefix("obj-m := "));
    let built = built.unwrap().split_whitespace();
    let built: Vec<_> = built.map(|object| object.replace(".o", "")).collect();
    assert_eq!(built, ["uksm", "uksm_guard"]);
    for (at, name) in built.iter().enumerate() {
        for line in [
            format!("BUILT_MODULE_NAME[{at}]=\"{name}\""),
            format!("DEST_MODULE_LOCATION[{at}]=\"/updates/dkms\""),
        ] {
            assert!(dkms.lines().any(|there| there == line), "no '{line}'");
        }
    }
}

/// The tried series of Debian.
fn tried_series(list: &str) -> Vec<&str> {
    let rows = list.split("\nUKSM_TRIED_KERNEL(\"Debian\", \"").skip(1);
    rows.map(|row| row.split('"').next().unwrap()).collect()
}

/// The lines of the module's package, installed on a machine with this kernel and no headers.
fn configured(release: &str, version: &str) -> String {
    let machine = FakeMachine::new();
    let uname =
        format!("case $1 in -r) echo '{release}' ;; -rv) echo '{release} {version}' ;; esac");
    machine.with("uname", &uname).with("dkms", "exit 0");
    let mut script = machine.command("../packaging/deb/uksm-dkms.postinst");
    let outcome = machine.run(script.arg("configure"));
    assert!(outcome.passed, "{outcome:?}");
    outcome.stdout
}

#[test]
fn the_package_names_the_headers_of_no_vendor_and_says_if_a_kernel_was_not_tried() {
    for (release, version) in [
        ("6.8.12-4-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4"),
        ("6.12.48-own", "#1 SMP PREEMPT_DYNAMIC"),
        ("8.1.2+deb15-amd64", "#1 SMP Debian 8.1.2-1"),
    ] {
        let said = configured(release, version);
        assert!(said.contains(&format!("{release} yet: install its headers")));
        assert!(said.contains("without untested=1"), "{said}");
        assert!(!said.contains("linux-headers"), "{said}");
    }
    let list = text("interface/tried_kernels.h");
    for series in tried_series(&list) {
        let said = configured(&format!("{series}.9-amd64"), "#1 SMP Debian 1-1");
        assert!(!said.contains("untested=1"), "{series}: {said}");
    }
}

#[test]
fn a_build_without_headers_names_no_package_of_one_vendor() {
    let made = make_module("KDIR=/nowhere");
    assert!(!made.status.success());
    let stderr = String::from_utf8(made.stderr).unwrap();
    assert!(
        stderr.starts_with("no kernel headers in /nowhere: "),
        "{stderr}"
    );
    assert!(!stderr.contains("linux-headers"), "{stderr}");
}

#[test]
fn a_path_with_a_blank_is_refused_before_anything_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("x/link");
    fs::create_dir(place.path().join("x")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    for name in ["BUILD", "DESTDIR", "KDIR"] {
        let path = format!("{}/x y", place.path().display());
        let made = make_module(&format!("{name}={path}"));
        assert!(!made.status.success(), "{name}");
        let stderr = String::from_utf8(made.stderr).unwrap();
        let refusal = format!("{name}=\"{path}\": no blanks");
        assert!(stderr.contains(&refusal), "{stderr}");
    }
    assert!(link.is_symlink());
}

#[test]
fn texts_for_operators_have_the_tried_series() {
    let list = text("interface/tried_kernels.h");
    let series = tried_series(&list);
    let (last, others) = series.split_last().unwrap();
    let words = format!("Debian's kernels {} and {last}", others.join(", "));
    for path in [
        "packaging/deb/control",
        "docs/limits.md",
        "README.md",
        "CHANGELOG.md",
    ] {
        let text: Vec<_> = text(path).split_whitespace().map(str::to_owned).collect();
        assert!(text.join(" ").contains(&words), "{path}: no '{words}'");
    }
}

#[test]
fn the_error_of_a_build_in_the_documents_is_that_of_the_module() {
    let document = text("docs/install.md");
    let quoted = document.split("`#error \"").nth(1).unwrap();
    let quoted = quoted.split("...").next().unwrap();
    assert!(text("kernel/compat.h").contains(&format!("#error \"{quoted}")));
}

#[test]
fn another_version_is_that_of_the_packages_and_a_bad_one_is_named() {
    let machine = machine();
    machine.with(
        "dpkg",
        r#"case $2 in x) echo "dpkg: error: version 'x' has bad syntax" >&2; exit 1 ;; esac"#,
    );
    let outcome = machine.run(deb(&machine).env("VERSION", "x"));
    let line = refused(&outcome);
    assert!(line.contains("VERSION=x: "), "{line}");
    let outcome = machine.run(deb(&machine).env("VERSION", "3-1"));
    let line = refused(&outcome);
    assert!(line.contains("VERSION=3-1: "), "{line}");
    let outcome = machine.run(deb(&machine).env("VERSION", "3.1"));
    assert!(outcome.passed, "{outcome:?}");
    let built = fs::read_to_string(machine.path().join("built")).unwrap();
    assert!(built.starts_with("uksm (3.1) "), "{built}");
}

#[test]
fn the_test_of_packages_needs_root_and_says_so() {
    let machine = machine();
    machine.with("id", "echo 1000");
    let mut command = machine.command("deb-test");
    command.env("UKSM_CACHE", machine.path().join("cache"));
    let outcome = machine.run(&mut command);
    let line = refused(&outcome);
    assert!(line.ends_with("run: sudo make deb-test"), "{line}");
    assert!(!machine.path().join("cache").exists());
}

/// A path without a file.
const NOWHERE: &str = "/nowhere/it";

/// Runs a target of the tree's Makefile on a folder, with stand-ins for the program and its
/// preloaded library.
fn make(machine: &FakeMachine, target: &str, [program, agent]: [&Path; 2]) -> Output {
    make_alone()
        .args(["-s", "-C"])
        .arg(tree())
        .args([target, "PREFIX=/opt/uksm"])
        .arg(format!("DESTDIR={}", machine.path().join("root").display()))
        .arg(format!("PROGRAM={}", program.display()))
        // The tree's own agent depends on earlier builds.
        .arg(format!("AGENT={}", agent.display()))
        .output()
        .unwrap()
}

/// Runs the module's Makefile with a variable.
fn make_module(variable: &str) -> Output {
    make_alone()
        .args(["-s", "-C"])
        .arg(tree().join("kernel"))
        .arg(variable)
        .output()
        .unwrap()
}

/// All files below a folder, by their paths in it.
fn files(root: &Path, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(root, &path));
        } else {
            found.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn install_follows_the_prefix_and_keeps_a_configuration_and_uninstall_takes_the_rest() {
    let machine = FakeMachine::new();
    machine.with(
        "stand-in",
        r#"case $1 in man) touch "$2/uksm.1" "$2/uksm-run.1" ;; esac"#,
    );
    let program = machine.path().join("bin/stand-in");
    let agent = machine.path().join("agent.so");
    fs::write(&agent, "an agent").unwrap();
    let built = [program.as_path(), agent.as_path()];
    let root = machine.path().join("root");
    let made = make(&machine, "install", built);
    assert!(made.status.success(), "{made:?}");
    let installed = [
        "etc/uksm/config.toml",
        "opt/uksm/lib/systemd/system/uksm.service",
        "opt/uksm/lib/uksm/libuksm_agent.so",
        "opt/uksm/sbin/uksm",
        "opt/uksm/share/bash-completion/completions/uksm",
        "opt/uksm/share/fish/vendor_completions.d/uksm.fish",
        "opt/uksm/share/man/man1/uksm-run.1",
        "opt/uksm/share/man/man1/uksm.1",
        "opt/uksm/share/zsh/site-functions/_uksm",
    ];
    assert_eq!(files(&root, &root), installed);
    let unit = fs::read_to_string(root.join("opt/uksm/lib/systemd/system/uksm.service")).unwrap();
    let runs: Vec<_> = unit
        .lines()
        .filter(|line| line.starts_with("Exec"))
        .collect();
    assert_eq!(
        runs,
        [
            "ExecStart=/opt/uksm/sbin/uksm run $UKSM_OPTIONS",
            "ExecReload=/opt/uksm/sbin/uksm reload",
            "ExecStopPost=-/opt/uksm/sbin/uksm run --put-back $UKSM_OPTIONS",
        ]
    );

    let config = root.join("etc/uksm/config.toml");
    fs::write(&config, "# mine\n").unwrap();
    assert!(make(&machine, "install", built).status.success());
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n");

    assert!(make(&machine, "uninstall", built).status.success());
    assert_eq!(files(&root, &root), ["etc/uksm/config.toml"]);

    // A tree without a built agent installs the rest, and reports the missing function.
    let made = make(&machine, "install", [&program, NOWHERE.as_ref()]);
    assert!(made.status.success(), "{made:?}");
    let stdout = String::from_utf8(made.stdout).unwrap();
    assert!(
        stdout.contains("no agent in /nowhere/it: uksm exec --merge advised will not work"),
        "{stdout}"
    );
    assert!(root.join("opt/uksm/sbin/uksm").exists());
    assert!(!root.join("opt/uksm/lib/uksm").exists());
}

#[test]
fn install_without_a_program_says_how_to_build_it() {
    let machine = FakeMachine::new();
    let made = make(&machine, "install", [NOWHERE.as_ref(); 2]);
    assert!(!made.status.success());
    let stderr = String::from_utf8(made.stderr).unwrap();
    assert!(
        stderr.starts_with("no program in /nowhere/it: run make program first"),
        "{stderr}"
    );
    assert!(!machine.path().join("root").exists());
}
