//! Virtual machines of libvirt, by their names.
//!
//! # Problem
//! libvirt puts each machine into a scope, whose name is made from the machine's, with a number
//! that changes with each start. To write such names by hand is hard, and a pattern for one easily
//! matches others as well.
//!
//! # Approach
//! A scope's name is split: `machine-DRIVER-NUMBER-NAME.scope`, with systemd's escapes. libvirt
//! drops characters from NAME that a host's name cannot contain, and cuts the whole at 64 bytes;
//! the same is done with the given name. So `my_vm` is `myvm`, too. A machine cannot change its
//! scope's name. Only a scope of systemd's system manager counts: a scope below a unit was named by
//! the processes in that unit.

use std::fmt;
use std::str::FromStr;

use glob::Pattern;

use crate::cgroup_path;

/// Maximum length of a machine's name with its driver and number, in bytes; libvirt cuts longer
/// ones.
const MAX_MACHINE_NAME_BYTES: usize = 64;

/// A virtual machine of libvirt, or a pattern of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtDomain {
    text: String,
    /// The name as in a scope's name.
    name: Pattern,
    /// The name, if it contains no pattern.
    plain: Option<String>,
}

impl LibvirtDomain {
    /// Whether a process with this path in `/proc/PID/cgroup` is in the scope of such a machine or
    /// below.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        cgroup_path::units(path).any(|scope| self.is(scope))
    }

    /// Whether any name of the path is the scope of such a machine, including names that a user
    /// chose.
    #[must_use]
    pub(super) fn is_named_in(&self, path: &str) -> bool {
        path.split('/').any(|scope| self.is(scope))
    }

    fn is(&self, scope: &str) -> bool {
        machine(scope).is_some_and(|(head, name)| match &self.plain {
            // libvirt has cut a longer name.
            Some(plain) => name == cut(plain, MAX_MACHINE_NAME_BYTES.saturating_sub(head)),
            None => self.name.matches(&name),
        })
    }
}

/// The beginning of a text after a cut: it ends in neither dash nor dot.
fn cut(text: &str, bytes: usize) -> &str {
    // The text is ASCII here.
    let end = text.len().min(bytes);
    text[..end].trim_end_matches(['-', '.'])
}

/// The name of a machine in the name of its scope, and the length of the part before it.
fn machine(scope: &str) -> Option<(usize, String)> {
    let escaped = scope.strip_prefix("machine-")?.strip_suffix(".scope")?;
    let whole = unescape(escaped)?;
    // The driver's name can contain dashes where it is embedded; a number contains none.
    let (at, number) = whole
        .match_indices('-')
        .map(|(at, _)| (at, whole[at + 1..].split('-').next().unwrap_or("")))
        .find(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))?;
    let head = at + 1 + number.len() + 1;
    let name = whole.get(head..)?;
    (!name.is_empty()).then(|| (head, name.to_owned()))
}

/// A name without systemd's escapes; none if it is not ASCII or ends within one.
fn unescape(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        name.push_str(&rest[..at]);
        let byte = u8::from_str_radix(rest.get(at + 2..at + 4)?, 16).ok()?;
        name.push(char::from(byte));
        rest = &rest[at + 4..];
    }
    name.push_str(rest);
    name.is_ascii().then_some(name)
}

/// The form of a machine's name in its scope; the characters `also` are kept.
fn hostname(name: &str, also: &[char]) -> String {
    let mut kept = String::new();
    let mut is_after_mark = true;
    for c in name.chars() {
        let is_mark = c == '-' || c == '.';
        if is_mark && is_after_mark || !(is_mark || c.is_ascii_alphanumeric() || also.contains(&c))
        {
            continue;
        }
        kept.push(c);
        is_after_mark = is_mark;
    }
    kept.trim_end_matches(['-', '.']).to_owned()
}

impl fmt::Display for LibvirtDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for LibvirtDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<LibvirtDomain, String> {
        let is_pattern = text.contains(super::selector::WILDCARDS);
        let also: &[char] = if is_pattern {
            &['*', '?', '[', ']', '!']
        } else {
            &[]
        };
        let name = hostname(text, also);
        if name.is_empty() {
            return Err(format!(
                "'{text}' can match no machine: libvirt's scopes have only letters, digits, - and . of a name"
            ));
        }
        Ok(LibvirtDomain {
            text: text.to_owned(),
            plain: (!is_pattern).then(|| name.clone()),
            name: super::selector::pattern(&name)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(text: &str) -> LibvirtDomain {
        text.parse().unwrap()
    }

    #[test]
    fn a_machine_is_found_by_its_name_whatever_its_number() {
        let web = domain("web-1");
        for path in [
            "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d1.scope",
            "/machine.slice/machine-qemu\\x2d4711\\x2dweb\\x2d1.scope/libvirt/emulator",
            "/x.slice/machine-qemu\\x2dembed\\x2d0a1b2c3d\\x2d7\\x2dweb\\x2d1.scope",
        ] {
            assert!(web.holds(path), "{path}");
        }
        for path in [
            "/machine.slice/machine-qemu\\x2d1\\x2dmy\\x2dweb\\x2d1.scope",
            "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d12.scope",
            "/machine.slice/machine-qemu\\x2d1\\x2d.scope",
            "/machine.slice/machine-web\\x2d1.scope",
            "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2.scope",
            "/system.slice/web-1.service",
            "/user.slice/user-1000.slice/user@1000.service/machine-qemu\\x2d1\\x2dweb\\x2d1.scope",
            "/user.slice/mine/machine-qemu\\x2d1\\x2dweb\\x2d1.scope",
            "/",
        ] {
            assert!(!web.holds(path), "{path}");
        }
    }

    #[test]
    fn names_are_made_as_libvirt_makes_them() {
        for (text, scope) in [
            ("my_vm", "myvm"),
            ("..a..b--c-.d.", "a.b\\x2dc\\x2dd"),
            ("Größe 1", "Gre1"),
        ] {
            let path = format!("/machine-qemu\\x2d1\\x2d{scope}.scope");
            assert!(domain(text).holds(&path), "{text}");
            assert_eq!(domain(text).to_string(), text);
        }
        // 64 bytes with "qemu-12-".
        let long = "a".repeat(70);
        let path = |n| format!("/machine-qemu\\x2d12\\x2d{}.scope", "a".repeat(n));
        assert!(domain(&long).holds(&path(56)) && !domain(&long).holds(&path(57)));
    }

    #[test]
    fn patterns_match_names_and_what_can_match_nothing_is_refused() {
        let tenants = domain("db[12]-*");
        assert!(tenants.holds("/machine-lxc\\x2d3\\x2ddb2\\x2da.scope"));
        assert!(!tenants.holds("/machine-lxc\\x2d3\\x2ddb3\\x2da.scope"));
        for bad in ["", "_", "..", "[a"] {
            assert!(bad.parse::<LibvirtDomain>().is_err(), "{bad}");
        }
    }
}
