//! The module: whether it is loaded, whether it is the one that is installed, and whether it speaks with this program.
//!
//! # Approach
//! What a module says of itself is in the section `.modinfo` of its file. A file that is compressed is not looked into.
//! The device is opened and closed again by the same code as `uksm run` has, which makes a domain for that moment.
//!
//! # Source
//! modinfo(8); `kernel/dkms.conf` for where DKMS puts the file.

use std::path::Path;

use object::{Object as _, ObjectSection as _};
use uksm_linux::module;

use super::reading::{Root, Seen};
use super::{Check, Host, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "module-loaded",
        finds: "the module is not loaded",
        reads: "/sys/module/uksm",
        worst: Severity::Error,
        cost: "without the module nothing is merged",
        mend: "modprobe uksm; `dmesg` says why if that fails; where it cannot be loaded, `uksm run --backend ksm` drives in-kernel KSM instead (docs/ksm-backend.md)",
        judge: loaded,
    },
    Check {
        name: "module-installed",
        finds: "there is no uksm.ko for this kernel; a warning if one is loaded",
        reads: "/lib/modules/RELEASE/{updates/dkms,updates,extra,kernel/extra}/uksm.ko, modules.dep",
        worst: Severity::Error,
        cost: "the module cannot be loaded by name: not now, or not after the next start of the host",
        mend: "dkms install",
        judge: installed,
    },
    Check {
        name: "module-current",
        finds: "uksm.ko was built for another kernel; a warning if another one than that file is loaded",
        reads: "uksm.ko, /sys/module/uksm/srcversion",
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
        cost: "after the next start of the host somebody must load the module by hand",
        mend: "echo uksm > /etc/modules-load.d/uksm.conf",
        judge: at_start,
    },
    Check {
        name: "headers",
        finds: "the kernel's headers are not there; a note if the module is built already",
        reads: "/lib/modules/RELEASE/build/Makefile",
        worst: Severity::Error,
        cost: "DKMS cannot build the module for this kernel",
        mend: "install the headers of the running kernel",
        judge: headers,
    },
    Check {
        name: "device",
        finds: "the device is not there, is another's, or speaks another version of the interface",
        reads: "/dev/uksm, or what `device` is set to; opens it",
        worst: Severity::Error,
        cost: "the daemon drives the module by this device, and speaks one version of its interface",
        mend: "load the module again, or update module and program together",
        judge: device,
    },
];

/// Where a module of its own may lie below `/lib/modules/RELEASE`.
const FOLDERS: [&str; 4] = ["updates/dkms", "updates", "extra", "kernel/extra"];
/// How its file may be called.
const FILES: [&str; 4] = ["uksm.ko", "uksm.ko.xz", "uksm.ko.zst", "uksm.ko.gz"];
/// Longest file that is looked into, in bytes: with debug information a module has some ten MiB.
const LONGEST: u64 = 64 << 20;
/// What the kernel looks for at the end of a module.
const SIGNED: &[u8] = b"~Module signature appended~\n";

/// What was read of the module.
pub(super) struct ModuleState {
    pub(super) is_loaded: bool,
    version: Seen<String>,
    sources: Seen<String>,
    pub(super) file: Option<ModuleFile>,
    has_headers: bool,
    has_sources: bool,
    loads_at_start: bool,
    /// Whether the module may map frames.
    pub(super) opened: module::Result<bool>,
}

/// The module's file.
pub(super) struct ModuleFile {
    /// Its path on the host.
    name: String,
    /// None if it cannot be looked into.
    pub(super) is_signed: Option<bool>,
    /// The kernel that it was built for.
    kernel: Option<String>,
    /// A sum of its sources.
    sources: Option<String>,
}

impl ModuleState {
    /// Reads it, for the kernel of this release; the device was opened already.
    pub(super) fn read(
        root: &Root,
        release: Option<&String>,
        opened: module::Result<bool>,
    ) -> ModuleState {
        let of_kernel = |path: &str| format!("lib/modules/{}/{path}", release.map_or("", |r| r));
        let places = FOLDERS
            .iter()
            .flat_map(|folder| FILES.iter().map(move |file| format!("{folder}/{file}")));
        let file = places
            .chain(known_to_depmod(root, &of_kernel("modules.dep")))
            .map(|place| of_kernel(&place))
            .find(|place| root.has(place));
        let lists = root.list("etc/modules-load.d").into_iter();
        let mut lists = lists.filter(|path| path.extension().is_some_and(|ext| ext == "conf"));
        let names_it = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.lines().any(|line| line.trim() == "uksm")
        };
        ModuleState {
            is_loaded: root.has("sys/module/uksm"),
            version: root.text("sys/module/uksm/version"),
            sources: root.text("sys/module/uksm/srcversion"),
            file: file.map(|place| ModuleFile::read(root, &place)),
            has_headers: root.has(&of_kernel("build/Makefile")),
            has_sources: root.list("usr/src").iter().any(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("uksm-") && path.join("dkms.conf").exists()
            }),
            loads_at_start: lists.any(|path| names_it(&path)),
            opened,
        }
    }
}

impl ModuleFile {
    fn read(root: &Root, place: &str) -> ModuleFile {
        let bytes = match root.first_bytes(place, LONGEST) {
            Seen::There(bytes) => bytes,
            Seen::Absent | Seen::Unread(_) => Vec::new(),
        };
        let told = modinfo(&bytes);
        let of = |key: &str| {
            let told = told.as_ref()?.iter();
            let mut values = told.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.next().map(str::to_owned)
        };
        ModuleFile {
            name: format!("/{place}"),
            is_signed: told.as_ref().map(|_| bytes.ends_with(SIGNED)),
            kernel: of("vermagic").and_then(|text| Some(text.split(' ').next()?.to_owned())),
            sources: of("srcversion"),
        }
    }
}

/// Where else below `/lib/modules/RELEASE` modprobe would find it.
fn known_to_depmod(root: &Root, list: &str) -> Option<String> {
    let list = root.text(list);
    let mut places = list
        .there()?
        .lines()
        .filter_map(|line| line.split(':').next());
    let place = places.find(|place| {
        let name = place.rsplit('/').next().unwrap_or(place);
        FILES.contains(&name)
    });
    place.map(str::to_owned)
}

/// What a module says of itself: `key=value` each. None of what is no module.
fn modinfo(bytes: &[u8]) -> Option<Vec<String>> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".modinfo")?.data().ok()?;
    let lines = section
        .split(|&byte| byte == 0)
        .filter(|line| !line.is_empty());
    Some(
        lines
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect(),
    )
}

const INSTALL: &str = "dkms install uksm/0.1.0";

fn loaded(host: &Host) -> Verdict {
    let module = &host.module;
    match (module.is_loaded, &module.file) {
        (true, _) => match module.version.text() {
            "" => Verdict::ok("the module is loaded"),
            version => Verdict::ok(format!("the module is loaded, version {version}")),
        },
        (false, Some(_)) => Verdict::error("the module is not loaded").mend("modprobe uksm"),
        (false, None) => {
            Verdict::error("the module is not loaded").mend(format!("{INSTALL} && modprobe uksm"))
        }
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
    let verdict = match module.is_loaded {
        true => Verdict::warning(format!("{what}, though one is loaded")),
        false => Verdict::error(what),
    };
    match module.has_sources {
        true => verdict.mend(INSTALL),
        // From a clone of the sources.
        false => verdict
            .mend("make -C kernel dkms-source DESTDIR=/usr/src")
            .mend(INSTALL),
    }
}

fn current(host: &Host) -> Verdict {
    let Some(file) = &host.module.file else {
        return Verdict::ok("no module is installed that could be of another kernel");
    };
    if file.is_signed.is_none() {
        return Verdict::unknown(format!("{} is compressed, or cannot be read", file.name));
    }
    let (built, release) = (file.kernel.as_deref(), host.kernel.release.text());
    if let Some(built) = built.filter(|built| *built != release) {
        let what = format!(
            "{} was built for kernel {built}, and this is {release}",
            file.name
        );
        let verdict = match host.module.is_loaded {
            true => Verdict::warning(what),
            false => Verdict::error(what),
        };
        return verdict
            .mend(format!("dkms build --force uksm/0.1.0 -k {release}"))
            .mend(format!("dkms install --force uksm/0.1.0 -k {release}"));
    }
    let loaded = host.module.sources.text();
    match file.sources.as_deref() {
        Some(sources) if !loaded.is_empty() && sources != loaded => {
            Verdict::warning("the module that is loaded is not the one that is installed")
                .mend("systemctl stop uksm && rmmod uksm && modprobe uksm")
                .mend("systemctl start uksm")
        }
        _ => Verdict::ok("the installed module is of this kernel"),
    }
}

fn at_start(host: &Host) -> Verdict {
    match (host.module.loads_at_start, host.configuration.is_enabled) {
        (true, _) => Verdict::ok("the module is loaded at the start of the host"),
        (false, true) => Verdict::ok("the service loads the module"),
        (false, false) => Verdict::note("nothing loads the module at the start of the host")
            .mend("echo uksm > /etc/modules-load.d/uksm.conf"),
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
    let what = format!("the headers of kernel {release} are not there");
    let verdict = match (module.is_loaded, &module.file) {
        (false, None) => Verdict::error(what),
        // It is built.
        _ => Verdict::note(what),
    };
    verdict.mend(format!("apt install linux-headers-{release}"))
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
        .mend("rmmod uksm && modprobe uksm"),
        Err(error @ (Error::Version { .. } | Error::NotDevice { .. })) => {
            Verdict::error(error.to_string())
                .mend("dkms install --force uksm/0.1.0")
                .mend("systemctl stop uksm && rmmod uksm && modprobe uksm")
        }
        Err(error) => Verdict::error(error.to_string()),
    }
}
