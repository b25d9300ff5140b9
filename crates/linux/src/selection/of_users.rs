//! Units and machines that match only names chosen by users.
//!
//! # Problem
//! `--unit` and `--libvirt` match names that the system manager gave. A unit of a user's own
//! manager is none of these: a selector of it selects no process, and the operator should learn
//! why.
//!
//! # Approach
//! All processes are checked. A selector that selects none of them, and whose name occurs in a path
//! below the system manager's units, is refused with that path.

use super::Selectors;
use crate::proc::Proc;

impl Selectors {
    /// Checks that no unit or machine is one of a user's own manager.
    ///
    /// # Errors
    /// A unit or machine is one: its name, and the way to name it, in one line.
    pub fn check_units(&self, proc: &Proc) -> Result<(), String> {
        if self.units.is_empty() && self.libvirt.is_empty() {
            return Ok(());
        }
        let mut pids = Vec::new();
        // Without a list nothing can be checked.
        let _no_list = proc.list(&mut pids);
        let paths: Vec<String> = pids
            .iter()
            .filter_map(|&pid| proc.cgroup(pid).ok())
            .collect();
        let own = |holds: &dyn Fn(&str) -> bool, is_named_in: &dyn Fn(&str) -> bool| {
            let is_there = paths.iter().any(|path| holds(path));
            let mut named = paths.iter().filter(|path| is_named_in(path));
            named.next().filter(|_| !is_there).cloned()
        };
        for unit in &self.units {
            if let Some(path) = own(&|path| unit.holds(path), &|path| unit.is_named_in(path)) {
                return Err(format!(
                    "--unit {unit}: is a user's unit, not one of the system manager: name its \
                     control group: \
                     --cgroup {path}"
                ));
            }
        }
        for machine in &self.libvirt {
            if let Some(path) = own(&|path| machine.holds(path), &|path| {
                machine.is_named_in(path)
            }) {
                return Err(format!(
                    "--libvirt {machine}: is a user's machine, not one of the system's libvirt: \
                     name its control group: --cgroup {path}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_USER: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service";

    fn checked(unit: &str, paths: &[&str]) -> Result<(), String> {
        let root = tempfile::tempdir().unwrap();
        for (at, path) in paths.iter().enumerate() {
            let folder = root.path().join((at + 1).to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("cgroup"), format!("0::{path}\n")).unwrap();
        }
        let selectors = Selectors {
            units: vec![unit.parse().unwrap()],
            ..Selectors::default()
        };
        selectors.check_units(&Proc::at(root.path()))
    }

    #[test]
    fn a_unit_of_a_user_is_refused_with_its_path() {
        let error = checked("web.service", &["/", OF_USER]).unwrap_err();
        assert!(
            error.starts_with("--unit web.service: is a user's unit"),
            "{error}"
        );
        assert!(error.ends_with(&format!("--cgroup {OF_USER}")), "{error}");
        let both = ["/system.slice/web.service", OF_USER];
        assert_eq!(checked("web.service", &both), Ok(()));
        assert_eq!(checked("db.service", &both), Ok(()), "it may come later");
    }
}
