//! Which group a process is in.
//!
//! # Problem
//! A process may match the selectors of several groups, and must be in one: that decides with whom it shares memory.
//!
//! # Approach
//! Groups are in an order, and a process is in the first that has it, whatever has it later. Who excludes processes from all of
//! them need not know the groups.

use super::{Candidate, ProcessName, Selection, Selectors};
use crate::proc::{self, Proc, Stat};

/// A group, as long as it lives; never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u32);

/// Groups of processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grouping {
    /// In the order in which they are tried.
    groups: Vec<(GroupId, Selection)>,
    /// In no group.
    excluded: Selectors,
}

impl Grouping {
    /// These groups, in this order.
    #[must_use]
    pub fn of(groups: Vec<(GroupId, Selection)>) -> Grouping {
        Grouping {
            groups,
            excluded: Selectors::default(),
        }
    }

    /// These groups from now on; what was excluded stays so.
    pub fn regroup(&mut self, groups: Vec<(GroupId, Selection)>) {
        self.groups = groups;
    }

    /// These are in no group from now on.
    pub fn exclude(&mut self, selectors: Selectors) {
        self.excluded.extend(selectors);
    }

    /// The group of a process.
    ///
    /// # Errors
    /// Its control group is asked for and cannot be read.
    pub fn group_of(&self, proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<Option<GroupId>> {
        let candidate = Candidate::new(proc, pid, stat);
        for (id, selection) in &self.groups {
            if selection.include_candidate(&candidate)? {
                let is_excluded = self.excluded.select_candidate(&candidate)?;
                return Ok((!is_excluded).then_some(*id));
            }
        }
        Ok(None)
    }

    /// Processes named by id.
    pub fn named(&self) -> impl Iterator<Item = ProcessName> + '_ {
        let chosen = self.groups.iter().map(|(_, selection)| &selection.chosen);
        chosen.flat_map(|chosen| chosen.pids.iter().copied())
    }

    /// Whether processes must be looked for, other than those named by id.
    #[must_use]
    pub fn need_search(&self) -> bool {
        self.any(Selection::need_search)
    }

    /// As [`Selection::depends_on_names`], of any group.
    #[must_use]
    pub fn depends_on_names(&self) -> bool {
        !self.excluded.comms.is_empty() || self.any(Selection::depends_on_names)
    }

    /// As [`Selection::depends_on_cgroups`], of any group.
    #[must_use]
    pub fn depends_on_cgroups(&self) -> bool {
        self.excluded.depend_on_cgroups() || self.any(Selection::depends_on_cgroups)
    }

    fn any(&self, is_so: impl Fn(&Selection) -> bool) -> bool {
        self.groups.iter().any(|(_, selection)| is_so(selection))
    }
}
