//! KVM if it really works, else emulation.
//!
//! Problem: `/dev/kvm` can be opened on machines where every guest dies at its
//! first instructions.
//!
//! Approach: a guest is booted under KVM and must say a word within a few
//! seconds. The answer holds until this machine boots again. `UKSM_ACCEL` (`kvm`
//! or `tcg`) overrides it.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};

use super::kernel::Kernel;
use super::verdict::Ending;
use super::{cache, vm};

/// How guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// On the CPU itself.
    Kvm,
    /// Emulated (TCG).
    Emulated,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Emulated => "tcg",
        })
    }
}

/// How long a guest under KVM may take to say its word.
const PROBE_BOUND: Duration = Duration::from_secs(8);

/// How guests run on this machine.
///
/// # Errors
/// `UKSM_ACCEL` has a value that is neither; or the probe cannot be made.
pub fn detect(kernel: &Kernel) -> Result<Accel> {
    static KNOWN: OnceLock<Accel> = OnceLock::new();
    match std::env::var("UKSM_ACCEL").as_deref() {
        Ok("kvm") => return Ok(Accel::Kvm),
        Ok("tcg") => return Ok(Accel::Emulated),
        Ok("") | Err(_) => {}
        Ok(other) => bail!("UKSM_ACCEL={other}: name kvm or tcg"),
    }
    if let Some(accel) = KNOWN.get() {
        return Ok(*accel);
    }
    let accel = if kvm_works(kernel)? {
        Accel::Kvm
    } else {
        Accel::Emulated
    };
    Ok(*KNOWN.get_or_init(|| accel))
}

fn kvm_works(kernel: &Kernel) -> Result<bool> {
    let device = Path::new("/dev/kvm");
    if fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .is_err()
    {
        return Ok(false);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let remembered = cache::root()?.join(format!("kvm-works-{}", boot.trim()));
    if let Ok(answer) = fs::read_to_string(&remembered) {
        return Ok(answer.trim() == "yes");
    }
    let ending = vm::probe(kernel, Accel::Kvm, PROBE_BOUND)?;
    let works = ending == Ending::Passed;
    if !works {
        eprintln!("KVM does not work here, guests are emulated: {ending:?}");
    }
    fs::write(&remembered, if works { "yes\n" } else { "no\n" })?;
    Ok(works)
}
