//! Selectors of excluded processes, which are added while a daemon runs.
//!
//! # Problem
//! Each check of a process goes through all of them, and `uksm break` adds some each time.
//!
//! # Approach
//! Duplicates are dropped, processes by id that have ended are forgotten, and there are at most
//! [`MAX_EXCLUDED`] selectors.

use super::Selectors;
use crate::proc::{self, Proc};

/// Maximum number of selectors of excluded processes. Each takes some 10 ns of a check.
const MAX_EXCLUDED: usize = 1024;

impl Selectors {
    fn count(&self) -> usize {
        let by_name = self.units.len() + self.libvirt.len() + self.comms.len();
        self.pids.len() + self.cgroups.len() + by_name
    }

    /// Whether these can be added to the excluded ones.
    ///
    /// # Errors
    /// There are too many: one line.
    pub fn has_room_for(&self, more: &Selectors) -> Result<(), String> {
        let count = self.count();
        match count + more.count() > MAX_EXCLUDED {
            true => Err(format!(
                "{count} exclusions exist already, of at most {MAX_EXCLUDED}: exclude the \
                 processes in the configuration by one pattern, and restart the daemon"
            )),
            false => Ok(()),
        }
    }

    /// Adds these to the excluded ones. Processes by id that have ended are forgotten, and
    /// duplicates are dropped.
    pub fn add(&mut self, selectors: Selectors, proc: &Proc) {
        self.extend(selectors);
        self.pids.sort_unstable();
        self.pids.dedup();
        self.pids.retain(|name| match proc.stat(name.pid) {
            Ok(stat) => name
                .start_ticks
                .is_none_or(|start| start == stat.start_ticks),
            Err(error) => !matches!(error, proc::Error::Gone { .. }),
        });
        once(&mut self.cgroups);
        once(&mut self.units);
        once(&mut self.libvirt);
        once(&mut self.comms);
    }
}

/// Keeps the first of equal ones.
fn once<T: PartialEq>(all: &mut Vec<T>) {
    let mut kept: Vec<T> = Vec::new();
    for one in all.drain(..) {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    *all = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_alone_is_bounded_and_kept_once() {
        let proc = Proc::default();
        let comm = |name: String| Selectors {
            comms: vec![name.parse().unwrap()],
            ..Selectors::default()
        };
        let mut excluded = Selectors::default();
        for _ in 0..3 {
            for number in 0..MAX_EXCLUDED / 2 {
                excluded.add(comm(format!("p{number}")), &proc);
            }
        }
        assert_eq!(excluded.count(), MAX_EXCLUDED / 2);
        for number in MAX_EXCLUDED / 2..MAX_EXCLUDED {
            let one = comm(format!("p{number}"));
            assert_eq!(excluded.has_room_for(&one), Ok(()));
            excluded.add(one, &proc);
        }
        let line = excluded.has_room_for(&comm("more".to_owned())).unwrap_err();
        assert!(line.starts_with("1024 exclusions "), "{line}");
    }
}
