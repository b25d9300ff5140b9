//! The Rust side of the contract agrees with `interface/uksm_ioctl.h`, name by name.
//!
//! A C program that includes the header is compiled and run; it prints what a C compiler makes of
//! every structure, field and constant. No name of the header may be missing on the Rust side.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use uksm_interface::{CONSTANTS, LAYOUTS};

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("uksm_ioctl.h")
}

/// The C type of a field that Rust declares as `kind`.
fn c_type(kind: &str) -> String {
    let scalar = |kind: &str| match kind {
        "u8" => "__u8",
        "u16" => "__u16",
        "u32" => "__u32",
        "u64" => "__u64",
        "i32" => "__s32",
        other => panic!("no C type for {other}"),
    };
    match kind.strip_prefix('[').and_then(|k| k.strip_suffix(']')) {
        Some(array) => {
            let (element, length) = array.split_once(';').unwrap();
            format!("{}[{}]", scalar(element.trim()), length.trim())
        }
        None => scalar(kind).to_owned(),
    }
}

/// The lines the C program prints if both sides agree.
fn expected() -> String {
    let mut out = String::new();
    for layout in LAYOUTS {
        writeln!(out, "{} {}", layout.name, layout.size).unwrap();
        for f in layout.fields {
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
        for f in layout.fields {
            let (name, kind) = (f.name, c_type(f.kind));
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
        for f in layout.fields {
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
