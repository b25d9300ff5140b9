//! Whether the module can be built for the running kernel, and loaded into it.
//!
//! # Problem
//! Several checks recommend to build or load the module. None of them may recommend a command that
//! DKMS, the kernel or the module itself refuses.
//!
//! # Approach
//! All of them ask here. Unknown facts are no obstacle.
//!
//! # Source
//! `kernel/dkms.conf` for what DKMS refuses, `kernel/running_kernel.c` for what the module refuses.

use uksm_linux::module::tried_kernels::{FIRST_SERIES, KernelName};

use super::host::Host;
use super::probe::FileContent;

/// Options without which the module is not built, or not loaded.
const NEEDED: [&str; 4] = [
    "CONFIG_MODULES",
    "CONFIG_KSM",
    "CONFIG_KPROBES",
    "CONFIG_KALLSYMS",
];

/// Option with which the module is not built.
const REFUSED: &str = "CONFIG_NO_PAGE_MAPCOUNT";

/// Option that every tried kernel has. Without it the kernel lists functions only, which are all
/// that the module looks up.
pub(in crate::doctor) const TRIED_WITH: &str = "CONFIG_KALLSYMS_ALL";

/// What becomes of the module on the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) enum Prospect {
    /// The kernel's name cannot be read.
    Unknown(String),
    /// The installed module is damaged, or of another kernel, or of another build of this one: it
    /// must be built again first.
    Misbuilt,
    /// The tests passed on kernels like this.
    Tried,
    /// The module refuses the kernel, unless it is loaded with `untested=1`: the kernel, and what
    /// it differs in.
    Untried(String),
    /// The module cannot be built: the reason.
    Impossible(String),
}

impl Prospect {
    /// The prospect of the module on a host.
    pub(in crate::doctor) fn of(host: &Host) -> Prospect {
        // Where one is loaded, one could be built.
        if !host.module.is_loaded {
            if let Some(reason) = build_obstacle(host) {
                return Prospect::Impossible(reason);
            }
            if is_damaged(host) || misfit(host).is_some() {
                return Prospect::Misbuilt;
            }
        }
        match untried_kernel(host) {
            Err(why) => Prospect::Unknown(why),
            Ok(None) => Prospect::Tried,
            Ok(Some(kernel)) => Prospect::Untried(kernel),
        }
    }

    /// Whether the module refuses the kernel, or there can be none for it.
    pub(in crate::doctor) const fn is_refused(&self) -> bool {
        matches!(self, Prospect::Untried(_) | Prospect::Impossible(_))
    }

    /// The command that loads the module; none if there is none that can be loaded.
    pub(in crate::doctor) const fn load_command(&self) -> Option<&'static str> {
        match self {
            Prospect::Unknown(_) | Prospect::Tried => Some("modprobe uksm"),
            Prospect::Untried(_) => Some("modprobe uksm untested=1"),
            Prospect::Misbuilt | Prospect::Impossible(_) => None,
        }
    }
}

/// Whether the file of the installed module is no module, as a full disk leaves it.
pub(in crate::doctor) fn is_damaged(host: &Host) -> bool {
    host.module
        .file
        .as_ref()
        .is_some_and(|file| file.is_damaged)
}

/// Whether the kernel loads only modules with a signature.
pub(in crate::doctor) fn wants_signatures(host: &Host) -> bool {
    let kernel = &host.kernel;
    let locked = chosen(kernel.lockdown.text()).is_some_and(|mode| mode != "none");
    locked || kernel.enforced.text() == "Y"
}

/// Whether the kernel refuses the installed module because it has no signature.
pub(in crate::doctor) fn is_unsigned(host: &Host) -> bool {
    let file = host.module.file.as_ref();
    wants_signatures(host) && file.and_then(|file| file.is_signed) == Some(false)
}

/// The name in brackets in `none [integrity] confidentiality`.
pub(in crate::doctor) fn chosen(text: &str) -> Option<&str> {
    let (_, from) = text.split_once('[')?;
    Some(from.split_once(']')?.0)
}

/// A kernel that is not the running one.
pub(in crate::doctor) enum Misfit<'a> {
    /// Its release.
    OtherKernel(&'a str),
    /// The version of another build with the release of the running kernel.
    OtherBuild(&'a str),
}

/// The kernel that the installed module was built for, if it is not the running one.
pub(in crate::doctor) fn misfit(host: &Host) -> Option<Misfit<'_>> {
    let file = host.module.file.as_ref()?;
    let (release, version) = (
        host.kernel.release.text(),
        host.vendor.kernel_version.text(),
    );
    if let Some(built) = file.kernel.as_deref().filter(|built| *built != release) {
        return Some(Misfit::OtherKernel(built));
    }
    let build = file.kernel_build.as_deref();
    let other = build.filter(|build| !version.is_empty() && *build != version);
    other.map(Misfit::OtherBuild)
}

/// The commands that install what a build of the module needs and the host lacks. None if it cannot
/// be built, or no package is known to have the headers.
pub(in crate::doctor) fn needs_of_build(host: &Host) -> Option<Vec<String>> {
    let module = &host.module;
    if let Prospect::Impossible(_) = Prospect::of(host) {
        return None;
    }
    let mut commands = Vec::new();
    let distribution = host.vendor.distribution;
    if !module.has_dkms {
        commands.extend(distribution.dkms().map(str::to_owned));
    }
    if !module.has_headers {
        let release = host.kernel.release.there()?;
        commands.push(distribution.headers(release, vendor(host))?);
    }
    if !module.has_sources {
        // From a clone of the sources.
        commands.push("make -C kernel dkms-source DESTDIR=/usr/src".to_owned());
    }
    Some(commands)
}

/// The running kernel and its difference from all that were tried; none if it is like one of them.
///
/// # Errors
/// The kernel's name cannot be read.
pub(in crate::doctor) fn untried_kernel(host: &Host) -> Result<Option<String>, String> {
    let names = [&host.kernel.release, &host.vendor.kernel_version];
    for name in names {
        if let FileContent::Unread(why) = name {
            return Err(why.clone());
        }
    }
    let [release, version] = names.map(FileContent::text);
    if release.is_empty() || version.is_empty() {
        return Err("/proc/sys/kernel does not name the kernel".to_owned());
    }
    let vendor = vendor(host);
    let difference = match host.kernel.has(TRIED_WITH) {
        Some(false) => format!("built without {TRIED_WITH}"),
        _ if (KernelName { release, version }).is_tried(vendor) => return Ok(None),
        _ => vendor.unwrap_or("unknown vendor").to_owned(),
    };
    Ok(Some(format!("{release} ({difference})")))
}

/// The vendor of the running kernel, in the order of `kernel/running_kernel.c`.
pub(in crate::doctor) fn vendor(host: &Host) -> Option<&'static str> {
    let name = KernelName {
        release: host.kernel.release.text(),
        version: host.vendor.kernel_version.text(),
    };
    name.vendor(|option| host.kernel.has(option) == Some(true))
        .or(host.kernel.is_red_hat_source.then_some("Red Hat"))
}

/// Options that are not as the module needs them.
pub(in crate::doctor) fn wrong_options(host: &Host) -> Vec<String> {
    let kernel = &host.kernel;
    let missing = NEEDED
        .into_iter()
        .filter(|option| kernel.has(option) == Some(false));
    let missing = missing.map(|option| format!("{option} is not set"));
    let refused = (kernel.has(REFUSED) == Some(true)).then(|| format!("{REFUSED} is set"));
    missing.chain(refused).collect()
}

/// Whether the kernel is older than all for which the module builds.
pub(in crate::doctor) fn is_too_old(release: &str) -> bool {
    let name = KernelName {
        release,
        version: "",
    };
    name.series().is_some_and(|series| series < FIRST_SERIES)
}

/// Why no module can be built for the running kernel.
fn build_obstacle(host: &Host) -> Option<String> {
    let (major, minor) = FIRST_SERIES;
    let kernel = &host.kernel;
    let wrong = wrong_options(host);
    if matches!(&kernel.architecture, FileContent::There(text) if text.trim() != "x86_64") {
        return Some("the module is for x86-64".to_owned());
    }
    if is_too_old(kernel.release.text()) {
        return Some(format!(
            "the module builds for kernels from {major}.{minor} on"
        ));
    }
    if !wrong.is_empty() {
        return Some(wrong.join(", "));
    }
    if kernel.ksm == FileContent::Absent {
        return Some("the kernel has no KSM".to_owned());
    }
    // An image can have the module.
    let is_built = host.module.file.is_some() && misfit(host).is_none();
    let obstacle = host.vendor.distribution.build_obstacle();
    obstacle.filter(|_| !is_built).map(str::to_owned)
}
