//! Processes and the kinds of their memory.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use uksm_linux::proc::Proc;
use uksm_linux::smaps::{NameKind, SmapsEntries};

use super::machines::Machine;
use crate::doctor::probe::{FileContent, Root, unread};

/// Minimum amount of memory of a kind for a process to be reported.
pub(in crate::doctor) const MIN_REPORTED_BYTES: u64 = 16 << 20;

/// Maximum number of processes that are read: of more, a part is reported.
const MAX_PROCESSES: usize = 1 << 15;

/// Maximum number of open files that are read of one process.
const MAX_FILES: usize = 4096;

/// The state of processes.
pub(in crate::doctor) struct HostProcesses {
    /// Processes with memory, by id.
    pub(in crate::doctor) all: Vec<HostProcess>,
    /// Large processes that could not be read, and why.
    pub(in crate::doctor) closed: Vec<String>,
    /// Number of processes beyond [`MAX_PROCESSES`].
    pub(in crate::doctor) left_out: usize,
}

/// A process.
#[derive(Debug, Default)]
pub(in crate::doctor) struct HostProcess {
    pub(in crate::doctor) pid: u32,
    pub(in crate::doctor) comm: String,
    /// Its options, if it is a virtual machine of QEMU.
    pub(in crate::doctor) machine: Option<Machine>,
    pub(in crate::doctor) resident: u64,
    pub(in crate::doctor) hugetlb: u64,
    pub(in crate::doctor) shared: u64,
    pub(in crate::doctor) locked: u64,
    pub(in crate::doctor) pinned: u64,
    /// Whether KSM scans it.
    pub(in crate::doctor) ksm: bool,
    /// Whether it offers all its memory to KSM, if the kernel reports that.
    pub(in crate::doctor) merges_any: Option<bool>,
    /// Number of mappings, if it is large.
    pub(in crate::doctor) mapping_count: u64,
    /// Number of neighbouring mappings that could be one.
    pub(in crate::doctor) apart: u64,
    /// Shared mappings of memory by name, and their length.
    pub(in crate::doctor) mappings: BTreeMap<String, u64>,
    /// Mappings of devices for memory.
    pub(in crate::doctor) dax: u64,
    pub(in crate::doctor) vfio: bool,
    /// Whether it can migrate memory to a GPU.
    pub(in crate::doctor) gpu: bool,
    pub(in crate::doctor) guest_memfd: bool,
    /// Why it could not be read.
    pub(in crate::doctor) closed: Option<String>,
    /// Whether it is a target of the configuration.
    pub(in crate::doctor) is_target: bool,
}

impl HostProcesses {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root, proc: &Proc) -> HostProcesses {
        let mut pids = Vec::new();
        // Without a list there are no processes to report, and `processes-read` names the fault.
        let _no_list = proc.list(&mut pids);
        let left_out = pids.len().saturating_sub(MAX_PROCESSES);
        pids.truncate(MAX_PROCESSES);
        let all: Vec<HostProcess> = pids
            .into_iter()
            .filter_map(|pid| HostProcess::read(root, pid))
            .collect();
        HostProcesses {
            closed: all.iter().filter_map(HostProcess::why_closed).collect(),
            all,
            left_out,
        }
    }

    /// Why findings are about some of the processes only, if so.
    pub(in crate::doctor) fn why_in_part(&self) -> Option<String> {
        let closed = (!self.closed.is_empty())
            .then(|| format!("{} could not be examined", self.closed.len()));
        let left_out = (self.left_out > 0).then(|| format!("{} were not read", self.left_out));
        let why: Vec<String> = closed.into_iter().chain(left_out).collect();
        (!why.is_empty()).then(|| format!("of the processes {}", why.join(", and ")))
    }

    /// Processes with an amount, largest first.
    pub(in crate::doctor) fn with(
        &self,
        amount: impl Fn(&HostProcess) -> Option<u64>,
    ) -> Vec<(u64, &HostProcess)> {
        let amounts = self.all.iter();
        let mut found: Vec<_> = amounts
            .filter_map(|process| Some((amount(process)?, process)))
            .collect();
        found.sort_by_key(|(bytes, process)| (std::cmp::Reverse(*bytes), process.pid));
        found
    }
}

impl HostProcess {
    /// None for a process that has no memory of its own, or has ended.
    fn read(root: &Root, pid: u32) -> Option<HostProcess> {
        let of = |file: &str| format!("proc/{pid}/{file}");
        let status = root.text(&of("status"));
        let status = status.there()?;
        let bytes = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kib = value
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse::<u64>()
                .ok()?;
            Some(kib << 10)
        };
        let resident = bytes("VmRSS")?;
        let amount = |name| bytes(name).unwrap_or(0);
        let name = status.lines().find_map(|line| line.strip_prefix("Name:"));
        let mut process = HostProcess {
            pid,
            comm: name.unwrap_or_default().trim().to_owned(),
            resident,
            hugetlb: amount("HugetlbPages"),
            shared: amount("RssShmem"),
            locked: amount("VmLck"),
            pinned: amount("VmPin"),
            ..HostProcess::default()
        };
        if process.resident + process.hugetlb + process.locked >= MIN_REPORTED_BYTES {
            process.look_into(root);
        }
        Some(process)
    }

    /// Reads the files that show the kind of its memory.
    fn look_into(&mut self, root: &Root) {
        let pid = self.pid;
        let of = |file: &str| format!("proc/{pid}/{file}");
        if let FileContent::There(line) = root.bytes(&of("cmdline")) {
            self.machine = Machine::of_command_line(&line);
        }
        let ksm = root.text(&of("ksm_stat"));
        self.ksm = ksm.text().lines().any(|line| {
            line == "ksm_mergeable: yes"
                || line
                    .strip_prefix("ksm_rmap_items ")
                    .is_some_and(|items| items != "0")
        });
        let mut any = ksm.text().lines();
        let any = any.find_map(|line| line.strip_prefix("ksm_merge_any:"));
        self.merges_any = any.map(|any| any.trim() == "yes");
        match root.bytes(&of("maps")) {
            FileContent::There(text) => self.take_mappings(&text),
            FileContent::Absent => {}
            FileContent::Unread(why) => self.closed = Some(why),
        }
        let files = match std::fs::read_dir(root.at(of("fd").as_ref())) {
            Ok(files) => files,
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied {
                    self.closed.get_or_insert_with(|| unread(&of("fd"), &error));
                }
                return;
            }
        };
        for file in files.flatten().take(MAX_FILES) {
            let Ok(target) = std::fs::read_link(file.path()) else {
                continue;
            };
            let target = target.to_string_lossy();
            self.vfio |= target.starts_with("/dev/vfio/") || target.starts_with("anon_inode:[vfio");
            self.gpu |= super::guard::migrates(&target);
            self.guest_memfd |=
                target == "anon_inode:[kvm-gmem]" || target == "anon_inode:[guest_memfd]";
        }
    }

    /// Counts mappings. Lines that cannot be parsed, as in a cut list, are left out.
    fn take_mappings(&mut self, text: &[u8]) {
        let mut before: Option<(u64, [u8; 4])> = None;
        for entry in SmapsEntries::of(text).flatten() {
            self.mapping_count += 1;
            let is_plain = entry.name_kind() == NameKind::Anonymous && entry.is_private();
            let joins = before.take() == Some((entry.start, entry.permissions));
            self.apart += u64::from(joins && is_plain);
            before = is_plain.then_some((entry.end, entry.permissions));
            if entry.name_kind() != NameKind::File {
                continue;
            }
            let name = String::from_utf8_lossy(&entry.name);
            if name.starts_with("/dev/dax") {
                self.dax = self.dax.saturating_add(entry.bytes());
            } else if !entry.is_private() {
                let bytes = self.mappings.entry(short(&name)).or_default();
                *bytes = bytes.saturating_add(entry.bytes());
            }
        }
    }

    fn why_closed(&self) -> Option<String> {
        let why = self.closed.as_ref()?;
        Some(format!("{}: /{why}", self.called()))
    }

    /// Its name and id.
    pub(in crate::doctor) fn called(&self) -> String {
        format!("{} ({})", self.comm, self.pid)
    }
}

/// The name of a file of memory: `/memfd:NAME`, `/dev/shm/NAME`, or its path.
fn short(name: &str) -> String {
    name.strip_suffix(" (deleted)").unwrap_or(name).to_owned()
}
