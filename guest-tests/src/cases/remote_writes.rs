//! Writes to merged pages by other processes.
//!
//! # Problem
//! A debugger or process_vm_writev writes into pages that it does not map, even into a read-only
//! mapping. Written in place, a merged page would change for all processes that share it.
//!
//! # Approach
//! Each way of writing is used on a page of one peer; the writer's word must be there, and the
//! other peer must not see it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use libc::{PROT_READ, PROT_WRITE};
use uksm_policy::command::PageState;

use super::Context;
use crate::fixtures::domain::{Domain, Permit, address};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::wait;

cases! { "remote_writes":
    each_way_to_write_into_another_process_copies_the_merged_page Normal Stock 60,
}

const PAGES: usize = 64;
const SEED: u64 = 13;
const WORD: u64 = 0x1122_3344_5566_7788;

fn each_way_to_write_into_another_process_copies_the_merged_page(_: &mut Context) {
    let mut target = Peer::filled(PAGES, SEED, PAGES);
    let mut witness = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&target), domain.attach(&witness)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let pid = target.pid();

    write_vector(pid, address(0)).expect("process_vm_writev");
    traced(pid, || poke(pid, address(1)).expect("POKEDATA"));
    target.run(|own| own.memory.protect(2..3, PROT_READ).expect("mprotect"));
    traced(pid, || {
        poke(pid, address(2)).expect("POKEDATA into a read-only mapping");
    });
    write_mem_file(pid, address(3)).expect("/proc/PID/mem");
    target.run(|own| {
        own.memory
            .protect(2..3, PROT_READ | PROT_WRITE)
            .expect("mprotect");
    });

    for page in 0..4 {
        let seen = target.run(move |own| own.memory.word(page, 0));
        assert_eq!(
            seen, WORD,
            "page {page} should hold what was written from outside"
        );
    }
    assert_eq!(
        target.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        4
    );
    assert_eq!(
        witness.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::Anon), 4);
    target.exit();
    witness.exit();
    domain.assert_all_frames_return();
}

fn write_vector(pid: i32, address: u64) -> io::Result<()> {
    let word = WORD.to_ne_bytes();
    let pointer = |address: u64| {
        std::ptr::with_exposed_provenance_mut(usize::try_from(address).expect("64-bit"))
    };
    let local = libc::iovec {
        iov_base: word.as_ptr().cast_mut().cast(),
        iov_len: word.len(),
    };
    let remote = libc::iovec {
        iov_base: pointer(address),
        iov_len: word.len(),
    };
    // SAFETY: the local vector is read only, and names `word`.
    let written =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if written == 8 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn write_mem_file(pid: i32, address: u64) -> io::Result<()> {
    let file = File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    file.write_all_at(&WORD.to_ne_bytes(), address)
}

/// Does `work` while this process traces and stops the other.
fn traced(pid: i32, work: impl FnOnce()) {
    trace(libc::PTRACE_ATTACH, pid, 0, 0).expect("PTRACE_ATTACH");
    wait(pid);
    work();
    trace(libc::PTRACE_DETACH, pid, 0, 0).expect("PTRACE_DETACH");
}

fn poke(pid: i32, address: u64) -> io::Result<()> {
    trace(libc::PTRACE_POKEDATA, pid, address, WORD)
}

fn trace(request: libc::c_uint, pid: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: these requests read and write memory of the traced process only.
    let answer = unsafe { libc::ptrace(request, pid, address, data) };
    if answer == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
