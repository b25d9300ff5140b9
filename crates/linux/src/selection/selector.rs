//! Selectors, the ways to name processes: by id, control group, or program name.
//!
//! # Problem
//! An operator's mistake must be reported at the word with the mistake. A name that can match
//! nothing is such a mistake.
//!
//! # Approach
//! Each way has its type, which [`FromStr`] parses and [`fmt::Display`] prints in a form that can
//! be parsed.

use std::fmt;
use std::str::FromStr;

use glob::Pattern;

use crate::cgroup_path;

/// The longest program name the kernel keeps, in bytes.
const COMM_BYTES: usize = 15;

/// One process by its id: `PID`, or `PID@START` with its start time in clock ticks (field 22 of
/// `/proc/PID/stat`), which no later process with this id has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessName {
    /// The id.
    pub pid: u32,
    /// The start time of the process, in clock ticks since the machine's start, once known.
    pub start_ticks: Option<u64>,
}

impl FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessName, String> {
        let (pid, start) = match text.split_once('@') {
            Some((pid, start)) => (pid, Some(start)),
            None => (text, None),
        };
        let start_ticks = start.map(|start| {
            start
                .parse()
                .map_err(|_| format!("'{text}': '{start}' is not a start time in ticks"))
        });
        // The kernel's largest id is 2^22.
        match pid.parse() {
            Ok(pid @ 1..=0x0040_0000) => Ok(ProcessName {
                pid,
                start_ticks: start_ticks.transpose()?,
            }),
            _ => Err(format!(
                "'{text}' is not a process id (1 to 4194304, or PID@START)"
            )),
        }
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start_ticks {
            Some(start) => write!(f, "{}@{start}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

/// Characters that make a name a pattern.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|e| format!("'{text}': bad pattern: {}", e.msg))
}

/// A control group, by its path below the root of the cgroup v2 tree. `*`, `?` and `[...]` match
/// within one name of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: String,
    /// The names of the path, if one of them is a pattern.
    patterns: Option<Vec<Pattern>>,
}

impl Cgroup {
    /// The mount point of the tree.
    pub const MOUNT: &'static str = "/sys/fs/cgroup";

    /// The control group with this path, as in `/proc/PID/cgroup`: no character is a pattern.
    #[must_use]
    pub fn at(path: &str) -> Cgroup {
        Cgroup {
            path: path.trim_end_matches('/').to_owned(),
            patterns: None,
        }
    }

    /// Whether a process with this path in `/proc/PID/cgroup` is in it or below.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        let Some(patterns) = &self.patterns else {
            let rest = path.strip_prefix(self.path.as_str());
            return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        };
        let mut names = path.split('/').skip(1);
        patterns
            .iter()
            .all(|pattern| names.next().is_some_and(|name| pattern.matches(name)))
    }

    /// Whether it is one control group, not a pattern of several.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.patterns.is_none()
    }

    /// Its path, or the pattern of paths; empty for the root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}{}", Cgroup::MOUNT, self.path)
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.path.is_empty() {
            "/"
        } else {
            &self.path
        })
    }
}

impl FromStr for Cgroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Cgroup, String> {
        let path = text.strip_prefix(Cgroup::MOUNT).unwrap_or(text);
        let path = path.trim_end_matches('/');
        if path.is_empty() && !text.starts_with('/') || !path.is_empty() && !path.starts_with('/') {
            return Err(format!(
                "'{text}' is not the path of a control group: write it from the root, as \
                 /system.slice/redis.service or {}/system.slice/redis.service",
                Cgroup::MOUNT
            ));
        }
        if let Some(name) = uksm_input::names::first_no_name(path) {
            return Err(format!(
                "'{text}' is not the path of a control group: '{name}' cannot be the name of one"
            ));
        }
        let patterns = path.contains(WILDCARDS).then(|| {
            let names = path.split('/').skip(1);
            names.map(pattern).collect::<Result<Vec<_>, String>>()
        });
        Ok(Cgroup {
            path: path.to_owned(),
            patterns: patterns.transpose()?,
        })
    }
}

/// A unit of systemd's system manager, or a pattern of units: a service, a scope or a slice. A unit
/// of a user's own manager, or of one in a container, is none: that user chooses its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit(Pattern);

impl Unit {
    /// Whether a process with this path in `/proc/PID/cgroup` is in such a unit or below.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        cgroup_path::units(path).any(|name| self.0.matches(name))
    }

    /// Whether any name of the path is one of such a unit, including names that a user chose.
    #[must_use]
    pub(super) fn is_named_in(&self, path: &str) -> bool {
        path.split('/').any(|name| self.0.matches(name))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        let known = [".service", ".scope", ".slice"];
        if text.contains('/') || !known.iter().any(|kind| text.ends_with(kind)) {
            return Err(format!(
                "'{text}' is not a unit with processes: it must end in .service, .scope or .slice"
            ));
        }
        pattern(text).map(Unit)
    }
}

/// A program name, or a pattern of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comm(Pattern);

impl Comm {
    /// Whether it matches a program of this name.
    #[must_use]
    pub fn matches(&self, comm: &str) -> bool {
        self.0.matches(comm)
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl FromStr for Comm {
    type Err = String;

    fn from_str(text: &str) -> Result<Comm, String> {
        if text.is_empty() {
            return Err("an empty program name matches nothing".to_owned());
        }
        let plain = !text.contains(WILDCARDS);
        if plain && text.len() > COMM_BYTES {
            let cut = text
                .char_indices()
                .map(|(i, _)| i)
                .take_while(|&i| i <= COMM_BYTES)
                .last();
            return Err(format!(
                "'{text}' can match nothing: the kernel keeps {COMM_BYTES} bytes of a program's \
                 name: write '{}'",
                &text[..cut.unwrap_or(0)]
            ));
        }
        pattern(text).map(Comm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_can_match_nothing_are_refused() {
        assert!("0".parse::<ProcessName>().is_err());
        assert!("4194305".parse::<ProcessName>().is_err());
        assert!("10@x".parse::<ProcessName>().is_err());
        assert!("".parse::<Comm>().is_err());
        assert!("[".parse::<Comm>().is_err());
        let error = "gnome-terminal-server".parse::<Comm>().unwrap_err();
        assert!(error.ends_with("write 'gnome-terminal-'"), "{error}");
        assert!("gnome-terminal*".parse::<Comm>().is_ok());
        assert!("relative/path".parse::<Cgroup>().is_err());
        assert!("".parse::<Cgroup>().is_err());
        for bad in [
            "/..",
            "/a/../b",
            "/./a",
            "//a",
            "/a//b",
            "/sys/fs/cgroup/../x",
            "/a/..",
        ] {
            let error = bad.parse::<Cgroup>().unwrap_err();
            assert!(error.ends_with(" cannot be the name of one"), "{error}");
        }
        assert!("/...".parse::<Cgroup>().is_ok());
        assert!("/".parse::<Cgroup>().unwrap().holds("/anything"));
    }

    #[test]
    fn patterns_match_within_a_name_of_the_path() {
        let tenants: Cgroup = "/tenants/web-*".parse().unwrap();
        assert!(tenants.holds("/tenants/web-1") && tenants.holds("/tenants/web-1/a/b"));
        assert!(!tenants.holds("/tenants") && !tenants.holds("/tenants/db-1"));
        assert!(!tenants.holds("/tenants/x/web-1") && !tenants.is_one());
        assert!("/tenants/[".parse::<Cgroup>().is_err());
    }

    #[test]
    fn a_unit_is_found_wherever_it_lies() {
        let unit: Unit = "nginx.service".parse().unwrap();
        assert!(unit.holds("/system.slice/nginx.service/worker"));
        assert!(!unit.holds("/system.slice/nginx.service2") && !unit.holds("/"));
        let machines: Unit = "machine-qemu*.scope".parse().unwrap();
        assert!(machines.holds("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt"));
        for bad in ["nginx", "/a/nginx.service", "nginx.socket", ""] {
            assert!(bad.parse::<Unit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_a_user_chose_are_no_units() {
        let unit: Unit = "postgresql@*.service".parse().unwrap();
        assert!(unit.holds("/system.slice/system-postgresql.slice/postgresql@15-main.service"));
        let own = "/user.slice/user-1000.slice/user@1000.service/app.slice/postgresql@evil.service";
        for path in [
            own,
            "/rvt.slice/user/postgresql@evil.service",
            "/system.slice/docker-1.scope/postgresql@evil.service",
            "/docker/1/system.slice/postgresql@evil.service",
            "/postgresql@evil/postgresql@evil.service",
        ] {
            assert!(!unit.holds(path), "{path}");
            assert!(unit.is_named_in(path), "{path}");
        }
        assert!(!unit.is_named_in("/user.slice/postgresql.service"));
        // For a user's unit, the user is named as well.
        let named: Cgroup = "/user.slice/user-1000.slice/user@1000.service/*/postgresql@*"
            .parse()
            .unwrap();
        assert!(named.holds(own) && !named.holds(&own.replace("1000", "1001")));
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["7", "7@99"] {
            assert_eq!(text.parse::<ProcessName>().unwrap().to_string(), text);
        }
        for (text, printed) in [("/sys/fs/cgroup/a/", "/a"), ("/", "/"), ("/a/b", "/a/b")] {
            assert_eq!(text.parse::<Cgroup>().unwrap().to_string(), printed);
        }
        assert_eq!("redis-*".parse::<Comm>().unwrap().to_string(), "redis-*");
    }
}
