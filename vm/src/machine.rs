//! The parts of each kind of machine.
//!
//! A test names a kind ([`Machine`]). This file defines its memory, CPUs, modules, kernel
//! parameters, and the build of our module.

use crate::accel::Clock;
use crate::kernel::Kernel;
use crate::module_build::Variant;
use uksm_vm_protocol::machine::Machine;

/// Modules of the kernel that every test machine has, loaded on demand.
const COMMON: &[&str] = &["zram", "fuse"];
/// Modules of machines that run guests of their own.
const NESTED: &[&str] = &["zram", "fuse", "kvm", "kvm_amd"];

/// A kind of machine in numbers.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// CPUs.
    pub cpus: u32,
    /// The source of its clock.
    pub clock: Clock,
    /// The kernel's own modules that are packed.
    pub kernel_modules: &'static [&'static str],
    /// Kernel parameters beside those of every machine.
    pub parameters: &'static [&'static str],
    /// The build of our module.
    pub variant: Variant,
}

/// The reason why this kernel has no machine of this kind; `None` if it has one.
#[must_use]
pub fn lacking(machine: Machine, kernel: &Kernel) -> Option<&'static str> {
    match machine {
        Machine::Nested | Machine::NestedFaults if kernel.is_real_time() => Some(
            "a real-time kernel's KVM wants a constant TSC, which no emulated processor with SVM has",
        ),
        // Those with modules of their own are stock kernels.
        Machine::Coherent if kernel.modules.is_some() => Some("a stock kernel simulates no device"),
        _ => None,
    }
}

/// The shape of a kind.
#[must_use]
pub const fn shape(machine: Machine) -> Shape {
    let variant = if machine.has_faults() {
        Variant::Test
    } else {
        Variant::Shipped
    };
    let kernel_modules = match machine {
        Machine::Stock
        | Machine::Numa
        | Machine::NoKmem
        | Machine::Counted
        | Machine::Coherent
        | Machine::Faults => COMMON,
        Machine::Nested | Machine::NestedFaults => NESTED,
    };
    // Instructions of all CPUs make one clock: those of one CPU would pass as time on the others.
    // Nested machines do not need the clock but its single thread: QEMU 7.2 leaves a guest's guest
    // (do_vmexit) by changing the CPU's pending interrupts without a lock; an interrupt raised by
    // another thread in that moment is lost, and the sender of an IPI waits for ever.
    let (cpus, clock) = match machine {
        Machine::Counted | Machine::Nested | Machine::NestedFaults => (1, Clock::Instructions),
        Machine::Stock | Machine::Numa | Machine::NoKmem | Machine::Coherent | Machine::Faults => {
            (2, Clock::Time)
        }
    };
    let parameters: &[&str] = match machine {
        Machine::Numa => &["movablecore=75%"],
        Machine::NoKmem => &["cgroup.memory=nokmem"],
        // Two devices of 256 MiB. The initramfs is at the end of memory, the kernel at its start.
        Machine::Coherent => &[
            "memmap=512M$0x20000000",
            "test_hmm.spm_addr_dev0=0x20000000",
            "test_hmm.spm_addr_dev1=0x30000000",
        ],
        Machine::Faults => &["memhp_default_state=offline"],
        _ => &[],
    };
    Shape {
        memory_mib: if matches!(machine, Machine::Coherent) {
            1536
        } else {
            1024
        },
        cpus,
        clock,
        kernel_modules,
        parameters,
        variant,
    }
}
