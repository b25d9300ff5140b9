//! The module: whether it is loaded, whether it is the installed one, and whether its interface
//! matches this program.
//!
//! # Approach
//! The properties of a module are in the section `.modinfo` of its file. No check recommends to
//! build or to load a module that cannot be built, or that refuses this kernel (`prospect.rs`). The
//! device is opened and closed again by the code of `uksm run`, which makes a domain for that
//! moment.
//!
//! # Source
//! modinfo(8); `kernel/dkms.conf` for where DKMS puts the file.

use uksm_linux::module;

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::module_state::ModuleFile;
use crate::doctor::probe::FileContent;
use crate::doctor::prospect::{
    Misfit, Prospect, is_damaged, is_unsigned, misfit, needs_of_build, untried_kernel, vendor,
};

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "module-loaded",
        finds: "the module is not loaded",
        reads: "/sys/module/uksm",
        worst: Severity::Error,
        cost: "without the module nothing is merged",
        mend: "load it where it can be built; `dmesg` has the reason if that fails. Elsewhere `uksm run --backend ksm` drives in-kernel KSM (docs/ksm-backend.md)",
        judge: loaded,
    },
    Check {
        name: "module-installed",
        finds: "there is no uksm.ko for this kernel; a warning if one is loaded",
        reads: "/lib/modules/RELEASE/{updates/dkms,updates,extra,kernel/extra}/uksm.ko, modules.dep",
        worst: Severity::Error,
        cost: "`modprobe uksm` finds no file, at once or after the next start of the host",
        mend: "build it with DKMS, where that is possible; else `uksm run --backend ksm`",
        judge: installed,
    },
    Check {
        name: "module-current",
        finds: "uksm.ko was built for another kernel, or for another build of this one, or is \
                damaged; a warning if another one than that file is loaded",
        reads: "uksm.ko, /proc/sys/kernel/version, /sys/module/uksm/srcversion",
        worst: Severity::Error,
        cost: "a module of another kernel does not load; one that was updated is used from the next load on only",
        mend: "build it again, or load it again: merged pages stay merged meanwhile",
        judge: current,
    },
    Check {
        name: "module-at-start",
        finds: "neither a file of modules to load nor an enabled service names the module",
        reads: "/etc/modules-load.d, /etc/systemd/system/*.wants/uksm.service",
        worst: Severity::Note,
        cost: "after the next start of the host the module must be loaded by hand",
        mend: "name it in a file of /etc/modules-load.d, or enable the service",
        judge: at_start,
    },
    Check {
        name: "headers",
        finds: "the kernel's headers are not there; a note if the module is built already",
        reads: "/lib/modules/RELEASE/build/Makefile",
        worst: Severity::Error,
        cost: "DKMS cannot build the module for this kernel",
        mend: "install the headers of the running kernel, where the module can be built",
        judge: headers,
    },
    Check {
        name: "device",
        finds: "the device does not exist, is not uksm's, or speaks another version of the \
                interface",
        reads: "/dev/uksm, or what `device` is set to; opens it",
        worst: Severity::Error,
        cost: "the daemon drives the module by this device, and speaks one version of its interface",
        mend: "load the module again, or update module and program together",
        judge: device,
    },
];

const INSTALL: &str = "dkms install uksm/0.1.0";

/// Loads a module that was loaded before.
fn load(host: &Host) -> &'static str {
    Prospect::of(host).load_command().unwrap_or("modprobe uksm")
}

fn loaded(host: &Host) -> Verdict {
    let module = &host.module;
    match (module.is_loaded, module.version.text()) {
        (false, _) => not_loaded(host),
        (true, "") => Verdict::ok("the module is loaded"),
        (true, version) => Verdict::ok(format!("the module is loaded, version {version}")),
    }
}

fn not_loaded(host: &Host) -> Verdict {
    if let Prospect::Impossible(reason) = Prospect::of(host) {
        let what = format!("the module is not loaded, and cannot be built: {reason}");
        return without_module(host, Verdict::error(what));
    }
    if is_unsigned(host) {
        return Verdict::error(
            "the module is not loaded, and the kernel refuses the installed one (signature)",
        );
    }
    let build = build_commands(host);
    if let Ok(Some(_)) = untried_kernel(host) {
        let when = match &build {
            Some(commands) if commands.is_empty() => "",
            _ => " when it is built,",
        };
        let what = format!(
            "the module is not loaded;{when} `modprobe uksm untested=1` loads it into this \
             kernel, at your own risk"
        );
        return without_module(host, Verdict::error(what));
    }
    let verdict = Verdict::error("the module is not loaded");
    match build {
        Some(commands) => verdict.mend_all(commands).mend("modprobe uksm"),
        None => verdict,
    }
}

/// The commands that build the module for this kernel; empty if one is installed that fits. None
/// if it cannot be built, or no package is known to have the headers.
fn build_commands(host: &Host) -> Option<Vec<String>> {
    let release = host.kernel.release.text();
    let again = || {
        vec![
            format!("dkms build --force uksm/0.1.0 -k {release}"),
            format!("dkms install --force uksm/0.1.0 -k {release}"),
        ]
    };
    let build = match (&host.module.file, misfit(host)) {
        (None, _) => vec![INSTALL.to_owned()],
        (Some(_), None) if is_damaged(host) => again(),
        (Some(_), None) => return Some(Vec::new()),
        (Some(_), Some(Misfit::OtherKernel(_))) => again(),
        (Some(_), Some(Misfit::OtherBuild(_))) => vec![
            format!("dkms remove uksm/0.1.0 -k {release}"),
            format!("dkms install uksm/0.1.0 -k {release}"),
        ],
    };
    Some([needs_of_build(host)?, build].concat())
}

/// Adds the command that needs no module, where the kernel has KSM.
fn without_module(host: &Host, verdict: Verdict) -> Verdict {
    match &host.kernel.ksm {
        FileContent::Absent => verdict,
        _ => verdict.mend("uksm run --backend ksm --comm NAME"),
    }
}

fn installed(host: &Host) -> Verdict {
    let module = &host.module;
    let Some(release) = host.kernel.release.there() else {
        return Verdict::unknown("the kernel's release cannot be read");
    };
    if let Some(file) = &module.file {
        return Verdict::ok(format!("{} is there", file.name));
    }
    let what = format!("there is no uksm.ko for kernel {release}");
    if let Prospect::Impossible(reason) = Prospect::of(host) {
        let what = format!("{what}, and none can be built: {reason}");
        return without_module(host, Verdict::error(what));
    }
    let verdict = match module.is_loaded {
        true => Verdict::warning(format!("{what}, though one is loaded")),
        false => Verdict::error(what),
    };
    verdict.mend_all(build_commands(host).unwrap_or_default())
}

fn current(host: &Host) -> Verdict {
    let Some(file) = &host.module.file else {
        return Verdict::not_applicable("no module is installed");
    };
    if let Some(why) = &file.unread {
        return Verdict::unknown(why);
    }
    let release = host.kernel.release.text();
    let what = match misfit(host) {
        None if file.is_damaged => format!("{} is no module: its file is damaged", file.name),
        None => return same_as_loaded(host, file),
        Some(Misfit::OtherKernel(built)) => {
            format!(
                "{} was built for kernel {built}, and this is {release}",
                file.name
            )
        }
        Some(Misfit::OtherBuild(build)) => format!(
            "{} was built for {release} {build}, and this is {}: two builds of one name. \
             If the headers are of the newer one, start the host again before it is built again",
            file.name,
            host.vendor.kernel_version.text()
        ),
    };
    Verdict::load_obstacle(host.module.is_loaded, what)
        .mend_all(build_commands(host).unwrap_or_default())
}

fn same_as_loaded(host: &Host, file: &ModuleFile) -> Verdict {
    let loaded = host.module.sources.text();
    match file.sources.as_deref() {
        Some(sources) if !loaded.is_empty() && sources != loaded => {
            Verdict::warning("the module that is loaded is not the one that is installed")
                .mend(format!(
                    "systemctl stop uksm && rmmod uksm && {}",
                    load(host)
                ))
                .mend("systemctl start uksm")
        }
        _ => Verdict::ok("the installed module is of this kernel"),
    }
}

fn at_start(host: &Host) -> Verdict {
    match (host.module.loads_at_start, host.configuration.is_enabled) {
        (true, _) => Verdict::ok("the module is loaded at the start of the host"),
        (false, true) => Verdict::ok("the service loads the module"),
        (false, false) => not_at_start(&Prospect::of(host)),
    }
}

fn not_at_start(prospect: &Prospect) -> Verdict {
    let verdict = Verdict::note("nothing loads the module at the start of the host");
    match prospect {
        Prospect::Impossible(_) => Verdict::not_applicable("there can be no module on this kernel"),
        // A file with untested=1 would hold for each later kernel, too.
        Prospect::Untried(_) => Verdict::ok(
            "nothing loads the module at the start of the host, which is right for a kernel on which it was not tried",
        ),
        Prospect::Misbuilt => Verdict::note(
            "nothing loads the module at the start of the host, and the installed one must be built again first (module-current)",
        ),
        Prospect::Tried | Prospect::Unknown(_) => {
            verdict.mend("echo uksm > /etc/modules-load.d/uksm.conf")
        }
    }
}

fn headers(host: &Host) -> Verdict {
    let module = &host.module;
    let Some(release) = host.kernel.release.there() else {
        return Verdict::unknown("the kernel's release cannot be read");
    };
    if module.has_headers {
        return Verdict::ok("the headers of this kernel are there");
    }
    if let Prospect::Impossible(_) = Prospect::of(host) {
        return Verdict::not_applicable("no module can be built for this kernel");
    }
    let package = host.vendor.distribution.headers(release, vendor(host));
    let source = match package {
        Some(_) => "",
        None => ", and no package is known to have them: they come with the kernel's build",
    };
    let what = format!("the headers of kernel {release} are not there{source}");
    let verdict = match (module.is_loaded, &module.file) {
        (false, None) => Verdict::error(what),
        // The module was built already.
        _ => Verdict::note(what),
    };
    match package {
        Some(command) => verdict.mend(command),
        None => verdict,
    }
}

fn device(host: &Host) -> Verdict {
    use module::Error;
    match &host.module.opened {
        Ok(_) => Verdict::ok("the device opens, and module and program speak one version"),
        Err(error @ Error::Open { .. }) if !host.rights.may_open() => {
            Verdict::unknown(error.to_string())
        }
        Err(Error::Missing { .. }) if !host.module.is_loaded => {
            Verdict::unknown("the module is not loaded")
        }
        Err(Error::Missing { path }) => Verdict::error(format!(
            "{} is not there, though the module is loaded",
            path.display()
        ))
        .mend(format!("rmmod uksm && {}", load(host))),
        Err(error @ (Error::Version { .. } | Error::NotDevice { .. })) => {
            let verdict = Verdict::error(error.to_string());
            match needs_of_build(host) {
                None => verdict,
                Some(needs) => verdict
                    .mend_all(needs)
                    .mend("dkms install --force uksm/0.1.0")
                    .mend(format!(
                        "systemctl stop uksm && rmmod uksm && {}",
                        load(host)
                    )),
            }
        }
        Err(error) => Verdict::error(error.to_string()),
    }
}
