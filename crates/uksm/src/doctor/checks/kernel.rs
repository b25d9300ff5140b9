//! The kernel: whether the module can be loaded into it and find its functions, and features that
//! uksm lacks without a kernel option.
//!
//! # Source
//! `kernel/compat.h` and `kernel/symbol_list.h` of the module, `docs/install.md`; kernel
//! documentation `admin-guide/LSM`, `admin-guide/module-signing.rst`; the calls of
//! `security_locked_down()`, of which a module's `register_kprobe()` has none; UEFI §3.3 for the
//! variable `SecureBoot`.

use uksm_linux::module::tried_kernels::tried_in_words;

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::kernel::SYMBOLS;
use crate::doctor::probe::FileContent;
use crate::doctor::prospect::{
    Prospect, TRIED_WITH, chosen, is_too_old, needs_of_build, untried_kernel, wants_signatures,
    wrong_options,
};

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "architecture",
        finds: "the processor is not an x86-64 one",
        reads: "/proc/sys/kernel/arch",
        worst: Severity::Error,
        cost: "the module is written for x86-64 and builds for nothing else",
        mend: "none",
        judge: architecture,
    },
    Check {
        name: "kernel-version",
        finds: "the kernel is older than 6.1, or uksm was not tried on its vendor, series or \
                flavor; a warning if the module is loaded with untested=1; a note if that is set \
                without need",
        reads: "/proc/sys/kernel/{osrelease,version}, /etc/os-release, linux/version.h of the headers, \
                /sys/module/uksm/parameters/untested",
        worst: Severity::Error,
        cost: "the module does not build for an older kernel, and refuses one on which its tests \
               did not run: a change of memory management that no test has seen can damage \
               merged pages",
        mend: "on Debian and Proxmox VE a kernel of the list in docs/kernels.md; elsewhere, where \
               the kernel has KSM, `uksm run --backend ksm`",
        judge: version,
    },
    Check {
        name: "kernel-ksm",
        finds: "the kernel was built without KSM",
        reads: "/sys/kernel/mm/ksm/run",
        worst: Severity::Error,
        cost: "merged pages are pages of KSM's kind: the module does not build for a kernel without CONFIG_KSM",
        mend: "a kernel built with CONFIG_KSM, as distributions' kernels are",
        judge: ksm,
    },
    Check {
        name: "kernel-options",
        finds: "an option that the module needs is not set, or one that it cannot live with is; \
                a warning if only CONFIG_KALLSYMS_ALL is not, without which a kernel counts as \
                not tried",
        reads: "/boot/config-RELEASE, /proc/config.gz, /lib/modules/RELEASE/{config,build/.config}",
        worst: Severity::Error,
        cost: "the module cannot be built or loaded; without CONFIG_KALLSYMS_ALL alone it wants untested=1",
        mend: "a kernel built with the options; where only KSM is there, `uksm run --backend ksm`",
        judge: options,
    },
    Check {
        name: "kernel-symbols",
        finds: "a function that the module looks up is not in the kernel",
        reads: "/proc/kallsyms",
        worst: Severity::Error,
        cost: "the module does not load: it looks these functions up by name",
        mend: "a kernel that has them",
        judge: symbols,
    },
    Check {
        name: "lockdown",
        finds: "the kernel is locked down for confidentiality",
        reads: "/sys/kernel/security/lockdown",
        worst: Severity::Warning,
        cost: "in this mode the kernel can refuse the programs that report I/O and moves between \
               control groups: memory that was just read is found later",
        mend: "boot with lockdown=integrity, which suffices for secure boot",
        judge: lockdown,
    },
    Check {
        name: "signature",
        finds: "the kernel wants modules to be signed, and uksm.ko is not; a note if that cannot \
                be determined, or the key must be enrolled",
        reads: "variable SecureBoot of EFI, /sys/module/module/parameters/sig_enforce, uksm.ko",
        worst: Severity::Error,
        cost: "the kernel refuses a module that is not signed with a key that it trusts",
        mend: "let DKMS sign it, and enroll its key",
        judge: signature,
    },
    Check {
        name: "btf",
        finds: "the kernel has no description of its types (BTF); a note if hints are off",
        reads: "/sys/kernel/btf/vmlinux",
        worst: Severity::Warning,
        cost: "no hints of I/O, so that memory that was just read is found later; moves between control groups are noticed within seconds to minutes, not at once",
        mend: "a kernel with CONFIG_DEBUG_INFO_BTF",
        judge: btf,
    },
    Check {
        name: "pressure",
        finds: "the kernel does not report tasks that wait for memory (PSI)",
        reads: "/proc/pressure/memory",
        worst: Severity::Note,
        cost: "only available memory decides when members get and give back freed memory: \
               pressure_hold and pressure_take do nothing",
        mend: "boot with psi=1, where the kernel has CONFIG_PSI",
        judge: pressure,
    },
    Check {
        name: "process-events",
        finds: "the kernel does not report new processes",
        reads: "/boot/config-RELEASE, /proc/config.gz, /lib/modules/RELEASE/{config,build/.config}",
        worst: Severity::Note,
        cost: "new processes are found by listing /proc, late on a host with thousands of them",
        mend: "a kernel with CONFIG_PROC_EVENTS",
        judge: process_events,
    },
];

/// Bytes of attributes before a variable's value.
const ATTRIBUTES: usize = 4;

fn architecture(host: &Host) -> Verdict {
    match &host.kernel.architecture {
        FileContent::There(text) if text.trim() == "x86_64" => Verdict::ok("x86-64"),
        FileContent::There(text) => Verdict::error(format!("this is {}, not x86-64", text.trim())),
        FileContent::Absent if std::env::consts::ARCH == "x86_64" => Verdict::ok("x86-64"),
        FileContent::Absent => Verdict::error("this program was not built for x86-64"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn version(host: &Host) -> Verdict {
    let release = match &host.kernel.release {
        FileContent::There(release) => release,
        FileContent::Absent => return Verdict::unknown("/proc/sys/kernel/osrelease is not there"),
        FileContent::Unread(why) => return Verdict::unknown(why),
    };
    let loaded = host.module.is_loaded;
    let unfit = |what: String| Verdict::load_obstacle(loaded, what);
    let state = host.vendor.distribution.state().map(str::to_owned);
    let tried = format!("tried: {}", tried_in_words());
    let known = state.into_iter().chain([tried]).collect();
    if is_too_old(release) {
        let what = format!("{release} is older than all kernels for which the module builds");
        return unfit(what).about(known);
    }
    let untested = host.module.untested.text() == "Y";
    match untried_kernel(host) {
        Err(why) => Verdict::unknown(why),
        Ok(None) if untested => {
            Verdict::note("untested=1 is set without need: uksm was tried on this kernel")
                .mend("grep -r untested /etc/modprobe.d")
        }
        Ok(None) => Verdict::ok(release),
        Ok(Some(kernel)) => {
            let consequence = match (loaded, untested) {
                (true, true) => "untested=1 loaded the module all the same",
                (true, false) => "a module is loaded all the same",
                (false, _) => "the module refuses this kernel",
            };
            unfit(format!("uksm was not tried on {kernel}: {consequence}")).about(known)
        }
    }
}

fn ksm(host: &Host) -> Verdict {
    match &host.kernel.ksm {
        FileContent::There(_) => Verdict::ok("the kernel has KSM"),
        FileContent::Absent => Verdict::error("the kernel was built without CONFIG_KSM"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn options(host: &Host) -> Verdict {
    let kernel = &host.kernel;
    if let FileContent::Unread(why) = &kernel.config {
        return Verdict::unknown(why);
    }
    if kernel.config.there().is_none() {
        return Verdict::unknown("no file has the kernel's options");
    }
    let wrong = wrong_options(host);
    match (wrong.is_empty(), kernel.has(TRIED_WITH) == Some(true)) {
        (true, true) => Verdict::ok("the kernel has the options that the module needs"),
        (true, false) => Verdict::warning(format!(
            "{TRIED_WITH} is not set, and uksm was tried with it only (kernel-version)"
        )),
        (false, _) => {
            Verdict::error("the kernel was not built as the module needs it").about(wrong)
        }
    }
}

fn symbols(host: &Host) -> Verdict {
    let found = match &host.kernel.symbols {
        FileContent::There(found) => found,
        FileContent::Absent => {
            return Verdict::error("the kernel has no list of its symbols (CONFIG_KALLSYMS)");
        }
        FileContent::Unread(why) => return Verdict::unknown(why),
    };
    if found.is_empty() {
        return Verdict::unknown("/proc/kallsyms shows nothing to this user");
    }
    let missing: Vec<String> = SYMBOLS
        .iter()
        .filter(|names| !names.iter().any(|name| found.contains(*name)))
        .map(|names| names.join(" or "))
        .collect();
    match missing.is_empty() {
        true => Verdict::ok("the kernel has the functions that the module looks up"),
        false => Verdict::error("the kernel lacks functions that the module calls").about(missing),
    }
}

fn lockdown(host: &Host) -> Verdict {
    match &host.kernel.lockdown {
        FileContent::There(text) => match chosen(text) {
            Some("confidentiality") => {
                Verdict::warning("the kernel is locked down for confidentiality")
            }
            Some(mode) => Verdict::ok(format!("the kernel's lockdown is: {mode}")),
            None => Verdict::unknown(format!(
                "/sys/kernel/security/lockdown says {}",
                text.trim()
            )),
        },
        FileContent::Absent => {
            Verdict::ok("the kernel has no lockdown, or securityfs is not mounted")
        }
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn signature(host: &Host) -> Verdict {
    let kernel = &host.kernel;
    let secure = match &kernel.secure_boot {
        FileContent::There(bytes) => bytes.get(ATTRIBUTES) == Some(&1),
        FileContent::Absent => false,
        FileContent::Unread(why) => return Verdict::unknown(why),
    };
    if !wants_signatures(host) {
        return Verdict::ok(match secure {
            true => "secure boot is on, and this kernel loads modules without a signature",
            false => "the kernel loads modules without a signature",
        });
    }
    let key = host.vendor.distribution.signing_key();
    let enrol = |verdict: Verdict| {
        verdict
            .mend(format!("mokutil --import {key}"))
            .mend("reboot   # and confirm the key on the console before the system starts")
    };
    if host.module.is_loaded {
        return Verdict::ok("the kernel wants signatures, and has loaded the module");
    }
    if let Prospect::Impossible(_) = Prospect::of(host) {
        return Verdict::not_applicable("there can be no module on this kernel");
    }
    let release = host.kernel.release.text();
    match host.module.file.as_ref().map(|file| file.is_signed) {
        Some(Some(false)) => {
            let verdict =
                Verdict::error("the kernel wants signatures, and the installed module has none");
            match needs_of_build(host) {
                None => verdict,
                Some(needs) => enrol(verdict.mend_all(needs).mend(format!(
                    "dkms remove uksm/0.1.0 -k {release} && dkms install uksm/0.1.0 -k {release}"
                ))),
            }
        }
        Some(Some(true)) => enrol(Verdict::note(
            "the kernel wants signatures: the module has one, whose key must be enrolled",
        )),
        Some(None) | None => enrol(Verdict::note(
            "the kernel wants signatures: the key of the module's signature must be enrolled",
        )),
    }
}

fn btf(host: &Host) -> Verdict {
    match (host.kernel.btf, host.configuration.wants_hints()) {
        (true, _) => Verdict::ok("the kernel has a description of its types (BTF)"),
        (false, true) => Verdict::warning("the kernel has no description of its types (BTF)"),
        (false, false) => Verdict::note(
            "the kernel has no description of its types (BTF); hints are turned off anyway",
        ),
    }
}

fn pressure(host: &Host) -> Verdict {
    match &host.kernel.pressure {
        FileContent::There(_) => Verdict::ok("the kernel reports tasks that wait for memory"),
        FileContent::Absent => {
            Verdict::note("the kernel does not report tasks that wait for memory (PSI)")
        }
        // If PSI is compiled in and turned off, the file answers EOPNOTSUPP.
        FileContent::Unread(why) if why.contains("not supported") => {
            Verdict::note("the report of tasks that wait for memory is turned off (PSI)")
        }
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn process_events(host: &Host) -> Verdict {
    match host.kernel.has("CONFIG_PROC_EVENTS") {
        Some(true) => Verdict::ok("the kernel reports new processes"),
        Some(false) => Verdict::note("the kernel does not report new processes"),
        None => Verdict::unknown("the kernel's options cannot be read"),
    }
}
