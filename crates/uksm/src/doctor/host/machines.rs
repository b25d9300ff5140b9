//! Virtual machines of QEMU, by their command lines.

use std::collections::BTreeMap;

/// The options of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::doctor) struct Machine {
    /// Its memory is advised to KSM.
    pub(in crate::doctor) merges: bool,
    /// Some of its memory is shared.
    pub(in crate::doctor) shares: bool,
    /// Its memory is taken at the start.
    pub(in crate::doctor) preallocates: bool,
    /// Its memory is locked.
    pub(in crate::doctor) locks: bool,
    /// It has a balloon.
    pub(in crate::doctor) balloon: bool,
}

impl Machine {
    /// The options in QEMU's command line, whose words each end with a zero; none if it is another
    /// program.
    pub(in crate::doctor) fn of_command_line(line: &[u8]) -> Option<Machine> {
        let words: Vec<String> = line
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let program = words.first()?.rsplit('/').next()?;
        let program = program.split(' ').next()?;
        if !(program.starts_with("qemu-system-") || matches!(program, "qemu-kvm" | "kvm")) {
            return None;
        }
        let mut machine = Machine {
            merges: true,
            shares: false,
            preallocates: false,
            locks: false,
            balloon: false,
        };
        let mut words = words.iter().skip(1).peekable();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-') else {
                continue;
            };
            // QEMU takes two dashes as well.
            let option = option.strip_prefix('-').unwrap_or(option);
            let value = words.next_if(|next| !next.starts_with('-'));
            machine.take(option, value.map_or("", |value| value));
        }
        Some(machine)
    }

    pub(in crate::doctor) fn take(&mut self, option: &str, value: &str) {
        let keys = Keys::of(value);
        match option {
            "machine" | "M" => self.merges = keys.is_on("mem-merge").unwrap_or(self.merges),
            "mem-prealloc" => self.preallocates = true,
            "overcommit" => self.locks = keys.is_on("mem-lock").unwrap_or(self.locks),
            "realtime" => self.locks = keys.is_on("mlock").unwrap_or(self.locks),
            "object" if keys.kind.starts_with("memory-backend-") => {
                // A memfd is shared unless an option says otherwise.
                let is_memfd = keys.kind == "memory-backend-memfd";
                self.shares |= keys.is_on("share").unwrap_or(is_memfd);
                self.preallocates |= keys.is_on("prealloc").unwrap_or(false);
            }
            "device" => self.balloon |= keys.kind.starts_with("virtio-balloon"),
            "balloon" => self.balloon |= value.starts_with("virtio"),
            _ => {}
        }
    }
}

/// The keys of an option, and the kind of its object.
struct Keys {
    pub(in crate::doctor) kind: String,
    pub(in crate::doctor) values: BTreeMap<String, String>,
}

impl Keys {
    fn of(text: &str) -> Keys {
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text) {
            let text = |value: &serde_json::Value| match value {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let values: BTreeMap<String, String> = object
                .iter()
                .map(|(key, value)| (key.clone(), text(value)))
                .collect();
            let kind = values.get("qom-type").or_else(|| values.get("driver"));
            return Keys {
                kind: kind.cloned().unwrap_or_default(),
                values,
            };
        }
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        // The first may be a key as well: `-overcommit mem-lock=on`.
        let pairs = std::iter::once(kind).chain(parts).filter_map(|part| {
            let (key, value) = part.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        });
        Keys {
            values: pairs.collect(),
            kind: kind.to_owned(),
        }
    }

    fn is_on(&self, key: &str) -> Option<bool> {
        match self.values.get(key)?.as_str() {
            "on" | "yes" | "true" | "y" => Some(true),
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(line: &str) -> Machine {
        let words = line.split(' ').collect::<Vec<_>>().join("\0");
        Machine::of_command_line(words.as_bytes()).unwrap()
    }

    const PLAIN: Machine = Machine {
        merges: true,
        shares: false,
        preallocates: false,
        locks: false,
        balloon: false,
    };

    #[test]
    fn options_of_qemu_are_read_in_both_forms() {
        for (line, expected) in [
            ("/usr/bin/qemu-system-x86_64 -m 512 -nographic", PLAIN),
            (
                "qemu-system-x86_64 -machine q35,mem-merge=off",
                Machine {
                    merges: false,
                    ..PLAIN
                },
            ),
            (
                "kvm --machine pc,mem-merge=off -machine mem-merge=on",
                PLAIN,
            ),
            (
                "qemu-kvm -mem-prealloc -m 1G",
                Machine {
                    preallocates: true,
                    ..PLAIN
                },
            ),
            (
                "kvm -overcommit mem-lock=on",
                Machine {
                    locks: true,
                    ..PLAIN
                },
            ),
            (
                "kvm -object memory-backend-file,id=a,share=on,prealloc=on",
                Machine {
                    shares: true,
                    preallocates: true,
                    ..PLAIN
                },
            ),
            ("kvm -object memory-backend-file,id=a,share=off", PLAIN),
            ("kvm -object memory-backend-ram,id=a", PLAIN),
            (
                "kvm -object memory-backend-memfd,id=a",
                Machine {
                    shares: true,
                    ..PLAIN
                },
            ),
            ("kvm -object rng-random,id=a,share=on", PLAIN),
            (
                r#"kvm -object {"qom-type":"memory-backend-memfd","id":"ram","share":true,"prealloc":true}"#,
                Machine {
                    shares: true,
                    preallocates: true,
                    ..PLAIN
                },
            ),
            (
                r#"kvm -object {"qom-type":"memory-backend-memfd","share":false}"#,
                PLAIN,
            ),
            (
                r#"kvm -device {"driver":"virtio-balloon-pci","id":"b"}"#,
                Machine {
                    balloon: true,
                    ..PLAIN
                },
            ),
            (
                "kvm -device virtio-balloon-ccw,id=b",
                Machine {
                    balloon: true,
                    ..PLAIN
                },
            ),
            ("kvm -device virtio-net,id=virtio-balloon", PLAIN),
        ] {
            assert_eq!(machine(line), expected, "{line}");
        }
    }

    #[test]
    fn other_programs_are_no_machines() {
        for line in [
            "",
            "redis-server *:6379",
            "qemu-img convert a b",
            "/usr/libexec/kvmtool",
        ] {
            assert_eq!(Machine::of_command_line(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        /// A process can write its command line.
        #[test]
        fn any_command_line_is_a_machine_or_none(
            words in proptest::collection::vec("-?-?(machine|object|device|overcommit|balloon|\\PC{0,20})|\\{.{0,40}|[a-z]{1,8},[a-z]+=(on|,|=)|.{0,20}", 0..12),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut line = b"qemu-system-x86_64\0".to_vec();
            line.extend(words.join("\0").into_bytes());
            let deep = [line.as_slice(), b"\0-device\0", &[b'{'; 1000]].concat();
            line.extend(&bytes);
            for line in [&line, &bytes, &deep] {
                let _machine = Machine::of_command_line(line);
            }
        }
    }
}
