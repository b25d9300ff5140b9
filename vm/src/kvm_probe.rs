//! KVM if it really works, else emulation.
//!
//! Problem: `/dev/kvm` can be opened on machines where every guest dies at its first instructions.
//!
//! Approach: a guest is booted under KVM and must report within a few seconds. The answer holds
//! until this machine boots again. `UKSM_ACCEL` (`kvm` or `tcg`) overrides it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::accel::{Accel, Clock};
use crate::boot::{self, Boot, Outputs};
use crate::cache;
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::verdict::Ending;
use uksm_vm_protocol::machine::Machine;
use uksm_vm_protocol::messages::Work;

/// Time in which a guest under KVM must report.
const PROBE_TIMEOUT: Duration = Duration::from_secs(8);

/// The way in which guests with such a clock run on this machine.
///
/// # Errors
/// `UKSM_ACCEL` has an invalid value, or one that such a clock cannot use; or the probe cannot be
/// made.
pub fn detect(kernel: &Kernel, clock: Clock) -> Result<Accel> {
    static KNOWN: OnceLock<Accel> = OnceLock::new();
    if let Some(accel) = chosen(std::env::var("UKSM_ACCEL").as_deref().unwrap_or(""), clock)? {
        return Ok(accel);
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

/// The result that follows from the variable and the clock alone; none if the machine must be
/// probed.
fn chosen(variable: &str, clock: Clock) -> Result<Option<Accel>> {
    Ok(match (variable, clock) {
        ("kvm", Clock::Time) => Some(Accel::Kvm),
        ("kvm", Clock::Instructions) => bail!(
            "UKSM_ACCEL=kvm: KVM cannot count instructions; leave UKSM_ACCEL out, or count time"
        ),
        ("tcg", Clock::Time) => Some(Accel::Emulated),
        ("" | "tcg", Clock::Instructions) => Some(Accel::Counted),
        ("", Clock::Time) => None,
        (other, _) => bail!("UKSM_ACCEL={other}: name kvm or tcg"),
    })
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
    let ending = probe(kernel, Accel::Kvm, PROBE_TIMEOUT)?;
    let works = ending == Ending::Passed;
    if !works {
        eprintln!("KVM does not work here, guests are emulated: {ending:?}");
    }
    fs::write(&remembered, if works { "yes\n" } else { "no\n" })?;
    Ok(works)
}

/// Boots a machine that only has to send one report.
///
/// # Errors
/// It cannot be started.
fn probe(kernel: &Kernel, accel: Accel, bound: Duration) -> Result<Ending> {
    let boot = Boot {
        label: "probe".into(),
        kernel,
        accel,
        machine: Machine::Stock,
        memory_mib: 256,
        cpus: 1,
        preallocate: false,
        disk_mib: None,
        work: Work::Probe,
        variant: None,
        load: false,
        load_too: Vec::new(),
        again_if_lost: false,
        kernel_modules: &[],
        files: Initramfs::new(),
        parameters: Vec::new(),
        plugin: None,
        seed: 1,
        time_factor: 1,
        bound,
    };
    Ok(boot::run(boot, Outputs::events_only(&mut |_| {}))?.ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(variable: &str, clock: Clock) -> String {
        format!("{:#}", chosen(variable, clock).unwrap_err())
    }

    #[test]
    fn a_guest_that_counts_instructions_is_emulated_without_asking_for_kvm() {
        for variable in ["", "tcg"] {
            let accel = chosen(variable, Clock::Instructions).unwrap();
            assert_eq!(accel, Some(Accel::Counted), "UKSM_ACCEL={variable}");
        }
    }

    #[test]
    fn counting_instructions_under_kvm_is_refused_with_the_reason() {
        let error = refused("kvm", Clock::Instructions);
        assert!(error.contains("KVM cannot count instructions"), "{error}");
        assert_eq!(chosen("kvm", Clock::Time).unwrap(), Some(Accel::Kvm));
    }

    #[test]
    fn a_way_to_run_that_is_not_there_is_named_in_the_error() {
        for clock in [Clock::Time, Clock::Instructions] {
            let error = refused("xen", clock);
            assert!(error.contains("UKSM_ACCEL=xen"), "{error}");
        }
    }
}
