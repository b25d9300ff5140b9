//! Compiles the BPF programs with clang, and makes the Rust side of `hint_event.h`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = "hint_event.h";
const SOURCES: [&str; 2] = ["hints", "cgroup_moves"];

fn main() {
    println!("cargo::rerun-if-changed={HEADER}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    for name in SOURCES {
        compile(&clang, &folder, name);
    }
    bindgen::builder()
        .header(HEADER)
        .clang_args(["-fparse-all-comments"])
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .allowlist_type("uksm_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .disable_header_comment()
        .generate()
        .unwrap_or_else(|error| panic!("bpf/{HEADER}: {error}"))
        .write_to_file(folder.join("hint_event.rs"))
        .expect("OUT_DIR can be written");
}

fn compile(clang: &str, folder: &Path, name: &str) {
    let source = format!("{name}.bpf.c");
    println!("cargo::rerun-if-changed={source}");
    let compiled = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g"])
        .args(["-Wall", "-Wextra", "-Werror", "-fdebug-prefix-map=.=bpf"])
        // Debian's folder of headers of the machine, in which clang does not search by itself.
        .args(["-I/usr/include/x86_64-linux-gnu", "-c", &source, "-o"])
        .arg(folder.join(format!("{name}.bpf.o")))
        .status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile bpf/{source}: {status}"),
        Err(error) => panic!("{clang}: {error}; docs/install.md has what a build needs"),
    }
}
