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
//! A unit and a pod are found in the path of a process's control group ([`crate::cgroup_path`]). An
//! environment is the one that a process was started with, and a process can overwrite its own.
//!
//! # Source
//! Euro-Par'11 §5.2: grouping "across independent customers" is the provider's decision.

use std::fmt;
use std::str::FromStr;

use crate::cgroup_path::{cut, pod, unit};
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
