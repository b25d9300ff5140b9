//! Rights that some features need, and that the packaged service does not have.
//!
//! # Problem
//! The environment of another user's process, and a control group delegated to another user, are
//! closed even to root without the capabilities for that. The service has only the capabilities
//! that all its users need, so an operator who wants these features adds them (docs/operating.md);
//! without them a rule would find no process, and a worker would never start.
//!
//! # Approach
//! Missing rights are logged by name, at level warning, when the configuration is read and when a
//! worker cannot be placed.

use std::io;

use rustix::thread::{CapabilitySet, capabilities};

use crate::config::rule_plan::RulePlan;

/// Warns of rules that need rights that this process does not have.
pub(super) fn warn_of_missing(rules: &[RulePlan]) {
    let Ok(own) = capabilities(None) else {
        return;
    };
    for rule in rules {
        if rule.rule.by.is_taken_once() && !may_read_environments(own.effective) {
            tracing::warn!(
                "rule {}: by = {}: without CAP_DAC_READ_SEARCH only processes of root are in its groups: see \"Rights\" in docs/operating.md",
                rule.rule.name,
                rule.rule.by
            );
        }
    }
}

fn may_read_environments(own: CapabilitySet) -> bool {
    own.intersects(CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE)
}

/// Why a worker cannot be moved to a control group, with the right that is missing.
pub(super) fn of_place(folder: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (it belongs to another user: that takes CAP_DAC_OVERRIDE, see \"Rights\" in docs/operating.md)"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{folder}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_that_is_missing_is_named() {
        assert!(!may_read_environments(
            CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE
        ));
        assert!(may_read_environments(CapabilitySet::DAC_READ_SEARCH));
        let error = of_place("/x", &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(error.starts_with("/x: permission denied") && error.contains("CAP_DAC_OVERRIDE"));
        let error = of_place("/x", &io::ErrorKind::NotFound.into()).to_string();
        assert!(!error.contains("CAP_"), "{error}");
    }
}
