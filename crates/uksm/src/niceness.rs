//! Precedence of the daemon if several programs want the processors.
//!
//! ksmd's niceness is 5, and so is the daemon's. But a task's niceness counts among the tasks of
//! its own session only, if the kernel shares processors between sessions first (sched(7), "The
//! autogroup feature"), as Debian's 6.12 does. A service leads a session of its own, and would get
//! as much of a processor as any other session. So a daemon that leads its session lowers the
//! session's priority as well: ksmd is in no session, and competes with each of them by its
//! niceness. A session that another process started, as a shell's, is not changed.

use std::{fs, io};

use nix::unistd::{getpid, getsid};
use rustix::process::{getpriority_process, setpriority_process};

/// The kernel's file for the niceness of a session.
const SESSION: &str = "/proc/self/autogroup";

/// Lowers the daemon's precedence to ksmd's; a lower one is kept. Costs three system calls, and six
/// for the leader of a session.
pub(crate) fn lower_priority(nice: u64) {
    let wanted = i32::try_from(nice).unwrap_or(i32::MAX);
    let set = getpriority_process(None).and_then(|own| match own < wanted {
        true => setpriority_process(None, wanted),
        false => Ok(()),
    });
    if let Err(errno) = set {
        tracing::warn!("cannot change the niceness: {errno}");
    }
    lower_session_priority(nice);
}

/// The same for the session that this process leads, if it leads one, and for nothing else.
pub(crate) fn lower_session_priority(nice: u64) {
    // Zero if its leader is outside the own PID namespace.
    if getsid(None) != Ok(getpid()) {
        return;
    }
    if let Err(error) = lower_session(SESSION, nice) {
        tracing::warn!("cannot change the niceness of the session: {SESSION}: {error}");
    }
}

fn lower_session(path: &str, nice: u64) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        // This kernel has no niceness of sessions: a task's own counts.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    match niceness(&text) {
        Some(now) if now < i64::try_from(nice).unwrap_or(i64::MAX) => {
            fs::write(path, nice.to_string())
        }
        _ => Ok(()),
    }
}

/// The niceness in `/autogroup-123 nice 0`; none if a process is in no such group.
fn niceness(text: &str) -> Option<i64> {
    let (_name, niceness) = text.trim_end().split_once(" nice ")?;
    niceness.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn niceness_of_a_session_is_parsed() {
        assert_eq!(niceness("/autogroup-123 nice 0\n"), Some(0));
        assert_eq!(niceness("/autogroup-7 nice -11\n"), Some(-11));
        assert_eq!(niceness(""), None);
        assert_eq!(niceness("/autogroup-7\n"), None);
    }

    #[test]
    fn a_session_is_lowered_and_never_raised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autogroup");
        let path = path.to_str().unwrap();
        lower_session(path, 5).expect("a kernel without sessions is none that fails");
        for (before, after) in [
            ("/autogroup-9 nice 0\n", "5"),
            ("/autogroup-9 nice 4\n", "5"),
            ("/autogroup-9 nice 5\n", "/autogroup-9 nice 5\n"),
            ("/autogroup-9 nice 12\n", "/autogroup-9 nice 12\n"),
            ("", ""),
        ] {
            fs::write(path, before).unwrap();
            lower_session(path, 5).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), after, "{before}");
        }
    }
}
