//! The Rust side of the contract agrees with `uksm_ioctl.h`, name by name.
//!
//! The crate is made from the header by way of libclang. This test asks another compiler: a C
//! program that includes the header is compiled and run; it prints what the C compiler makes of
//! every structure, field and constant. No name of the header may be missing on the Rust side.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use uksm_interface::*;

/// One field of a structure.
struct Field {
    name: &'static str,
    /// Its type in C.
    kind: String,
    /// Its distance from the structure's start in bytes.
    offset: usize,
    /// Its size in bytes.
    size: usize,
}

/// One structure.
struct Layout {
    name: &'static str,
    size: usize,
    fields: fn() -> Vec<Field>,
}

/// A type that a field may have, and its name in C.
trait Wire {
    fn kind() -> String;
}

macro_rules! wire {
    ($($rust:ty = $c:literal,)*) => {
        $(impl Wire for $rust {
            fn kind() -> String {
                $c.to_owned()
            }
        })*
    };
}

wire! { u8 = "__u8", u16 = "__u16", u32 = "__u32", u64 = "__u64", i32 = "__s32", }

impl<T: Wire, const LENGTH: usize> Wire for [T; LENGTH] {
    fn kind() -> String {
        format!("{}[{LENGTH}]", T::kind())
    }
}

/// Type and size of a field.
fn field_type<S, T: Wire>(_: fn(&S) -> &T) -> (String, usize) {
    (T::kind(), size_of::<T>())
}

macro_rules! layout {
    ($structure:ident: $($field:ident),*) => {
        Layout {
            name: stringify!($structure),
            size: size_of::<$structure>(),
            fields: || vec![$({
                let (kind, size) = field_type(|s: &$structure| &s.$field);
                let offset = std::mem::offset_of!($structure, $field);
                Field { name: stringify!($field), kind, offset, size }
            }),*],
        }
    };
}

// LAYOUTS, REQUESTS and CONSTANTS: every name that the build met in the header.
include!(concat!(env!("OUT_DIR"), "/tables.rs"));

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("uksm_ioctl.h")
}

/// The lines the C program prints if both sides agree.
fn expected() -> String {
    let mut out = String::new();
    for layout in LAYOUTS {
        writeln!(out, "{} {}", layout.name, layout.size).unwrap();
        for f in (layout.fields)() {
            writeln!(out, "{}.{} {} {} 1", layout.name, f.name, f.offset, f.size).unwrap();
        }
    }
    for (name, value) in CONSTANTS {
        writeln!(out, "{name} {value}").unwrap();
    }
    out
}

fn c_program() -> String {
    let mut out = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    writeln!(
        out,
        "#include \"{}\"\nint main(void) {{",
        header().display()
    )
    .unwrap();
    for layout in LAYOUTS {
        let s = layout.name;
        writeln!(out, "printf(\"{s} %zu\\n\", sizeof(struct {s}));").unwrap();
        for f in (layout.fields)() {
            let (name, kind) = (f.name, f.kind);
            writeln!(
                out,
                "printf(\"{s}.{name} %zu %zu %d\\n\", offsetof(struct {s}, {name}), \
                 sizeof(((struct {s} *)0)->{name}), \
                 __builtin_types_compatible_p(__typeof__(((struct {s} *)0)->{name}), {kind}));"
            )
            .unwrap();
        }
    }
    for (name, _) in CONSTANTS {
        writeln!(
            out,
            "printf(\"{name} %llu\\n\", (unsigned long long){name});"
        )
        .unwrap();
    }
    out.push_str("return 0; }\n");
    out
}

#[test]
fn every_size_offset_type_and_value_is_that_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("contract.c");
    let program = folder.path().join("contract");
    std::fs::write(&source, c_program()).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .status()
        .expect("cc: needed to compile the header: install gcc");
    assert!(
        compiled.success(),
        "the header does not compile, or a name is not in it"
    );
    let printed = Command::new(&program).output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    for (c, rust) in printed.lines().zip(expected().lines()) {
        assert_eq!(c, rust, "C (left) and Rust (right) differ");
    }
    assert_eq!(printed, expected());
}

#[test]
fn fields_leave_no_hidden_padding() {
    for layout in LAYOUTS {
        let mut end = 0;
        for f in (layout.fields)() {
            assert_eq!(
                f.offset, end,
                "{}.{}: a hole before it",
                layout.name, f.name
            );
            end = f.offset + f.size;
        }
        assert_eq!(
            end, layout.size,
            "{}: a hole at its end, or a field is missing",
            layout.name
        );
    }
}

#[test]
fn no_name_of_the_header_is_missing() {
    let text = std::fs::read_to_string(header()).unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("#define ") {
            names.insert(rest.split_whitespace().next().unwrap().to_owned());
        } else if let Some(rest) = line.strip_prefix("struct ") {
            names.insert(rest.split_whitespace().next().unwrap().to_owned());
        } else if line.starts_with("\tUKSM_") && line.contains(" = ") {
            names.insert(line.split_whitespace().next().unwrap().to_owned());
        }
    }
    assert!(
        names.remove("UKSM_IOCTL_H"),
        "the include guard is gone: does the parser still work?"
    );
    let ours: BTreeSet<String> = (LAYOUTS.iter().map(|l| l.name))
        .chain(CONSTANTS.iter().map(|c| c.0))
        .map(str::to_owned)
        .collect();
    assert_eq!(names, ours, "header (left) and Rust (right)");
}

#[test]
fn a_value_is_found_by_its_number_and_by_no_other() {
    let numbers = |prefix: &str| -> BTreeSet<u64> {
        let named = CONSTANTS
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        named.map(|&(_, value)| value).collect()
    };
    let found = |from_number: fn(u16) -> Option<u64>| -> BTreeSet<u64> {
        let found = (0..=u16::MAX).filter_map(|number| Some((number, from_number(number)?)));
        found
            .inspect(|&(number, value)| assert_eq!(u64::from(number), value))
            .map(|(_, value)| value)
            .collect()
    };
    assert_eq!(
        found(|n| State::from_number(n).map(|s| s as u64)),
        numbers("UKSM_STATE_")
    );
    assert_eq!(
        found(|n| Kind::from_number(n).map(|k| k as u64)),
        numbers("UKSM_KIND_")
    );
    assert_eq!(
        found(|n| Status::from_number(n).map(|s| s as u64)),
        numbers("UKSM_STATUS_")
    );
    assert_eq!(
        found(|n| Reason::from_number(n).map(|r| r as u64)),
        numbers("UKSM_REASON_")
    );
}

#[test]
fn a_call_has_the_number_and_the_structure_of_its_name() {
    let named = |verb: &Verb| {
        (
            "UKSM_IOC_".to_owned() + verb.name(),
            u64::from(verb.request()),
        )
    };
    let calls: BTreeSet<_> = Verb::ALL.iter().map(named).collect();
    let constants = CONSTANTS
        .iter()
        .filter(|(name, _)| name.starts_with("UKSM_IOC_"));
    let constants = constants.map(|&(name, value)| (name.to_owned(), value));
    assert_eq!(calls, constants.collect());

    for verb in Verb::ALL {
        let size = (REQUESTS.iter().find(|(of, _)| of == verb)).map_or(0, |(_, size)| *size);
        let told = (verb.request() >> 16 & 0x3fff) as usize;
        assert_eq!(told, size, "{}: the size in its number", verb.name());
    }
    assert_eq!(
        REQUESTS.len(),
        Verb::ALL.len() - 1,
        "SEAL alone takes nothing"
    );
}

#[test]
fn enums_and_flags_have_the_names_of_the_header() {
    assert_eq!(State::Anon as u64, 1);
    assert_eq!(Reason::NoFrame as u64, 11);
    assert_eq!(PageFlags::HUGE, UKSM_PAGE_HUGE);
    assert!(PageFlags(PageFlags::HUGE | PageFlags::YOUNG).any(PageFlags::HUGE));
    assert!(!PageFlags(PageFlags::HUGE).any(PageFlags::YOUNG));
}
