//! Swap on compressed memory, and pages that are on their way there or back.
//!
//! # Problem
//! A page in swap has no page to merge; one in the swap cache has a copy outside; a frame cannot
//! be swapped at all.
//!
//! # Approach
//! [`Swap`] turns a zram device into swap: its header is written here, since the guest has no
//! mkswap. Peers page out and in around merges.
//!
//! # Source
//! The swap header: include/linux/swap.h of the kernel, `union swap_header`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{PageState, Reason, Status};

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::contents::PAGE;
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::memory::answer;
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;
use crate::fixtures::zram::Zram;

cases! { "swap":
    swapped_pages_are_gone_until_they_are_read_and_then_merge Normal Stock 90,
    merged_pages_are_not_swapped Normal Stock 60,
}

/// A zram device that is used as swap, until dropped.
#[derive(Debug)]
pub(super) struct Swap {
    path: CString,
    /// Removed after it was taken out of use.
    _device: Zram,
}

impl Swap {
    /// Makes and uses a swap device of this size.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub(super) fn on(context: &Context, mebibytes: u64) -> Swap {
        let zram = Zram::of(context, mebibytes);
        let pages = u32::try_from((mebibytes << 20) / PAGE as u64).expect("a small device");
        let mut header = vec![0u8; PAGE];
        header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
        header[1028..1032].copy_from_slice(&(pages - 1).to_le_bytes());
        header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
        let device = File::options().write(true).open(zram.path());
        let device = device.unwrap_or_else(|error| panic!("{}: {error}", zram.path()));
        device.write_all_at(&header, 0).expect("a swap header");
        device.sync_all().expect("a swap header");
        drop(device);
        let path = CString::new(zram.path()).expect("a path");
        // SAFETY: swapon reads the path only.
        answer(unsafe { libc::swapon(path.as_ptr(), 0) }).expect("swapon");
        Swap {
            path,
            _device: zram,
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: swapoff reads the path only.
        if let Err(error) = answer(unsafe { libc::swapoff(self.path.as_ptr()) }) {
            eprintln!("{:?} stays in use as swap: {error}", self.path);
        }
    }
}

const PAGES: usize = 512;
const SEED: u64 = 26;
/// Time after which an unused page must have gone to swap.
const ENOUGH: Duration = Duration::from_secs(15);

fn swapped(peer: &Peer) -> usize {
    pagemap::entries(peer.pid(), 0..PAGES)
        .iter()
        .filter(|entry| entry.is_swapped())
        .count()
}

/// Pages out all pages. A page that is held for a moment (by a batch on its way to the LRU,
/// write-back, or a slow debugging kernel) is tried again for this long.
fn page_out(peer: &mut Peer, time_limit: Duration) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < time_limit {
        // Empties the per-CPU lists of pages on their way to the LRU, which cannot be reclaimed.
        // Compaction does that, too, but pages that it moves are on such a list afterwards.
        set("/proc/sys/vm/drop_caches", "1");
        peer.run(|own| own.memory.advise(0..PAGES, libc::MADV_PAGEOUT).is_ok());
        if swapped(peer) == PAGES {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    let stuck: Vec<String> = pagemap::entries(peer.pid(), 0..PAGES)
        .iter()
        .filter_map(|entry| entry.pfn())
        .take(8)
        .map(|number| format!("{:#x}", pagemap::kernel_flags(number)))
        .collect();
    Err(io::Error::other(format!(
        "only {} of {PAGES} pages went to swap; kernel flags of others: {stuck:?}",
        swapped(peer)
    )))
}

fn swapped_pages_are_gone_until_they_are_read_and_then_merge(context: &mut Context) {
    let _swap = Swap::on(context, 64);
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    page_out(&mut a, ENOUGH).expect("MADV_PAGEOUT");
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::Swap), PAGES);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.with(Status::Gone, Reason::Swapped),
        PAGES,
        "{counts:?}"
    );
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        PAGES,
        "{counts:?}"
    );

    assert_eq!(a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.merged(),
        2 * PAGES,
        "pages read back should merge: {counts:?}"
    );
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

fn merged_pages_are_not_swapped(context: &mut Context) {
    let _swap = Swap::on(context, 64);
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    page_out(&mut a, Duration::from_secs(1)).expect_err("frames should stay in memory");
    assert_eq!(swapped(&a), 0);
    assert_eq!(domain.unmerge(spaces[0], 0..PAGES), PAGES as u64);
    page_out(&mut a, ENOUGH).expect("broken pages can be swapped again");
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}
