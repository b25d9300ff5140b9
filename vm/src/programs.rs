//! Static builds of the workspace's programs.
//!
//! Problem: the guest has no shared libraries.
//!
//! Approach: cargo builds them with a static glibc for this machine's own target, named explicitly
//! so that the flags do not reach build scripts; cargo's messages contain the paths of the files.
//! They are optimised, because emulation is slow.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Message;

use crate::tool;

/// The profile. Tests, which are unoptimised themselves, do not wait for a release.
const PROFILE: &str = if cfg!(debug_assertions) {
    "guest"
} else {
    "release"
};

/// The target of guest programs.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds these programs of the workspace; gives their files by name.
///
/// # Errors
/// cargo fails, or a program is in no crate.
pub fn build(names: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = tool::command(&cargo);
    command
        .current_dir(tool::tree())
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}-Cstrip=debuginfo",
        )
        .args([
            "build",
            "--quiet",
            "--profile",
            PROFILE,
            "--workspace",
            "--target",
            TARGET,
        ])
        .arg("--message-format=json-render-diagnostics");
    for name in names {
        command.args(["--bin", name]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cargo.clone())?;
    if !output.status.success() {
        bail!("building {} failed", names.join(", "));
    }
    let mut programs = BTreeMap::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message.context("cargo's messages")?
            && let Some(executable) = artifact.executable
        {
            programs.insert(artifact.target.name, executable.into_std_path_buf());
        }
    }
    if let Some(missing) = names.iter().find(|&&name| !programs.contains_key(name)) {
        bail!("cargo built no program {missing}");
    }
    Ok(programs)
}
