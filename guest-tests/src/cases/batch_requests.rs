//! Bad requests of the two verbs that take batches: SAMPLE and FOLD.
//!
//! # Problem
//! Their requests point to arrays, each element of which can be wrong by itself.
//!
//! # Approach
//! As in [`requests`]: a good request is changed in one place, and must then be refused with the
//! errno of the contract and do nothing.
//!
//! [`requests`]: super::requests

use rustix::io::Errno;
use uksm_linux::module::raw;

use super::Context;
use crate::fixtures::requests::{Change, Fold, Sample, domain_with_peer, footprint};

cases! { "batch_requests":
    bad_samples_are_refused Normal Stock 30,
    bad_folds_are_refused Normal Stock 30,
}

/// Sends each changed sample; each change stands beside its errno.
fn bad_samples_are_refused(_: &mut Context) {
    let cases: [(&str, Change<Sample>, Errno); 17] = [
        ("unknown flag", |s| s.request.flags = 1, Errno::INVAL),
        ("padding", |s| s.request.pad = 1, Errno::INVAL),
        ("padding of a run", |s| s.runs[0].pad = 1, Errno::INVAL),
        (
            "no such space",
            |s| s.runs[0].space = 0xFFFF_FFF0,
            Errno::NOENT,
        ),
        ("space 0", |s| s.runs[0].space = 0, Errno::NOENT),
        (
            "address inside a page",
            |s| s.runs[0].start += 8,
            Errno::INVAL,
        ),
        ("run of no page", |s| s.runs[0].count = 0, Errno::INVAL),
        (
            "stride of a run of one",
            |s| {
                (s.runs[0].count, s.runs[0].stride, s.request.nr_pages) = (1, 2, 1);
            },
            Errno::INVAL,
        ),
        (
            "run over the end of all addresses",
            |s| s.runs[0].start = u64::MAX - 4095,
            Errno::INVAL,
        ),
        ("stride 0", |s| s.runs[0].stride = 0, Errno::INVAL),
        (
            "fewer answers than pages",
            |s| s.request.nr_pages = 3,
            Errno::INVAL,
        ),
        (
            "more answers than pages",
            |s| s.request.nr_pages = 5,
            Errno::INVAL,
        ),
        (
            "lines the wrong way round",
            |s| (s.request.from, s.request.to) = (5, 4),
            Errno::INVAL,
        ),
        ("lines behind the page", |s| s.request.to = 65, Errno::INVAL),
        ("too many runs", |s| s.request.nr_runs = 4097, Errno::TOOBIG),
        (
            "too many pages",
            |s| s.request.nr_pages = 16385,
            Errno::TOOBIG,
        ),
        (
            "counts that wrap around",
            |s| {
                s.runs[0].count = u32::MAX;
                s.runs.push(raw::uksm_run {
                    count: 5,
                    ..s.runs[0]
                });
                s.request.nr_runs = 2;
            },
            Errno::INVAL,
        ),
    ];
    let (domain, _peer, space) = domain_with_peer();
    assert_eq!(
        Sample::good(space).send(&domain),
        Ok(()),
        "the unchanged sample"
    );
    let before = footprint(&domain.info());
    for (what, change, errno) in cases {
        let mut sample = Sample::good(space);
        change(&mut sample);
        assert_eq!(sample.send(&domain), Err(errno), "SAMPLE with {what}");
        assert_eq!(
            footprint(&domain.info()),
            before,
            "SAMPLE with {what} should do nothing"
        );
    }
}

fn bad_folds_are_refused(_: &mut Context) {
    let cases: [(&str, Change<Fold>, Errno); 15] = [
        ("unknown flag", |f| f.request.flags = 8, Errno::INVAL),
        ("padding", |f| f.request.pad = 1, Errno::INVAL),
        (
            "padding of an entry",
            |f| f.entries[1].pad = [0, 0, 1],
            Errno::INVAL,
        ),
        ("status set", |f| f.entries[1].status = 1, Errno::INVAL),
        ("reason set", |f| f.entries[1].reason = 1, Errno::INVAL),
        ("unknown kind", |f| f.entries[1].kind = 3, Errno::INVAL),
        (
            "set number over the bound",
            |f| f.entries[1].set = 512,
            Errno::INVAL,
        ),
        (
            "set number for another kind",
            |f| {
                f.entries[1].kind = raw::Kind::Zero as u8;
                f.entries[1].set = 1;
            },
            Errno::INVAL,
        ),
        (
            "frame for another kind",
            |f| f.entries[1].frame = 7,
            Errno::INVAL,
        ),
        (
            "frame 0",
            |f| f.entries[1].kind = raw::Kind::Frame as u8,
            Errno::INVAL,
        ),
        (
            "address inside a page",
            |f| f.entries[1].address += 64,
            Errno::INVAL,
        ),
        (
            "no such space",
            |f| f.entries[1].space = 0xFFFF_FFF0,
            Errno::NOENT,
        ),
        ("too many lines", |f| f.request.lines = 65, Errno::INVAL),
        ("too many entries", |f| f.request.count = 513, Errno::TOOBIG),
        (
            "far too many entries",
            |f| f.request.count = u32::MAX,
            Errno::TOOBIG,
        ),
    ];
    let (domain, _peer, space) = domain_with_peer();
    assert_eq!(
        Fold::good(space).send(&domain),
        Ok(()),
        "the unchanged fold"
    );
    let before = footprint(&domain.info());
    for (what, change, errno) in cases {
        let mut fold = Fold::good(space);
        change(&mut fold);
        assert_eq!(fold.send(&domain), Err(errno), "FOLD with {what}");
        assert_eq!(
            footprint(&domain.info()),
            before,
            "FOLD with {what} should do nothing"
        );
    }
}
