//! Trust boundaries: which processes must never be put together.
//!
//! # Problem
//! Who may share with whom is the operator's to say, for thousands of processes, in a word.
//!
//! # Approach
//! A rule names the boundary of each process. Processes of one boundary may be compared, others never. A
//! process that the rule says nothing of belongs to none.
//!
//! A unit is the outermost service or scope of a process's control group: what lies below is delegated to whoever runs in
//! it, and named by them. Environments are what a process was started with, and a process can write over its own.
//!
//! # Source
//! Euro-Par'11 §5.2: grouping "across independent customers" is the provider's decision.

use std::fmt;
use std::str::FromStr;

use crate::proc::{self, Proc};

/// A rule that names the boundary of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boundary {
    /// One for all.
    All,
    /// The user whose rights the process has.
    User,
    /// The control group's first names, so many.
    Cgroup(usize),
    /// The unit of systemd.
    Unit,
    /// The value of a variable of the environment.
    Environment(String),
}

impl Boundary {
    /// The boundary that a process lies in; none if the rule does not say.
    ///
    /// # Errors
    /// Gone, or what the rule asks for cannot be read.
    pub fn of(&self, proc: &Proc, pid: u32) -> proc::Result<Option<String>> {
        Ok(match self {
            Boundary::All => Some("all".to_owned()),
            Boundary::User => Some(format!("user {}", proc.user(pid)?)),
            Boundary::Cgroup(depth) => Some(cut(&proc.cgroup(pid)?, *depth)),
            Boundary::Unit => unit(&proc.cgroup(pid)?),
            Boundary::Environment(name) => proc.environment(pid, name)?.map(|value| {
                // Distinct values stay distinct, whatever bytes they have.
                format!("{name}={}", value.escape_ascii())
            }),
        })
    }
}

/// The first names of a path.
fn cut(path: &str, depth: usize) -> String {
    let names: Vec<&str> = path.split('/').skip(1).take(depth).collect();
    format!("/{}", names.join("/"))
}

/// The path of the outermost unit.
fn unit(path: &str) -> Option<String> {
    let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
    let depth = path.split('/').skip(1).position(is_unit)?;
    Some(cut(path, depth + 1))
}

impl FromStr for Boundary {
    type Err = String;

    fn from_str(text: &str) -> Result<Boundary, String> {
        match text.split_once(':') {
            None if text == "all" => Ok(Boundary::All),
            None if text == "user" => Ok(Boundary::User),
            None if text == "unit" => Ok(Boundary::Unit),
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
                "'{text}' is not a boundary: write all, user, unit, cgroup:DEPTH or env:NAME"
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
        for (rule, says) in [
            ("all", Some("all")),
            ("user", Some("user 33")),
            ("cgroup:1", Some("/machine.slice")),
            (
                "cgroup:9",
                Some("/machine.slice/c1.scope/system.slice/nginx.service"),
            ),
            ("unit", Some("/machine.slice/c1.scope")),
            ("env:TENANT", Some("TENANT=a\\xff\\n")),
            ("env:TENAN", None),
            ("env:EMPTY", None),
        ] {
            let boundary: Boundary = rule.parse().unwrap();
            assert_eq!(boundary.to_string(), rule);
            assert_eq!(boundary.of(&proc, 7).unwrap().as_deref(), says, "{rule}");
        }
        assert_eq!(unit("/user.slice/x"), None);
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
