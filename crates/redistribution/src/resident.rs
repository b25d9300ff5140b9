//! Anonymous memory of processes that is in RAM.
//!
//! # Problem
//! What a member's merging freed is told by its memory that can have been merged. A control group's own count leaves merged pages out:
//! those are charged where the frame is.
//!
//! # Approach
//! `RssAnon` of each process counts each page that it maps, merged or not. A process that ends meanwhile has none.
//!
//! # Units
//! Bytes. At most [`MOST_PROCESSES`] of a control group are looked at: the proportion between members does not need more.
//!
//! # Source
//! proc(5).

use std::path::Path;

/// So many processes of a member are looked at.
const MOST_PROCESSES: usize = 4096;
/// Control groups below control groups below a member are followed so deep.
const DEEPEST: usize = 16;

/// Of one process; nothing if it is gone.
pub(crate) fn of_process(proc_root: &Path, pid: u32) -> u64 {
    let path = proc_root.join(pid.to_string()).join("status");
    let Ok(text) = std::fs::read_to_string(path) else {
        return 0;
    };
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Of all processes in a control group and below it.
pub(crate) fn of_cgroup(proc_root: &Path, folder: &Path) -> u64 {
    let mut pids = Vec::new();
    collect(folder, 0, &mut pids);
    pids.iter().map(|&pid| of_process(proc_root, pid)).sum()
}

fn collect(folder: &Path, depth: usize, pids: &mut Vec<u32>) {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let left = MOST_PROCESSES - pids.len();
    pids.extend(
        text.lines()
            .filter_map(|line| line.parse::<u32>().ok())
            .take(left),
    );
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth < DEEPEST && pids.len() < MOST_PROCESSES {
            collect(&entry.path(), depth + 1, pids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_below_count_and_one_that_is_gone_has_none() {
        let (proc, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (pid, kib) in [(7, 100), (8, 20)] {
            std::fs::create_dir(proc.path().join(pid.to_string())).unwrap();
            let status = format!("Name:\tx\nRssAnon:\t   {kib} kB\nRssFile:\t 9 kB\n");
            std::fs::write(proc.path().join(format!("{pid}/status")), status).unwrap();
        }
        std::fs::create_dir(tree.path().join("below")).unwrap();
        std::fs::write(tree.path().join("cgroup.procs"), "7\n99\n").unwrap();
        std::fs::write(tree.path().join("below/cgroup.procs"), "8\n").unwrap();
        assert_eq!(of_cgroup(proc.path(), tree.path()), 120 << 10);
        assert_eq!(of_process(proc.path(), 99), 0);
    }

    #[test]
    fn this_process_has_some() {
        assert!(of_process(Path::new("/proc"), std::process::id()) > 0);
    }
}
