//! The module: whether it is loaded, and its files.

use std::path::Path;

use object::{Object as _, ObjectSection as _};
use uksm_linux::module;

use crate::doctor::probe::{FileContent, Root};

/// Folders below `/lib/modules/RELEASE` where the module may be.
const FOLDERS: [&str; 4] = ["updates/dkms", "updates", "extra", "kernel/extra"];

/// Possible names of its file.
const FILES: [&str; 4] = ["uksm.ko", "uksm.ko.xz", "uksm.ko.zst", "uksm.ko.gz"];

/// Maximum length of a file that is read, in bytes, unpacked: with debug information a module has
/// some ten MiB.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The mark at the end of a signed module.
const SIGNED: &[u8] = b"~Module signature appended~\n";

/// The state of the module.
pub(in crate::doctor) struct ModuleState {
    pub(in crate::doctor) is_loaded: bool,
    pub(in crate::doctor) version: FileContent<String>,
    pub(in crate::doctor) sources: FileContent<String>,
    /// The parameter `untested`.
    pub(in crate::doctor) untested: FileContent<String>,
    pub(in crate::doctor) file: Option<ModuleFile>,
    pub(in crate::doctor) has_headers: bool,
    pub(in crate::doctor) has_sources: bool,
    pub(in crate::doctor) has_dkms: bool,
    pub(in crate::doctor) loads_at_start: bool,
    /// Whether the module may map frames.
    pub(in crate::doctor) opened: module::Result<bool>,
}

/// The module's file.
pub(in crate::doctor) struct ModuleFile {
    /// Its path on the host.
    pub(in crate::doctor) name: String,
    /// Why its properties cannot be read.
    pub(in crate::doctor) unread: Option<String>,
    /// It was read, and is no module.
    pub(in crate::doctor) is_damaged: bool,
    /// None if the file cannot be read.
    pub(in crate::doctor) is_signed: Option<bool>,
    /// The kernel that it was built for.
    pub(in crate::doctor) kernel: Option<String>,
    /// The build of that kernel, as `uname -v` prints it.
    pub(in crate::doctor) kernel_build: Option<String>,
    /// A sum of its sources.
    pub(in crate::doctor) sources: Option<String>,
}

impl ModuleState {
    /// Reads the state, for the kernel of this release; the device was opened already.
    pub(in crate::doctor) fn read(
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
            untested: root.text("sys/module/uksm/parameters/untested"),
            file: file.map(|place| ModuleFile::read(root, &place)),
            has_headers: root.has(&of_kernel("build/Makefile")),
            has_sources: root.list("usr/src").iter().any(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("uksm-") && path.join("dkms.conf").exists()
            }),
            has_dkms: root.has("usr/sbin/dkms") || root.has("usr/bin/dkms"),
            loads_at_start: lists.any(|path| names_it(&path)),
            opened,
        }
    }
}

impl ModuleFile {
    fn read(root: &Root, place: &str) -> ModuleFile {
        let name = format!("/{place}");
        let (bytes, unread) = match root.unpacked(&name, MAX_FILE_BYTES) {
            FileContent::There(bytes) => (bytes, None),
            FileContent::Absent => (Vec::new(), None),
            FileContent::Unread(why) => (Vec::new(), Some(why)),
        };
        let modinfo_lines = modinfo(&bytes);
        let of = |key: &str| {
            let modinfo_lines = modinfo_lines.as_ref()?.iter();
            let mut values =
                modinfo_lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.next().map(str::to_owned)
        };
        ModuleFile {
            is_damaged: unread.is_none() && modinfo_lines.is_none(),
            unread,
            name,
            is_signed: modinfo_lines.as_ref().map(|_| bytes.ends_with(SIGNED)),
            kernel: of("vermagic").and_then(|text| Some(text.split(' ').next()?.to_owned())),
            kernel_build: of("built_for"),
            sources: of("srcversion"),
        }
    }
}

/// The module's path below `/lib/modules/RELEASE` by modprobe's list.
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

/// Properties of a module: `key=value` each. None if the file is no module.
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
