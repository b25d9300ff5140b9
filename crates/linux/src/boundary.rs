//! Trust boundaries: processes on different sides must never share memory.
//!
//! # Problem
//! The operator decides which processes may share memory, for thousands of processes, in one
//! setting.
//!
//! # Approach
//! A rule names the boundary of each process. Processes of one boundary may be compared, others
//! never. A process without a boundary by the rule belongs to none.
//!
//! A unit is the service or scope of a process's control group right below the slices at the root
//! of the tree: these are made by systemd's system manager. Control groups below a unit are
//! delegated to the processes in it, and named by them; so are those below any other control group.
//! For the same reason a pod of Kubernetes is one right below the slices that its node agent makes
//! at the root of the tree. An environment is the one that a process was started with, and a
//! process can overwrite its own.
//!
//! # Source
//! Euro-Par'11 §5.2: grouping "across independent customers" is the provider's decision. The names
//! of pods' control groups are those of the Kubernetes node agent, with its drivers `systemd` and
//! `cgroupfs`.

use std::fmt;
use std::str::FromStr;

use crate::proc::{self, Proc};

/// A rule that names the boundary of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boundary {
    /// One boundary for all.
    All,
    /// The user whose rights the process has.
    User,
    /// This number of first names of the control group.
    Cgroup(usize),
    /// The unit of systemd.
    Unit,
    /// The pod of Kubernetes.
    Pod,
    /// The value of a variable of the environment.
    Environment(String),
}

impl Boundary {
    /// The boundary of a process; none if the rule gives it none.
    ///
    /// # Errors
    /// Gone, or the input of the rule cannot be read.
    pub fn of(&self, proc: &Proc, pid: u32) -> proc::Result<Option<String>> {
        Ok(match self {
            Boundary::All => Some("all".to_owned()),
            Boundary::User => Some(format!("user {}", proc.user(pid)?)),
            Boundary::Cgroup(depth) => Some(cut(&proc.cgroup(pid)?, *depth)),
            Boundary::Unit => unit(&proc.cgroup(pid)?),
            Boundary::Pod => pod(&proc.cgroup(pid)?).map(|(id, _)| format!("pod {id}")),
            Boundary::Environment(name) => {
                environment(proc, pid, name)?.map(|value| format!("{name}={value}"))
            }
        })
    }
}

/// The value of a variable. Distinct values stay distinct, with any bytes.
pub(crate) fn environment(proc: &Proc, pid: u32, name: &str) -> proc::Result<Option<String>> {
    let value = proc.environment(pid, name)?;
    Ok(value.map(|value| value.escape_ascii().to_string()))
}

/// The first names of a path; all, if it has fewer.
pub(crate) fn cut(path: &str, depth: usize) -> String {
    let names: Vec<&str> = path.split('/').skip(1).take(depth).collect();
    format!("/{}", names.join("/"))
}

/// The names of a path that the system manager gave: slices from the root on, and the service or
/// scope right below them.
pub(crate) fn units(path: &str) -> impl Iterator<Item = &str> {
    let mut is_below_slices = true;
    path.split('/').skip(1).take_while(move |name| {
        let is_slice = name.ends_with(".slice");
        let is_unit = is_slice || name.ends_with(".service") || name.ends_with(".scope");
        std::mem::replace(&mut is_below_slices, is_slice) && is_unit
    })
}

/// The path of the unit that is no slice.
pub(crate) fn unit(path: &str) -> Option<String> {
    let (last, name) = units(path).enumerate().last()?;
    (!name.ends_with(".slice")).then(|| cut(path, last + 1))
}

/// The id of the pod, and the path of its control group. A control group elsewhere in the tree with
/// the name of a pod is none: a container with control groups of its own can name them like another
/// customer's pod.
pub(crate) fn pod(path: &str) -> Option<(String, String)> {
    let names: Vec<&str> = path.split('/').skip(1).collect();
    let (&root, below) = names.split_first()?;
    let is_slice = match root {
        "kubepods.slice" => true,
        "kubepods" => false,
        _ => return None,
    };
    let (class, depth) = match (below.first().copied()?, is_slice) {
        ("kubepods-burstable.slice", true) => ("burstable-", 2),
        ("kubepods-besteffort.slice", true) => ("besteffort-", 2),
        ("burstable" | "besteffort", false) => ("", 2),
        _ => ("", 1),
    };
    let name = names.get(depth)?;
    let id = if is_slice {
        let name = name.strip_prefix("kubepods-")?.strip_prefix(class)?;
        // A dash would mean another slice below.
        name.strip_prefix("pod")?
            .strip_suffix(".slice")?
            .replace('_', "-")
    } else {
        name.strip_prefix("pod")?.to_owned()
    };
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_plain = !id.is_empty() && id.chars().all(is_id);
    is_plain.then(|| (id, cut(path, depth + 1)))
}

impl FromStr for Boundary {
    type Err = String;

    fn from_str(text: &str) -> Result<Boundary, String> {
        match text.split_once(':') {
            None if text == "all" => Ok(Boundary::All),
            None if text == "user" => Ok(Boundary::User),
            None if text == "unit" => Ok(Boundary::Unit),
            None if text == "pod" => Ok(Boundary::Pod),
            Some(("cgroup", depth)) => match depth.parse() {
                Ok(depth @ 1..=64) => Ok(Boundary::Cgroup(depth)),
                _ => Err(format!(
                    "'{depth}' is not a depth of control groups (1 to 64)"
                )),
            },
            Some(("env", name)) if !name.is_empty() && !name.contains('=') => {
                Ok(Boundary::Environment(name.to_owned()))
            }
            _ => Err(format!(
                "'{text}' is not a boundary: write all, user, unit, pod, cgroup:DEPTH or env:NAME"
            )),
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Boundary::All => f.write_str("all"),
            Boundary::User => f.write_str("user"),
            Boundary::Unit => f.write_str("unit"),
            Boundary::Pod => f.write_str("pod"),
            Boundary::Cgroup(depth) => write!(f, "cgroup:{depth}"),
            Boundary::Environment(name) => write!(f, "env:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_names_the_boundary_of_a_process() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        let path = "0::/machine.slice/c1.scope/system.slice/nginx.service\n";
        std::fs::write(folder.join("cgroup"), path).unwrap();
        std::fs::write(folder.join("status"), "Name:\tx\nUid:\t1000\t33\t33\t33\n").unwrap();
        std::fs::write(
            folder.join("environ"),
            b"A=1\0TENANT=a\xff\n\0TENANTS=b\0EMPTY=\0",
        )
        .unwrap();
        let proc = Proc::at(root.path());
        for (rule, expected) in [
            ("all", Some("all")),
            ("user", Some("user 33")),
            ("cgroup:1", Some("/machine.slice")),
            (
                "cgroup:9",
                Some("/machine.slice/c1.scope/system.slice/nginx.service"),
            ),
            ("unit", Some("/machine.slice/c1.scope")),
            ("pod", None),
            ("env:TENANT", Some("TENANT=a\\xff\\n")),
            ("env:TENAN", None),
            ("env:EMPTY", None),
        ] {
            let boundary: Boundary = rule.parse().unwrap();
            assert_eq!(boundary.to_string(), rule);
            assert_eq!(
                boundary.of(&proc, 7).unwrap().as_deref(),
                expected,
                "{rule}"
            );
        }
        assert_eq!(unit("/user.slice/x"), None);
    }

    #[test]
    fn a_unit_is_one_of_the_system_manager() {
        for (path, of) in [
            ("/init.scope", Some("/init.scope")),
            (
                "/system.slice/a.service/b.service",
                Some("/system.slice/a.service"),
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/b.service",
                Some("/user.slice/user-1000.slice/user@1000.service"),
            ),
            ("/user.slice", None),
            ("/user.slice/mine/b.service", None),
            ("/mine/b.service", None),
            ("/../system.slice/b.service", None),
            ("/", None),
        ] {
            assert_eq!(unit(path).as_deref(), of, "{path}");
        }
    }

    #[test]
    fn a_pod_is_known_by_both_drivers_names_and_only_where_its_agent_makes_it() {
        let id = "0b1c-2d";
        for (path, depth) in [
            ("/kubepods.slice/kubepods-pod0b1c_2d.slice/cri-1.scope", 2),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b1c_2d.slice/cri-1.scope/x",
                3,
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0b1c_2d.slice",
                3,
            ),
            ("/kubepods/pod0b1c-2d/5ac1", 2),
            ("/kubepods/burstable/pod0b1c-2d/5ac1", 3),
            ("/kubepods/besteffort/pod0b1c-2d", 3),
        ] {
            let of = cut(path, depth);
            assert_eq!(pod(path), Some((id.to_owned(), of)), "{path}");
        }
        for path in [
            "/",
            "/kubepods",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-pod0b1c_2d.slice",
            "/kubepods.slice/kubepods-pod.slice",
            "/kubepods.slice/x.scope/kubepods-pod0b1c_2d.slice",
            "/kubepods/burstable/x/pod0b1c-2d",
            "/machine.slice/c.scope/kubepods.slice/kubepods-pod0b1c_2d.slice/cri-1.scope",
            "/machine.slice/kubepods/pod0b1c-2d",
        ] {
            assert_eq!(pod(path), None, "{path}");
        }
    }

    #[test]
    fn a_rule_that_is_none_is_named() {
        for text in [
            "", "users", "cgroup", "cgroup:0", "cgroup:x", "env:", "env:A=b", "pid:1",
        ] {
            let error = text.parse::<Boundary>().unwrap_err();
            assert!(
                error.starts_with('\'') && error.contains(" is not a "),
                "{error}"
            );
        }
    }
}
