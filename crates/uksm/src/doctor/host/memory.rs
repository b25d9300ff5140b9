//! The memory of the host.

use procfs_core::{FromBufRead as _, Meminfo};

use crate::doctor::probe::{FileContent, Root};

/// The state of memory.
pub(in crate::doctor) struct HostMemory {
    pub(in crate::doctor) enabled: FileContent<String>,
    pub(in crate::doctor) defrag: FileContent<String>,
    pub(in crate::doctor) max_ptes_none: FileContent<String>,
    pub(in crate::doctor) shrink_underused: FileContent<String>,
    pub(in crate::doctor) meminfo: Result<Meminfo, String>,
    /// Reserved huge pages: size, and number.
    pub(in crate::doctor) reserved: Vec<(u64, u64)>,
    pub(in crate::doctor) run: FileContent<String>,
    pub(in crate::doctor) scan: (FileContent<String>, FileContent<String>),
    pub(in crate::doctor) advisor: FileContent<String>,
    pub(in crate::doctor) overcommit: FileContent<String>,
    pub(in crate::doctor) swaps: FileContent<String>,
    pub(in crate::doctor) zswap: FileContent<String>,
    pub(in crate::doctor) controllers: FileContent<String>,
    /// Whether both versions of control groups are mounted.
    pub(in crate::doctor) is_hybrid: bool,
    pub(in crate::doctor) nodes: usize,
}

impl HostMemory {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root) -> HostMemory {
        let meminfo = match root.text("proc/meminfo") {
            FileContent::There(text) => Meminfo::from_buf_read(text.as_bytes())
                .map_err(|error| format!("/proc/meminfo: {error}")),
            FileContent::Absent => Err("/proc/meminfo is not there".to_owned()),
            FileContent::Unread(why) => Err(why),
        };
        let of_ksm = |name: &str| root.text(&format!("sys/kernel/mm/ksm/{name}"));
        let huge = |name: &str| root.text(&format!("sys/kernel/mm/transparent_hugepage/{name}"));
        let sizes = root.list("sys/kernel/mm/hugepages");
        let reserved = sizes.iter().filter_map(|folder| {
            let name = folder.file_name()?.to_str()?;
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let count = root.text(&format!("sys/kernel/mm/hugepages/{name}/nr_hugepages"));
            Some((kib.parse::<u64>().ok()? << 10, count.text().parse().ok()?))
        });
        let nodes = root.list("sys/devices/system/node");
        let is_node = |name: &str| {
            let number = name.strip_prefix("node");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        HostMemory {
            enabled: huge("enabled"),
            defrag: huge("defrag"),
            max_ptes_none: huge("khugepaged/max_ptes_none"),
            shrink_underused: huge("shrink_underused"),
            meminfo,
            reserved: reserved.collect(),
            run: of_ksm("run"),
            scan: (of_ksm("pages_to_scan"), of_ksm("sleep_millisecs")),
            advisor: of_ksm("advisor_mode"),
            overcommit: root.text("proc/sys/vm/overcommit_memory"),
            swaps: root.text("proc/swaps"),
            zswap: root.text("sys/module/zswap/parameters/enabled"),
            controllers: root.text("sys/fs/cgroup/cgroup.controllers"),
            is_hybrid: root.has("sys/fs/cgroup/unified/cgroup.controllers"),
            nodes: nodes
                .iter()
                .filter_map(|path| path.file_name()?.to_str())
                .filter(|name| is_node(name))
                .count(),
        }
    }

    /// Whether KSM scans.
    pub(in crate::doctor) fn ksm_runs(&self) -> bool {
        self.run.text() == "1"
    }

    /// Swap devices and files.
    pub(in crate::doctor) fn swaps(&self) -> impl Iterator<Item = &str> {
        let lines = self
            .swaps
            .there()
            .map_or("", String::as_str)
            .lines()
            .skip(1);
        lines.filter_map(|line| line.split_ascii_whitespace().next())
    }
}
