//! Selects the messages of the proc connector that reach the socket: a filter that the kernel runs.
//!
//! # Problem
//! A program that starts threads or changes users all the time causes unwanted events, and each
//! would have to be read.
//!
//! # Approach
//! A classic BPF program accepts confirmations, and those forks, execs, renames and exits whose
//! thread is the first of its process. It loads words in network byte order.
//!
//! # Source
//! `linux/filter.h`; socket(7), `SO_ATTACH_FILTER`.

use std::io;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

use super::message::{
    CHILD_PROCESS, CHILD_THREAD, COMM, CONFIRMATION, EXEC, EXIT, FORK, PROCESS, THREAD, WHAT,
};

/// Load the word at this offset.
const LOAD: u16 = 0x20;
/// Keep it in the second register.
const KEEP: u16 = 0x07;
/// Compare with this constant, or with the second register.
const IS: u16 = 0x15;
const IS_KEPT: u16 = 0x1d;
/// Accept this number of bytes.
const ACCEPT: u16 = 0x06;

/// Attaches the filter.
///
/// # Errors
/// No memory.
pub(super) fn attach(socket: &impl AsFd) -> io::Result<()> {
    let step = |code: u16, yes: u8, no: u8, value: u32| SockFilter::new(code, yes, no, value);
    let load = |place: usize| step(LOAD, 0, 0, u32::try_from(place).unwrap_or(u32::MAX));
    let is = |kind: u32, yes: u8, no: u8| step(IS, yes, no, kind.to_be());
    let program = [
        load(WHAT),
        // Jumps count from the next step.
        is(CONFIRMATION, 12, 0),
        is(FORK, 7, 0),
        is(EXEC, 2, 0),
        is(COMM, 1, 0),
        is(EXIT, 0, 9),
        // The first thread of its process?
        load(THREAD),
        step(KEEP, 0, 0, 0),
        load(PROCESS),
        step(IS_KEPT, 4, 5, 0),
        // A fork that made a process, and no thread?
        load(CHILD_THREAD),
        step(KEEP, 0, 0, 0),
        load(CHILD_PROCESS),
        step(IS_KEPT, 0, 1, 0),
        step(ACCEPT, 0, 0, u32::MAX),
        step(ACCEPT, 0, 0, 0),
    ];
    SockRef::from(socket).attach_filter(&program)
}

#[cfg(test)]
mod tests {
    use super::super::message::sent;
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn only_what_concerns_processes_passes() {
        let (here, there) = UnixDatagram::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        attach(&there).unwrap();
        let passes = |what: u32, body: [u32; 4]| {
            let message = sent(what, 7, body);
            here.send(&message).unwrap();
            let mut bytes = [0; 100];
            match there.recv(&mut bytes) {
                Ok(length) => {
                    assert_eq!(bytes[..length], message, "unchanged");
                    true
                }
                Err(_) => false,
            }
        };
        assert!(passes(CONFIRMATION, [0; 4]));
        assert!(passes(FORK, [5, 4, 9, 9]), "by a thread");
        assert!(!passes(FORK, [4, 4, 9, 4]), "a thread");
        for what in [EXEC, COMM, EXIT] {
            assert!(passes(what, [9, 9, 1, 2]));
            assert!(!passes(what, [8, 9, 1, 1]), "of a thread: {what:#x}");
        }
        for what in [4, 0x40, 0x80, 0x100, 0x4000_0000, 0x2000_0000] {
            assert!(!passes(what, [9, 9, 9, 9]), "{what:#x}");
        }
    }
}
