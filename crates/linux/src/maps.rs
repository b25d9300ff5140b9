//! Finds the mappings of a process in which pages can be merged.
//!
//! # Problem
//! Only private memory can be merged. A process can have 60,000 mappings, which the kernel needs some
//! 60 ms to print.
//!
//! # Approach
//! The bytes of `/proc/PID/maps` are cut up by hand. For 60,000 mappings this takes 7 ms, where the
//! parser of the `procfs` crate takes 35, after 50 ms in the kernel. Permissions and name alone decide
//! about a mapping.
//! Touching neighbours of one kind are one mapping for the policy: a program that protects every
//! other page does not make its memory another kind of memory. Whatever else the module refuses
//! (userfaultfd, locked, device memory) shows page by page.
//!
//! Ranges are half-open.
//!
//! # Source
//! proc(5).

use uksm_policy::command::Mapping;

/// What kind of memory a mapping holds, by which the policy learns lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Kind {
    /// Anonymous memory.
    Anonymous = 1,
    /// The heap of `brk`.
    Heap = 2,
    /// The main thread's stack.
    Stack = 3,
    /// Pages of a file, private and writable: data of a program.
    File = 4,
}

/// A line that is not one of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Parses the text of `/proc/PID/maps` into the mergeable mappings, ascending and disjoint.
///
/// # Errors
/// The first line that cannot be understood.
pub fn mergeable(text: &[u8], mappings: &mut Vec<Mapping>) -> Result<(), Malformed> {
    mappings.clear();
    for (index, line) in text.split(|&b| b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let malformed = |what: &str| Malformed {
            line: index + 1,
            what: format!(
                "{what} in '{}'",
                String::from_utf8_lossy(&line[..line.len().min(80)])
            ),
        };
        let (start, rest) = hex(line, b'-').ok_or_else(|| malformed("bad start of range"))?;
        let (end, rest) = hex(rest, b' ').ok_or_else(|| malformed("bad end of range"))?;
        if start >= end {
            return Err(malformed("empty range"));
        }
        let permissions = rest.get(..4).ok_or_else(|| malformed("no permissions"))?;
        let Some(kind) = kind(permissions, rest) else {
            continue;
        };
        match mappings.last_mut() {
            Some(last) if last.end > start => return Err(malformed("overlapping range")),
            Some(last) if last.end == start && last.kind == kind as u64 => last.end = end,
            _ => mappings.push(Mapping {
                start,
                end,
                kind: kind as u64,
            }),
        }
    }
    Ok(())
}

/// Every private mapping as `(start, end)`, whatever its permissions are now, because merged pages can
/// be in any of them. A line that does not parse is left out.
pub fn breakable(text: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let (start, rest) = hex(line, b'-')?;
        let (end, rest) = hex(rest, b' ')?;
        // The kernel's own page high above the others is no mapping of the process.
        let private = rest.get(3) == Some(&b'p') && start >> 63 == 0;
        (private && start < end).then_some((start, end))
    })
}

/// The kind of a mapping; none if nothing in it can be merged. `fields` starts at the permissions.
fn kind(permissions: &[u8], fields: &[u8]) -> Option<Kind> {
    // Memory without any permission is a reservation: there is nothing in it.
    if permissions[3] != b'p' || permissions.starts_with(b"---") {
        return None;
    }
    let writable = permissions[1] == b'w';
    match name(fields) {
        [] => Some(Kind::Anonymous),
        [b'[', ..] => match name(fields) {
            b"[heap]" => Some(Kind::Heap),
            name if name.starts_with(b"[stack") => Some(Kind::Stack),
            name if name.starts_with(b"[anon:") => Some(Kind::Anonymous),
            // vdso, vvar, vsyscall, uprobes: the kernel's.
            _ => None,
        },
        // Private huge pages of hugetlbfs cannot be shared.
        name if name.starts_with(b"/anon_hugepage") => None,
        // A read-only file mapping holds pages of the file, which are shared already.
        [b'/', ..] if writable => Some(Kind::File),
        _ => None,
    }
}

/// The field after permissions, offset, device and inode.
fn name(mut fields: &[u8]) -> &[u8] {
    for _ in 0..4 {
        let Some(space) = fields.iter().position(|&b| b == b' ') else {
            return &[];
        };
        fields = &fields[space + 1..];
    }
    fields.trim_ascii()
}

/// A hexadecimal number that ends at `stop`, and the text after that.
fn hex(text: &[u8], stop: u8) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in text.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ if byte == stop && index > 0 => return Some((value, &text[index + 1..])),
            _ => return None,
        };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<(u64, u64, u64)>, Malformed> {
        let mut mappings = Vec::new();
        mergeable(text.as_bytes(), &mut mappings)?;
        Ok(mappings.iter().map(|m| (m.start, m.end, m.kind)).collect())
    }

    #[test]
    fn private_memory_is_chosen_and_everything_else_left() {
        let text = "\
55d0c0000000-55d0c0002000 r--p 00000000 08:01 1234                       /usr/bin/redis-server
55d0c0002000-55d0c0004000 rw-p 00002000 08:01 1234                       /usr/bin/redis-server
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
7f0000500000-7f0000600000 rw-s 00000000 00:01 99                         /memfd:shared (deleted)
7f0000700000-7f0000800000 ---p 00000000 00:00 0 
7f0000800000-7f0000900000 r--p 00000000 00:00 0 
7f0000a00000-7f0000c00000 rw-p 00000000 00:0f 77                         /anon_hugepage (deleted)
7f0000d00000-7f0000e00000 rw-p 00000000 00:00 0                          [anon:arena one]
7f0000f00000-7f0000f01000 rw-p 00000000 00:0e 11                         anon_inode:[perf_event]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00100000-7ffc00104000 r--p 00000000 00:00 0                          [vvar]
7ffc00104000-7ffc00106000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        assert_eq!(
            parse(text).unwrap(),
            [
                (0x55d0_c000_2000, 0x55d0_c000_4000, Kind::File as u64),
                (0x55d0_c100_0000, 0x55d0_c102_1000, Kind::Heap as u64),
                (0x7f00_0000_0000, 0x7f00_0040_0000, Kind::Anonymous as u64),
                (0x7f00_0080_0000, 0x7f00_0090_0000, Kind::Anonymous as u64),
                (0x7f00_00d0_0000, 0x7f00_00e0_0000, Kind::Anonymous as u64),
                (0x7ffc_0000_0000, 0x7ffc_0002_1000, Kind::Stack as u64),
            ]
        );
    }

    #[test]
    fn touching_mappings_of_one_kind_are_one() {
        let text = "1000-2000 rw-p 0 00:00 0 \n2000-3000 r--p 0 00:00 0 \n3000-4000 rw-p 0 00:00 0 [heap]\n";
        assert_eq!(
            parse(text).unwrap(),
            [(0x1000, 0x3000, 1), (0x3000, 0x4000, 2)]
        );
    }

    #[test]
    fn merged_pages_are_looked_for_in_every_private_mapping() {
        let text = "1000-2000 ---p 0 0 0 \n2000-3000 rw-s 0 0 0 /x\n3000-4000 r--p 0 0 1 /y\n\
                    ffffffffff600000-ffffffffff601000 --xp 0 0 0 [vsyscall]\n";
        let ranges: Vec<_> = breakable(text.as_bytes()).collect();
        assert_eq!(ranges, [(0x1000, 0x2000), (0x3000, 0x4000)]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse("1000-2000 rw-p 0 00:00 0 \nx-3000 rw-p 0 00:00 0 \n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(
            error.what.contains("bad start of range in 'x-3000"),
            "{}",
            error.what
        );
        for bad in [
            "1000",
            "1000-",
            "2000-1000 rw-p",
            "1000-2000 rw",
            "-1000 rw-p 0 0 0",
            "11112222333344445-2 rw-p 0 0 0",
            "1000-3000 rw-p 0 0 0\n2000-4000 rw-p 0 0 0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_addresses_of_a_32_bit_process_are_read() {
        let text = "08048000-0804a000 rw-p 00000000 00:00 0 \nff9e2000-ffa03000 rw-p 00000000 00:00 0  [stack]\n";
        assert_eq!(
            parse(text).unwrap(),
            [(0x804_8000, 0x804_a000, 1), (0xff9e_2000, 0xffa0_3000, 3)]
        );
    }
}
