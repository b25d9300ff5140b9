//! What the guides and the chart tell people to type is what this program takes.
//!
//! Approach: commands and configurations in `docs/guides/` stand in fenced blocks, `sh` and `toml`.
//! Each command of `uksm` is parsed as the program parses it, each configuration is read and
//! planned on a host without processes. The chart's templates are YAML but for Helm's actions: a
//! line that is an action is left out, and one within a line is a word. `make helm-check` renders
//! it with helm itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use uksm_linux::proc::Proc;
use yaml_rust2::{Yaml, YamlLoader};

use crate::config::Config;
use crate::config::current::Configuration;
use crate::setting::Settings;
use crate::{cli, config};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    let path = tree().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names and texts of all guides.
fn guides() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(tree().join("docs/guides")).unwrap();
    let mut guides: Vec<(String, String)> = folder
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    guides.sort();
    guides
}

/// Fenced blocks of this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let mut blocks = Vec::new();
    // What stands between two fences is every second piece.
    for block in text.split("\n```").skip(1).step_by(2) {
        if let Some((of, block)) = block.split_once('\n')
            && of == language
        {
            blocks.push(block);
        }
    }
    blocks
}

/// The words of a command, as a shell tells them apart, up to a comment, a pipe or a redirection.
fn words(line: &str) -> Vec<OsString> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut is_within) = (None, false);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                if !is_within {
                    words.push(String::new());
                }
                is_within = true;
            }
            (None, ' ') => is_within = false,
            (None, '#' | '|' | '>') if !is_within => break,
            _ => {
                if !is_within {
                    words.push(String::new());
                }
                is_within = true;
                words.last_mut().unwrap().push(letter);
            }
        }
    }
    words.into_iter().map(OsString::from).collect()
}

/// What is wrong with a command.
fn refused(words: Vec<OsString>) -> Option<String> {
    let parsed = cli::parse(words.clone(), &mut Settings::default(), String::new());
    parsed.err().map(|error| cli::one_line(&error, words))
}

/// What is wrong with a configuration, on a host without processes.
fn misconfigured(text: &str) -> Option<String> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("config.toml");
    // The file of labels that a guide names.
    let labels = root.path().join("tenants");
    std::fs::write(&labels, "/system.slice/docker-1.scope one\n").unwrap();
    let text = text.replace("/etc/uksm/tenants", labels.to_str().unwrap());
    std::fs::write(&path, text).unwrap();
    let mut config = Config::default();
    let done = config::read(&path, true, &mut config).and_then(|()| {
        if !config.has_groups() {
            return config.settings.resolve().map(drop);
        }
        let read = Box::new(|| Ok(Config::default()));
        let proc = Proc::at(root.path());
        Configuration::new(config, proc, read).plan().map(drop)
    });
    done.err()
}

#[test]
fn each_command_in_the_guides_is_one_that_the_program_takes() {
    let mut commands = 0;
    for (name, text) in guides() {
        let lines = blocks(&text, "sh").into_iter().flat_map(str::lines);
        let lines = lines
            // In a container it stands behind what runs it there.
            .map(|line| line.split_once(" -- ").map_or(line, |(_, within)| within))
            .map(str::trim)
            .filter(|line| line.starts_with("uksm "));
        let inline = text.split('`').skip(1).step_by(2);
        let inline = inline.filter(|code| code.starts_with("uksm ") && !code.contains('\n'));
        for line in lines.chain(inline) {
            commands += 1;
            assert_eq!(refused(words(line)), None, "{name}: {line}");
        }
    }
    assert!(commands > 20, "{commands}");
    assert!(refused(words("uksm analyze --budge 1s")).is_some());
    assert!(refused(words("uksm report --since '1 h' | less # x")).is_none());
}

#[test]
fn each_configuration_in_the_guides_can_be_read_and_planned() {
    let mut configurations = 0;
    for (name, text) in guides() {
        for block in blocks(&text, "toml") {
            configurations += 1;
            assert_eq!(misconfigured(block), None, "{name}:\n{block}");
        }
    }
    assert!(configurations > 10, "{configurations}");
    let line = misconfigured("[rule.x]\nby = \"port\"\n").unwrap();
    assert!(line.contains("by: 'port' forms no groups"), "{line}");
    let line = misconfigured("governor = \"low\"\n[group.x]\ncgroup = \"/x\"\nv_dupe = 1\n");
    assert!(line.is_some());
}

#[test]
fn each_guide_has_a_tried_line_and_is_in_the_table() {
    let guides = guides();
    let table = &guides
        .iter()
        .find(|(name, _)| name == "README.md")
        .unwrap()
        .1;
    for (name, text) in &guides {
        if name == "README.md" {
            continue;
        }
        let tried = text.lines().filter(|line| line.starts_with("Tried: "));
        assert_eq!(tried.count(), 1, "{name}");
        assert!(text.contains("Not tried: "), "{name}");
        assert!(table.contains(&format!("| `{name}` |")), "{name}");
    }
}

const CHART: &str = "packaging/helm/uksm";

/// A template without Helm's actions.
fn template(name: &str) -> Yaml {
    let text = text(&format!("{CHART}/templates/{name}"));
    let mut plain = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("{{") && line.trim_end().ends_with("}}") {
            continue;
        }
        let mut rest = line;
        while let Some((before, action)) = rest.split_once("{{") {
            plain += before;
            plain += "word";
            rest = action
                .split_once("}}")
                .expect("an action ends on its line")
                .1;
        }
        plain += rest;
        plain.push('\n');
    }
    let mut documents = YamlLoader::load_from_str(&plain).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(documents.len(), 1, "{name}");
    documents.remove(0)
}

fn values() -> Yaml {
    YamlLoader::load_from_str(&text(&format!("{CHART}/values.yaml")))
        .unwrap()
        .remove(0)
}

fn strings(list: &Yaml) -> Vec<&str> {
    let list = list.as_vec().unwrap();
    list.iter().map(|word| word.as_str().unwrap()).collect()
}

/// The containers of the chart's pods by name, those that begin first included.
fn containers(daemon_set: &Yaml) -> BTreeMap<String, &Yaml> {
    let pod = &daemon_set["spec"]["template"]["spec"];
    let all = ["initContainers", "containers"].into_iter();
    let all = all.flat_map(|list| pod[list].as_vec().unwrap());
    all.map(|one| (one["name"].as_str().unwrap().to_owned(), one))
        .collect()
}

#[test]
fn the_chart_runs_commands_that_the_program_takes_with_a_configuration_that_it_reads() {
    let daemon_set = template("daemonset.yaml");
    let containers = containers(&daemon_set);
    for (name, action) in [("uksm", "run"), ("metrics", "metrics")] {
        let container = containers[name];
        assert_eq!(
            strings(&container["command"]).last(),
            Some(&"/usr/sbin/uksm")
        );
        let mut command = vec!["uksm"];
        command.extend(strings(&container["args"]));
        assert_eq!(command[1], action);
        let line: Vec<OsString> = command.iter().map(OsString::from).collect();
        assert_eq!(refused(line), None, "{command:?}");
    }
    let probe = strings(&containers["uksm"]["readinessProbe"]["exec"]["command"]);
    assert_eq!(probe[0], "/usr/sbin/uksm");
    let line = probe.iter().map(OsString::from).collect();
    assert_eq!(refused(line), None);
    assert_eq!(misconfigured(values()["config"].as_str().unwrap()), None);
    let guide = text("docs/guides/kubernetes.md");
    assert!(blocks(&guide, "toml").contains(&values()["config"].as_str().unwrap().trim_end()));
}

#[test]
fn the_chart_leaves_the_daemon_the_rights_of_the_packaged_unit_and_the_others_none() {
    let daemon_set = template("daemonset.yaml");
    let pod = &daemon_set["spec"]["template"]["spec"];
    assert_eq!(pod["hostPID"].as_bool(), Some(true));
    assert_eq!(pod["hostNetwork"].as_bool(), Some(true));
    let containers = containers(&daemon_set);
    let command = strings(&containers["uksm"]["command"]);
    let set = command
        .iter()
        .any(|word| word.starts_with("--bounding-set=-all,"));
    assert!(set, "{command:?}");
    let chart = text(&format!("{CHART}/templates/daemonset.yaml"));
    assert!(chart.contains("--bounding-set=-all,{{ .Values.capabilities }}\n"));
    let values = values();
    let set = values["capabilities"]
        .as_str()
        .unwrap()
        .strip_prefix('+')
        .unwrap();
    let unit = text("packaging/uksm.service");
    let of_unit = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    let of_unit = of_unit.to_lowercase().replace("cap_", "");
    assert_eq!(
        set.split(",+").collect::<Vec<_>>(),
        of_unit.split(' ').collect::<Vec<_>>()
    );
    assert!(command.contains(&"--no-new-privs"));
    for name in ["module", "metrics"] {
        let rights = &containers[name]["securityContext"];
        assert_eq!(strings(&rights["capabilities"]["drop"]), ["ALL"], "{name}");
        assert!(rights["privileged"].is_badvalue(), "{name}");
    }
    let account = template("serviceaccount.yaml");
    assert_eq!(
        account["automountServiceAccountToken"].as_bool(),
        Some(false)
    );
}

#[test]
fn a_node_without_the_module_is_refused_with_one_line_that_names_it() {
    let daemon_set = template("daemonset.yaml");
    let module = containers(&daemon_set)["module"];
    let command = strings(&module["command"]);
    assert_eq!(command[..2], ["/bin/sh", "-c"]);
    let node = tempfile::tempdir().unwrap();
    let here = format!("{}/uksm", node.path().display());
    let script = command[2].replace("/host/dev/uksm", &here);
    assert_ne!(script, command[2]);
    let look = || {
        let mut shell = Command::new("/bin/sh");
        shell
            .env("NODE", "worker-1")
            .args(["-c", &script])
            .output()
            .unwrap()
    };
    let refused = look();
    assert_eq!(refused.status.code(), Some(1));
    let line = String::from_utf8(refused.stderr).unwrap();
    let guide = text("docs/guides/kubernetes.md");
    assert_eq!(line.lines().count(), 1);
    assert!(guide.contains(&format!("    {line}")), "{line}");
    // A file is no device; a device is.
    std::fs::write(&here, "").unwrap();
    assert_eq!(look().status.code(), Some(1));
    std::fs::remove_file(&here).unwrap();
    std::os::unix::fs::symlink("/dev/null", &here).unwrap();
    assert!(look().status.success());
    assert_eq!(
        module["volumeMounts"][0]["mountPath"].as_str(),
        Some("/host/dev")
    );
}

#[test]
fn templates_ask_for_values_that_there_are_and_the_schema_knows_them() {
    let values = values();
    let schema: serde_json::Value =
        serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    let known = schema["properties"].as_object().unwrap();
    for name in values.as_hash().unwrap().keys() {
        let name = name.as_str().unwrap();
        assert!(known.contains_key(name), "{name} is not in the schema");
    }
    let mut asked = 0;
    for name in ["configmap.yaml", "serviceaccount.yaml", "daemonset.yaml"] {
        template(name);
        let text = text(&format!("{CHART}/templates/{name}"));
        for path in text.split(".Values.").skip(1) {
            let end = path
                .find(|c: char| !c.is_alphanumeric() && c != '.')
                .unwrap();
            let mut value = &values;
            for part in path[..end].split('.') {
                value = &value[part];
            }
            assert!(!value.is_badvalue(), "{name}: .Values.{}", &path[..end]);
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
    let chart = &YamlLoader::load_from_str(&text(&format!("{CHART}/Chart.yaml"))).unwrap()[0];
    for version in ["version", "appVersion"] {
        assert_eq!(
            chart[version].as_str(),
            Some(env!("CARGO_PKG_VERSION")),
            "{version}"
        );
    }
}
