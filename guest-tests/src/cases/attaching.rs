//! The processes that can be attached, and the callers that may attach them.
//!
//! # Problem
//! Attaching lets a program learn about another's memory. So the caller needs the right to trace it
//! at every call, even if another process opened the device. A task without memory of its own
//! cannot be attached.
//!
//! # Approach
//! Each refusal has its process: a kernel thread, a zombie, one that executes another program, a
//! caller without the capability, a sealed domain, a file that is no pidfd.

use std::fs::File;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;
use uksm_linux::module::raw;
use uksm_policy::command::{FoldKind, PageState, Reason, Status};

use super::Context;
use crate::fixtures::capabilities::drop_the_right_to_trace;
use crate::fixtures::domain::{Domain, Permit, address, entry};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, leave, pause, signal, wait};
use crate::fixtures::requests::{attach, send};
use crate::fixtures::userfault;

cases! { "attaching":
    attaching_takes_the_right_to_trace_at_every_call Normal Stock 30,
    a_sealed_domain_attaches_nobody Normal Stock 30,
    a_file_that_is_no_pidfd_is_refused Normal Stock 30,
    kernel_threads_and_zombies_have_no_address_space Normal Stock 30,
    children_sharing_memory_share_the_space Normal Stock 30,
    an_exited_process_leaves_a_dead_space Normal Stock 30,
    a_space_in_use_by_a_call_is_not_another_domain_s Normal Stock 30,
}

const PAGES: usize = 16;
const SEED: u64 = 23;

fn attaching_takes_the_right_to_trace_at_every_call(_: &mut Context) {
    let target = Peer::filled(PAGES, SEED, PAGES);
    let domain = Domain::open();
    // The child has the open device of a process that may attach, but not its right.
    let status = wait(fork(|| {
        drop_the_right_to_trace();
        match attach(&domain, target.pid()) {
            Err(Errno::PERM) => 0,
            other => {
                eprintln!("attaching without the right answered {other:?}");
                1
            }
        }
    }));
    assert_eq!(
        status, 0,
        "attaching without CAP_SYS_PTRACE should be EPERM"
    );
    attach(&domain, target.pid()).expect("attaching with the right");
}

fn a_sealed_domain_attaches_nobody(_: &mut Context) {
    let (one, two) = (
        Peer::filled(PAGES, SEED, PAGES),
        Peer::filled(PAGES, SEED, PAGES),
    );
    let mut domain = Domain::open();
    let space = domain.attach(&one);
    domain.device.seal().expect("SEAL");
    assert_eq!(attach(&domain, two.pid()), Err(Errno::PERM));
    let copy = Domain {
        device: domain.device.try_clone().expect("a copy of the file"),
    };
    assert_eq!(
        attach(&copy, two.pid()),
        Err(Errno::PERM),
        "a copy is sealed, too"
    );
    assert_eq!(
        domain.in_state(space, 0..PAGES, PageState::Anon),
        PAGES,
        "the rest still works"
    );
    assert_eq!(domain.info().sealed, 1);
}

fn a_file_that_is_no_pidfd_is_refused(_: &mut Context) {
    let domain = Domain::open();
    let file = File::open("/dev/null").expect("/dev/null");
    let errno = domain
        .device
        .attach(file.as_fd())
        .expect_err("no pidfd")
        .errno();
    assert_eq!(errno, Some(Errno::BADF));
    let errno = domain
        .device
        .attach(domain.device.as_fd())
        .expect_err("no pidfd")
        .errno();
    assert_eq!(errno, Some(Errno::BADF));
}

fn kernel_threads_and_zombies_have_no_address_space(_: &mut Context) {
    const KTHREADD: i32 = 2;
    let domain = Domain::open();
    assert_eq!(attach(&domain, KTHREADD), Err(Errno::SRCH));
    let zombie = fork(|| leave(0));
    let stat = format!("/proc/{zombie}/stat");
    while !std::fs::read_to_string(&stat)
        .expect("stat")
        .contains(") Z ")
    {
        std::thread::yield_now();
    }
    assert_eq!(attach(&domain, zombie), Err(Errno::SRCH));
    wait(zombie);
    assert_eq!(domain.info().spaces, 0);
}

fn children_sharing_memory_share_the_space(_: &mut Context) {
    let mut parent = Peer::filled(PAGES, SEED, PAGES);
    let domain = Domain::open();
    let space = domain.attach(&parent);
    // A child that shares the address space, like a child of vfork before its exec.
    let child = parent.run(|_| {
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        let mut stack = vec![0u128; 4096].leak().as_mut_ptr_range();
        // SAFETY: the child runs on a stack of its own that is never freed, and only pauses.
        unsafe { libc::clone(sleeper, stack.end.cast(), flags, (&raw mut stack).cast()) }
    });
    assert!(child > 0, "clone");
    assert_eq!(
        attach(&domain, child),
        Ok(space),
        "the same memory is the same space"
    );
    assert_eq!(domain.info().spaces, 1);
    signal(child, libc::SIGKILL);
    parent.run(move |_| wait(child));
}

extern "C" fn sleeper(_: *mut libc::c_void) -> i32 {
    pause()
}

fn an_exited_process_leaves_a_dead_space(_: &mut Context) {
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let space = domain.attach(&peer);
    peer.exit();
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Dead), PAGES);
    let entries = [
        entry(space, 0, FoldKind::Set(0)),
        entry(space, 1, FoldKind::Zero),
    ];
    for outcome in domain.fold(&entries, Permit::default()) {
        assert_eq!(
            (outcome.status, outcome.reason),
            (Status::Gone, Reason::Dead)
        );
    }
    assert_eq!(domain.unmerge(space, 0..PAGES), 0);
    domain
        .device
        .detach(space)
        .expect("a dead space can be detached");
    assert_eq!(domain.info().spaces, 0);
}

/// DETACH during a call: until the call ends, its domain could still merge pages of the space.
fn a_space_in_use_by_a_call_is_not_another_domain_s(_: &mut Context) {
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let domain = Domain::open();
    let space = domain.attach(&peer);
    // Its answer goes to a page that is never written, so the call does not end.
    let caller = fork(|| {
        let answer = userfault::page_that_is_never_written();
        let runs = [raw::uksm_run {
            start: address(0),
            space: space.0,
            count: 1,
            stride: 1,
            pad: 0,
        }];
        let mut request = raw::uksm_sample {
            runs: runs.as_ptr() as u64,
            pages: answer,
            nr_runs: 1,
            nr_pages: 1,
            ..Default::default()
        };
        i32::from(send(&domain, raw::UKSM_IOC_SAMPLE, &mut request).is_err())
    });
    let path = format!("/proc/{caller}/wchan");
    for _ in 0..200 {
        if std::fs::read_to_string(&path).is_ok_and(|place| place.contains("userfault")) {
            break;
        }
        sleep(Duration::from_millis(5));
    }
    let place = std::fs::read_to_string(&path).expect("wchan");
    assert!(
        place.contains("userfault"),
        "the call should wait for its answer's page: {place}"
    );
    domain.device.detach(space).expect("DETACH");
    let other = Domain::open();
    assert_eq!(
        attach(&other, peer.pid()),
        Err(Errno::BUSY),
        "a call of the first domain still works on it"
    );
    let again = attach(&domain, peer.pid()).expect("its own domain may have it again");
    assert_ne!(again, space);
    domain.device.detach(again).expect("DETACH");
    signal(caller, libc::SIGKILL);
    wait(caller);
    attach(&other, peer.pid()).expect("nobody works on it any more");
}
