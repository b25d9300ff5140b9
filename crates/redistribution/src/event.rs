//! Events of redistribution, for the log.
//!
//! # Approach
//! Each event is one line when printed. Errors are reported when they begin, change and end, and
//! not each second.

use std::fmt;

use crate::guard::Transition;

/// Something that happened in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The guard changed its phase.
    Guard(Transition),
    /// A member was asked to have another size.
    Asked {
        /// Its group.
        group: String,
        /// Its name.
        member: String,
        /// The size before, in bytes.
        from: u64,
        /// The size that was asked.
        to: u64,
    },
    /// A member cannot be seen or changed, or its original value cannot be put back.
    Failed {
        /// Its group.
        group: String,
        /// Its name.
        member: String,
        /// Why, in one line.
        error: String,
    },
    /// A member that could not be changed can be again.
    Recovered {
        /// Its group.
        group: String,
        /// Its name.
        member: String,
    },
    /// A change by an earlier daemon was undone, at a place that is no member any more.
    PutBack {
        /// The limit or balloon.
        place: String,
        /// The original value.
        value: String,
        /// Why it could not be undone, in one line; it is tried again.
        error: Option<String>,
    },
    /// Original values cannot be read or kept.
    Unkept {
        /// Why, in one line.
        error: String,
    },
    /// A member has more than it was asked to have, for long.
    Late {
        /// Its group.
        group: String,
        /// Its name.
        member: String,
        /// The size asked, in bytes.
        asked: u64,
        /// Its real size.
        real: u64,
    },
}

impl Event {
    /// Whether an operator should look at it.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            Event::Guard(_) | Event::Failed { .. } | Event::Late { .. } | Event::Unkept { .. } => {
                true
            }
            Event::PutBack { error, .. } => error.is_some(),
            Event::Asked { .. } | Event::Recovered { .. } => false,
        }
    }
}

/// Bytes as MiB.
struct Mib(u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tenths, in whole numbers.
        let tenths = self.0 / (1 << 20) * 10 + self.0 % (1 << 20) * 10 / (1 << 20);
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Guard(moved) => write!(
                f,
                "redistribution: {} instead of {}: {}",
                moved.to, moved.from, moved.reason
            ),
            Event::Asked {
                group,
                member,
                from,
                to,
            } => write!(
                f,
                "group {group}: {member} is to have {} instead of {}",
                Mib(*to),
                Mib(*from)
            ),
            Event::Failed {
                group,
                member,
                error,
            } => write!(f, "group {group}: {member}: {error}"),
            Event::Recovered { group, member } => {
                write!(f, "group {group}: {member} answers again")
            }
            Event::PutBack {
                place,
                value,
                error: None,
            } => write!(f, "{place} is {value} again, as before an earlier daemon"),
            Event::PutBack {
                place,
                value,
                error: Some(error),
            } => write!(
                f,
                "{place} is not {value} again, as before an earlier daemon: {error}"
            ),
            Event::Unkept { error } => write!(f, "redistribution: {error}"),
            Event::Late {
                group,
                member,
                asked,
                real,
            } => write!(
                f,
                "group {group}: {member} has {} and should have gone down to {}",
                Mib(*real),
                Mib(*asked)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_names_the_member() {
        let event = Event::Asked {
            group: "web".to_owned(),
            member: "one".to_owned(),
            from: 3 << 19,
            to: 1 << 30,
        };
        assert_eq!(
            event.to_string(),
            "group web: one is to have 1024.0 MiB instead of 1.5 MiB"
        );
        assert!(!event.is_warning());
    }
}
