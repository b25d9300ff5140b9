//! Proposed groups as a configuration that can be pasted.

use std::fmt::Write as _;

use super::members::MemberName;

/// These groups, by name, as a part of a configuration file.
pub(super) fn text<'a>(groups: impl Iterator<Item = (&'a str, &'a [MemberName])>) -> String {
    let mut text = String::new();
    for (name, members) in groups {
        if text.is_empty() {
            text += "# Check first that the processes of each group may learn the contents of \
                     each other.\n";
        }
        let _never_fails = write!(text, "\n[group.{name}]\n");
        let mut cgroups = Vec::new();
        let mut processes = Vec::new();
        for member in members {
            match member {
                MemberName::Cgroup { cgroup, .. } => {
                    cgroups.push(format!("    {},\n", quoted(cgroup)));
                }
                MemberName::Process {
                    pid,
                    start_ticks,
                    comm,
                } => {
                    let comm = comm.escape_debug();
                    processes.push(format!("    \"{pid}@{start_ticks}\", # {comm}\n"));
                }
            }
        }
        for (key, lines) in [("cgroup", cgroups), ("pid", processes)] {
            if !lines.is_empty() {
                let _never_fails = write!(text, "{key} = [\n{}]\n", lines.concat());
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::config::Config;

    #[test]
    fn what_is_proposed_is_read_as_it_was_meant() {
        let cgroup = |path: &str| MemberName::Cgroup {
            cgroup: path.to_owned(),
            processes: 2,
        };
        let process = MemberName::Process {
            pid: 71,
            start_ticks: 99,
            comm: "a\n\" b".to_owned(),
        };
        let paths = [r"/machine.slice/machine-qemu\x2d1\x2d.scope", "/a b'c\"d"];
        let groups = [
            (
                "user-0-1",
                vec![cgroup(paths[0]), cgroup(paths[1]), process.clone()],
            ),
            ("user-0-2", vec![process]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(
            &path,
            text(groups.iter().map(|(name, members)| (*name, &members[..]))),
        )
        .unwrap();
        let mut settings = Config::default();
        config::read(&path, true, &mut settings).unwrap();
        let [first, second] = &settings.groups[..] else {
            panic!("{:?}", settings.groups)
        };
        assert_eq!((&*first.name, &*second.name), ("user-0-1", "user-0-2"));
        let chosen = &first.settings.targets.chosen;
        assert_eq!(
            chosen
                .cgroups
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            paths
        );
        assert_eq!(chosen.pids[0].to_string(), "71@99");
        assert_eq!(second.settings.targets.chosen.cgroups, []);
    }

    #[test]
    fn without_groups_there_is_no_configuration() {
        assert_eq!(text([].into_iter()), "");
    }
}
