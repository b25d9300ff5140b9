//! Each bad request is refused with its error and does nothing.
//!
//! # Problem
//! The device reads structures that a program filled, well or badly. If the module accepts a wrong
//! request, no later version can give it a meaning, and it may do harm today.
//!
//! # Approach
//! For every verb a good request is changed in one place, which must be refused with the errno of
//! the contract. The good request itself must pass, so that nothing is refused for another reason.
//! The domain's counters must not move.
//!
//! # Source
//! `interface/uksm_ioctl.h`, "Rules of every call" and the text of each verb.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use uksm_linux::module::{ioctl, raw};

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::domain::{Domain, Permit, address};
use crate::fixtures::memory::Huge;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, wait};
use crate::fixtures::requests::{
    Change, Fold, PAGES, SEED, Sample, domain_with_peer, footprint, send,
};
use crate::fixtures::sleeper::write_caller;

cases! { "requests":
    info_tells_the_contract_s_bounds_and_this_kernel_s_features Normal Stock 30,
    bad_ranges_are_refused Normal Stock 30,
    bad_listings_are_refused Normal Stock 30,
    bad_configurations_are_refused Normal Stock 30,
    unknown_verbs_are_refused Normal Stock 30,
    pointers_outside_memory_are_refused Normal Stock 30,
    a_32_bit_caller_is_answered_like_any_other Normal Stock 30,
}

fn bad_ranges_are_refused(_: &mut Context) {
    let (domain, _peer, space) = domain_with_peer();
    let (start, end) = (address(0), address(PAGES));
    let good = raw::uksm_break {
        space,
        start,
        end,
        ..Default::default()
    };
    let cases: [(&str, Change<raw::uksm_break>, Errno); 7] = [
        (
            "unknown flag",
            |b| b.flags = raw::UKSM_BREAK_FLAGS + 1,
            Errno::INVAL,
        ),
        (
            "both kinds",
            |b| b.flags = raw::UKSM_BREAK_FOREIGN | raw::UKSM_BREAK_SINGLE,
            Errno::INVAL,
        ),
        ("padding", |b| b.pad = 1, Errno::INVAL),
        ("no such space", |b| b.space = 0xFFFF_FFF0, Errno::NOENT),
        ("start inside a page", |b| b.start += 1, Errno::INVAL),
        ("end inside a page", |b| b.end += 1, Errno::INVAL),
        (
            "end before start",
            |b| (b.start, b.end) = (b.end, b.start),
            Errno::INVAL,
        ),
    ];
    assert_eq!(
        send(&domain, raw::UKSM_IOC_BREAK, &mut good.clone()),
        Ok(())
    );
    for (what, change, errno) in cases {
        let mut bad = good;
        change(&mut bad);
        assert_eq!(
            send(&domain, raw::UKSM_IOC_BREAK, &mut bad),
            Err(errno),
            "BREAK with {what}"
        );
        if what == "padding" {
            continue;
        }
        // COUNT takes the same range, and has no padding.
        let mut count = raw::uksm_count {
            space: bad.space,
            flags: bad.flags,
            start: bad.start,
            end: bad.end,
            ..Default::default()
        };
        assert_eq!(
            send(&domain, raw::UKSM_IOC_COUNT, &mut count),
            Err(errno),
            "COUNT with {what}"
        );
    }
    let mut unknown = raw::uksm_detach {
        space: 0xFFFF_FFF0,
        flags: 0,
    };
    assert_eq!(
        send(&domain, raw::UKSM_IOC_DETACH, &mut unknown),
        Err(Errno::NOENT)
    );
    let mut flagged = raw::uksm_detach { space, flags: 1 };
    assert_eq!(
        send(&domain, raw::UKSM_IOC_DETACH, &mut flagged),
        Err(Errno::INVAL)
    );
    assert_eq!(
        domain.info().spaces,
        1,
        "a refused DETACH should not detach"
    );
}

fn bad_listings_are_refused(_: &mut Context) {
    let (mut domain, _peer, space) = domain_with_peer();
    let other = Peer::filled(PAGES, SEED, PAGES);
    let spaces = [uksm_policy::command::SpaceId(space), domain.attach(&other)];
    assert_eq!(
        domain.merge(&spaces, 0..PAGES, Permit::default()).merged(),
        2 * PAGES
    );
    let mut room = vec![raw::uksm_frame::default(); PAGES];
    let good = raw::uksm_frames {
        frames: room.as_mut_ptr().expose_provenance() as u64,
        count: 16,
        to: 4,
        ..Default::default()
    };
    let cases: [(&str, Change<raw::uksm_frames>, Errno); 4] = [
        ("unknown flag", |f| f.flags = 4, Errno::INVAL),
        (
            "lines the wrong way round",
            |f| (f.from, f.to) = (5, 4),
            Errno::INVAL,
        ),
        ("lines behind the page", |f| f.to = 65, Errno::INVAL),
        ("too many frames", |f| f.count = 4097, Errno::TOOBIG),
    ];
    assert_eq!(
        send(&domain, raw::UKSM_IOC_FRAMES, &mut good.clone()),
        Ok(())
    );
    for (what, change, errno) in cases {
        let mut bad = good;
        change(&mut bad);
        assert_eq!(
            send(&domain, raw::UKSM_IOC_FRAMES, &mut bad),
            Err(errno),
            "FRAMES with {what}"
        );
    }
    assert_eq!(
        domain.info().frames,
        PAGES as u64,
        "refused listings should free nothing"
    );
}

fn bad_configurations_are_refused(_: &mut Context) {
    let domain = Domain::open();
    let mut flagged = raw::uksm_configure {
        flags: 1,
        ..Default::default()
    };
    assert_eq!(
        send(&domain, raw::UKSM_IOC_CONFIGURE, &mut flagged),
        Err(Errno::INVAL)
    );
    let mut single = raw::uksm_configure {
        sharer_limit: 1,
        ..Default::default()
    };
    assert_eq!(
        send(&domain, raw::UKSM_IOC_CONFIGURE, &mut single),
        Err(Errno::INVAL)
    );
    let mut many = raw::uksm_configure {
        sharer_limit: raw::UKSM_MAX_SHARERS + 1,
        ..Default::default()
    };
    assert_eq!(
        send(&domain, raw::UKSM_IOC_CONFIGURE, &mut many),
        Err(Errno::INVAL)
    );
    let mut good = raw::uksm_configure {
        hash_seed: 5,
        frame_limit: 6,
        sharer_limit: 7,
        ..Default::default()
    };
    assert_eq!(send(&domain, raw::UKSM_IOC_CONFIGURE, &mut good), Ok(()));
    let info = domain.info();
    assert_eq!(
        (info.hash_seed, info.frame_limit, info.sharer_limit),
        (5, 6, 7)
    );
    let peer = Peer::new(PAGES);
    let space = domain.attach(&peer);
    assert_eq!(
        send(&domain, raw::UKSM_IOC_CONFIGURE, &mut good),
        Err(Errno::BUSY)
    );
    domain.device.detach(space).expect("DETACH");
    assert_eq!(
        send(&domain, raw::UKSM_IOC_CONFIGURE, &mut good),
        Err(Errno::BUSY),
        "a domain that had a space keeps its constants"
    );
    let sealed = Domain::open();
    sealed.device.seal().expect("SEAL");
    assert_eq!(
        send(&sealed, raw::UKSM_IOC_CONFIGURE, &mut good),
        Err(Errno::BUSY)
    );
    assert_eq!(sealed.info().sealed, 1);
}

fn unknown_verbs_are_refused(_: &mut Context) {
    let domain = Domain::open();
    let size = |size: u32| size << 16;
    for verb in [
        0,
        0xDE0A,
        0xC000_DE0A | size(8),
        raw::UKSM_IOC_INFO ^ size(8),
        raw::UKSM_IOC_FOLD ^ 1 << 30,
        raw::UKSM_IOC_SAMPLE ^ 0x100,
        0x5401,
    ] {
        let mut room = [0u64; 64];
        assert_eq!(
            send(&domain, verb, &mut room),
            Err(Errno::NOTTY),
            "verb {verb:#x}"
        );
        assert_eq!(
            room, [0; 64],
            "an unknown verb {verb:#x} should write nothing"
        );
    }
}

/// Addresses at which this process has no memory that can be read and written.
const NOWHERE: [u64; 5] = [
    8,
    0x1000,
    0x7FFF_FFFF_F000,
    0xFFFF_8000_0000_0000,
    u64::MAX - 7,
];

fn pointers_outside_memory_are_refused(_: &mut Context) {
    let (domain, _peer, space) = domain_with_peer();
    let before = footprint(&domain.info());
    let verbs = [
        raw::UKSM_IOC_INFO,
        raw::UKSM_IOC_CONFIGURE,
        raw::UKSM_IOC_ATTACH,
        raw::UKSM_IOC_DETACH,
        raw::UKSM_IOC_SAMPLE,
        raw::UKSM_IOC_FOLD,
        raw::UKSM_IOC_BREAK,
        raw::UKSM_IOC_COUNT,
        raw::UKSM_IOC_FRAMES,
    ];
    for nowhere in NOWHERE {
        let pointer = std::ptr::without_provenance_mut(usize::try_from(nowhere).expect("64-bit"));
        for verb in verbs {
            // SAFETY: nothing of this process is at that address, and the kernel checks it.
            let answer = unsafe { ioctl::any(domain.device.as_fd(), verb, pointer) };
            assert_eq!(
                answer,
                Err(Errno::FAULT),
                "verb {verb:#x} with a request at {nowhere:#x}"
            );
        }
        let mut sample = Sample::good(space);
        sample.request.runs = nowhere;
        sample.request.pages = sample.pages.as_mut_ptr().expose_provenance() as u64;
        let sampled = send(&domain, raw::UKSM_IOC_SAMPLE, &mut sample.request);
        assert_eq!(
            sampled,
            Err(Errno::FAULT),
            "SAMPLE with runs at {nowhere:#x}"
        );
        let mut fold = Fold::good(space);
        fold.request.entries = nowhere;
        let folded = send(&domain, raw::UKSM_IOC_FOLD, &mut fold.request);
        assert_eq!(
            folded,
            Err(Errno::FAULT),
            "FOLD with entries at {nowhere:#x}"
        );
    }
    assert_eq!(
        footprint(&domain.info()),
        before,
        "requests without memory should do nothing"
    );
    // Answers that cannot be written are detected afterwards, and are errors all the same.
    for nowhere in NOWHERE {
        let mut sample = Sample::good(space);
        sample.request.runs = sample.runs.as_ptr().expose_provenance() as u64;
        sample.request.pages = nowhere;
        let sampled = send(&domain, raw::UKSM_IOC_SAMPLE, &mut sample.request);
        assert_eq!(
            sampled,
            Err(Errno::FAULT),
            "SAMPLE with answers at {nowhere:#x}"
        );
    }
}

fn info_tells_the_contract_s_bounds_and_this_kernel_s_features(_: &mut Context) {
    let domain = Domain::open();
    let info = domain.info();
    assert_eq!(info.api_version, raw::UKSM_API_VERSION);
    let bounds = [
        info.max_runs,
        info.max_pages,
        info.max_fold,
        info.max_frames,
        info.max_sizes,
        info.max_mappings,
        info.lock_batch,
    ];
    assert_eq!(bounds, [4096, 16384, 512, 4096, 4096, 4096, 64]);
    // Nothing is charged before there is a group besides the root.
    let _group = Cgroup::new("features");
    let split = if Huge::exist() {
        raw::UKSM_FEATURE_SPLIT
    } else {
        0
    };
    let stock = split | raw::UKSM_FEATURE_CHARGE | raw::UKSM_FEATURE_GUARD;
    assert_eq!(
        domain.info().features,
        stock,
        "what stock kernels have, and no fault switches"
    );
    assert_eq!((info.spaces, info.frames, info.sealed), (0, 0, 0));
    assert_eq!((info.tried, info.sampled), (0, 0));
    assert_eq!(info.sharer_limit, raw::UKSM_MAX_SHARERS);
    assert!(info.frame_limit > 0);
    let other = Domain::open().info();
    assert_ne!(
        info.hash_seed, other.hash_seed,
        "each domain has a seed of its own"
    );
    let flags = {
        // SAFETY: F_GETFD touches no memory.
        unsafe { libc::fcntl(domain.device.as_fd().as_raw_fd(), libc::F_GETFD) }
    };
    assert_eq!(
        flags,
        libc::FD_CLOEXEC,
        "a device kept by a program would keep the module"
    );
}

fn a_32_bit_caller_is_answered_like_any_other(_: &mut Context) {
    let path = "/tmp/caller32";
    write_caller(path);
    let path = std::ffi::CString::new(path).expect("a path");
    let status = wait(fork(|| {
        let _failed = nix::unistd::execv(&path, &[&path]);
        98
    }));
    assert!(
        libc::WIFEXITED(status),
        "the 32-bit program should exit, its status is {status:#x}"
    );
    let answer = u32::try_from(libc::WEXITSTATUS(status)).expect("a status");
    assert_eq!(
        answer,
        raw::UKSM_API_VERSION,
        "what INFO says to a 32-bit program"
    );
}
