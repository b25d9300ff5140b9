//! The demo: real processes deduplicated by in-kernel KSM and by uksm, one after the other, before
//! the user's eyes.
//!
//! The guest side ([`guest`]) does the work and prints [`Event`]s, one JSON object a line with a
//! mark in front, among other output; outside the guest, [`display`] shows them, and [`summary`]
//! prints the results at the end.

pub(crate) mod display;
pub(crate) mod guest;
pub(crate) mod summary;

use serde::{Deserialize, Serialize};
use uksm_results::timeline::Look;

/// In front of every event's line.
const MARK: &str = "uksm-bench-event ";

/// The events of the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A longer stage begins.
    Stage {
        /// Its name.
        text: String,
    },
    /// A look at a running variant.
    Progress {
        /// The variant.
        variant: String,
        /// The figures of the look.
        look: Look,
        /// The possible saving.
        mergeable_mib: f64,
        /// Time limit in seconds.
        limit_seconds: f64,
    },
    /// A variant is complete, and its memory was found unchanged.
    Proved {
        /// The variant.
        variant: String,
        /// Pages of the workload that were checked.
        pages: u64,
        /// Number of redis-servers with unchanged contents.
        servers: usize,
    },
}

impl Event {
    /// Prints it on standard output.
    pub(crate) fn print(&self) {
        match serde_json::to_string(self) {
            Ok(json) => println!("{MARK}{json}"),
            Err(error) => eprintln!("uksm-bench: an event cannot be written: {error}"),
        }
    }

    /// The event in a line of output, if there is one.
    pub(crate) fn read(line: &str) -> Option<Event> {
        // A serial console may put a carriage return, or the end of another line, around it.
        let (_, json) = line.split_once(MARK)?;
        serde_json::from_str(json.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_in_a_line_and_other_lines_are_not_events() {
        let event = Event::Stage {
            text: "x \"y\"".into(),
        };
        let line = format!("noise{MARK}{}\r", serde_json::to_string(&event).unwrap());
        assert_eq!(Event::read(&line), Some(event));
        assert_eq!(Event::read("uksm-full: 12 MiB"), None);
    }
}
