//! The limit of frames that all domains have together.
//!
//! # Problem
//! Frames can be neither moved nor swapped. A limit for each domain is none for the machine: with
//! eight groups it is eight times as high. And memory that frames cannot come from (pools of huge
//! pages, memory for movable pages) must not count.
//!
//! # Approach
//! The module's parameter sets the limit to one percent, which small processes of five domains
//! reach. The parameter is as it was afterwards. A machine three quarters of whose memory are for
//! movable pages reaches its limit as it is.
//!
//! # Source
//! `interface/uksm_ioctl.h`, INFO and `UKSM_REASON_MACHINE`.

use std::{fs, iter};

use uksm_linux::module::Info;
use uksm_policy::command::{Reason, Status};
use uksm_testkit::kernel_file;

use super::Context;
use crate::fixtures::accounting::{SteadyMarks, Zone, events, set, value};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;

cases! { "frame_limits":
    all_domains_together_stay_below_the_limit_of_the_machine Normal Stock 60,
    pools_of_huge_pages_lower_the_limit Normal Stock 30,
    a_percentage_out_of_bounds_is_refused Normal Stock 30,
    memory_for_movable_pages_neither_counts_nor_has_frames Normal Numa 120,
    where_the_kernels_memory_is_used_up_merging_stops_and_does_not_reclaim Normal Numa 120,
}

const SEED: u64 = 62;
const PERCENT: &str = "/sys/module/uksm/parameters/frame_percent";
/// For each zone, the part of the memory of higher ones that is kept from their allocations.
const KEPT: &str = "/proc/sys/vm/lowmem_reserve_ratio";
const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// `UKSM_FRAME_MARGIN`.
const MARGIN: u64 = 1024;
/// Domains, each with two processes whose pages are equal.
const DOMAINS: usize = 5;

/// The parameter, which is 0 again when this is dropped.
#[derive(Debug)]
struct Percentage;

impl Percentage {
    fn set(percent: u32) -> Percentage {
        set(PERCENT, &percent.to_string());
        Percentage
    }
}

impl Drop for Percentage {
    fn drop(&mut self) {
        set(PERCENT, "0");
    }
}

/// All of ZONE_DMA is kept for devices, as where there is much memory, until this is dropped.
#[derive(Debug)]
struct KeptZone {
    before: String,
}

impl KeptZone {
    fn set() -> KeptZone {
        let before = fs::read_to_string(KEPT).expect(KEPT);
        let others = before.split_whitespace().skip(1);
        let ratios: Vec<&str> = iter::once("1").chain(others).collect();
        set(KEPT, &ratios.join(" "));
        KeptZone { before }
    }
}

impl Drop for KeptZone {
    fn drop(&mut self) {
        set(KEPT, self.before.trim());
    }
}

fn info() -> Info {
    Domain::open().info()
}

fn all_domains_together_stay_below_the_limit_of_the_machine(context: &mut Context) {
    let default = info().machine_frame_limit;
    let _percentage = Percentage::set(1);
    let before = info();
    let limit = before.machine_frame_limit;
    assert!(
        limit > 64 && limit < default / 20,
        "1 % is {limit}, the default {default}"
    );
    let left = usize::try_from(limit - before.machine_frames).expect("few");
    // The last one gets no room.
    let pages = left / (DOMAINS - 1);
    let mut all: Vec<_> = (0..DOMAINS)
        .map(|_| {
            let peers = [(); 2].map(|()| Peer::filled(pages, SEED, pages));
            let domain = Domain::open();
            let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
            (domain, spaces, peers)
        })
        .collect();
    let mut made = 0;
    for (place, (domain, spaces, _)) in all.iter_mut().enumerate() {
        let counts = domain.merge(&*spaces, 0..pages, Permit::default());
        let info = domain.info();
        made += info.frames;
        // A group of eight frames is reserved at once.
        let is_last = place == DOMAINS - 1;
        let full = counts.with(Status::Full, Reason::Machine);
        assert_eq!(full > 0, is_last, "domain {place}: {counts:?}");
        assert_eq!(counts.with(Status::Full, Reason::Frames), 0, "{counts:?}");
        assert_eq!(
            info.machine_frames,
            before.machine_frames + made,
            "{info:?}"
        );
        assert!(info.machine_frames <= limit, "{info:?}");
        context.note(format!("domain {place}: {counts:?}"));
    }
    // What the first one gives up is there for the last one.
    let (mut first, _, peers) = all.remove(0);
    peers.into_iter().for_each(Peer::exit);
    first.assert_all_frames_return();
    let (domain, spaces, peers) = all.last_mut().expect("the last one");
    let again = domain.merge(&*spaces, 0..pages, Permit::default());
    assert_eq!(again.of(Status::Full), 0, "{again:?}");
    for peer in peers {
        assert_eq!(
            peer.run(move |own| own.memory.changed(SEED, pages, 0..pages)),
            0
        );
    }
    drop(first);
    for (mut domain, _, peers) in all {
        peers.into_iter().for_each(Peer::exit);
        domain.assert_all_frames_return();
    }
    assert_eq!(info().machine_frames, before.machine_frames);
}

fn pools_of_huge_pages_lower_the_limit(context: &mut Context) {
    let _percentage = Percentage::set(50);
    let before = info().machine_frame_limit;
    set(POOL, "16");
    let huge = value(POOL) * 512;
    let limit = info().machine_frame_limit;
    set(POOL, "0");
    context.note(format!(
        "{huge} pages in pools, a limit of {limit} after {before}"
    ));
    assert!(huge > 0, "a pool should be had");
    let lower = before - limit;
    assert!(lower.abs_diff(huge / 2) <= 8, "by {lower}");
    assert!(info().machine_frame_limit.abs_diff(before) <= 8);

    // Nearly all memory.
    set(POOL, "100000");
    let huge = value(POOL) * 512;
    let limit = info().machine_frame_limit;
    set(POOL, "0");
    context.note(format!("{huge} pages in pools, a limit of {limit}"));
    assert!(huge > before, "more than half of memory");
    let lower = before - limit;
    assert!(lower.abs_diff(huge / 2) <= 8, "by {lower}");
}

fn a_percentage_out_of_bounds_is_refused(_: &mut Context) {
    let before = value(PERCENT);
    for percent in ["91", "-1", "x", "4294967296"] {
        kernel_file::write(PERCENT, percent).expect_err(percent);
        assert_eq!(value(PERCENT), before, "{percent}");
    }
}

/// Pages of the zones, by `of`, that are for movable pages only or not.
fn sum(zones: &[Zone], movable: bool, of: fn(&Zone) -> u64) -> u64 {
    let zones = zones.iter().filter(|zone| zone.is_movable() == movable);
    zones.map(of).sum()
}

fn memory_for_movable_pages_neither_counts_nor_has_frames(context: &mut Context) {
    /// The part for frames, on a machine without swap.
    const PERCENT: u64 = 40;
    const BEYOND: usize = 2048;
    let _marks = SteadyMarks::set();
    let zones = Zone::all();
    let movable = sum(&zones, true, |zone| zone.managed);
    let others = sum(&zones, false, |zone| zone.managed);
    assert!(movable > 2 * others, "{zones:?}");
    let before = info();
    let limit = before.machine_frame_limit;
    let expected = sum(&zones, false, |zone| zone.managed.saturating_sub(zone.high));
    let expected = expected * PERCENT / 100;
    assert!(
        limit.abs_diff(expected) <= expected / 50,
        "{limit}, not {expected}"
    );

    let left = usize::try_from(limit - before.machine_frames).expect("few");
    let pages = left + BEYOND;
    let mut peers = [(); 2].map(|()| Peer::filled(pages, SEED, pages));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let kills = events("oom_kill");
    let counts = domain.merge(&spaces, 0..pages, Permit::default());
    let zones = Zone::all();
    let free = sum(&zones, false, |zone| zone.free);
    context.note(format!(
        "{counts:?}; {free} of the kernel's {others} are free"
    ));
    assert!(counts.with(Status::Full, Reason::Machine) > 0, "{counts:?}");
    assert_eq!(counts.with(Status::Full, Reason::Memory), 0, "{counts:?}");
    let made = domain.info().machine_frames;
    assert!(made <= limit && made + 8 >= limit, "{made} of {limit}");
    assert_eq!(events("oom_kill"), kills, "nobody should be killed");
    assert!(free > others / 10, "{zones:?}");
    let is_movable = |pfn: &u64| {
        let mut zones = zones.iter().filter(|zone| zone.is_movable());
        zones.any(|zone| (zone.start..zone.start + zone.spanned).contains(pfn))
    };
    let [one, two] = peers.each_ref().map(|peer| pfns(peer.pid(), 0..pages));
    let frames = one.iter().zip(&two).filter(|(one, two)| one == two);
    let misplaced = frames.filter(|(pfn, _)| is_movable(pfn)).count();
    assert_eq!(misplaced, 0, "frames in memory for movable pages");
    let of_peers = one.iter().chain(&two).filter(|pfn| is_movable(pfn)).count();
    assert!(
        of_peers > BEYOND,
        "other pages should lie there: {of_peers}"
    );
    for peer in &mut peers {
        assert_eq!(
            peer.run(move |own| own.memory.changed(SEED, pages, 0..pages)),
            0
        );
    }
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}

fn where_the_kernels_memory_is_used_up_merging_stops_and_does_not_reclaim(context: &mut Context) {
    const BEYOND: usize = 64;
    let _marks = SteadyMarks::set();
    let _kept = KeptZone::set();
    // Cache counts as free.
    set("/proc/sys/vm/drop_caches", "1");
    let _percentage = Percentage::set(90);
    let before = info();
    let left = before.machine_frame_limit - before.machine_frames;
    let pages = usize::try_from(left).expect("few") + BEYOND;
    let mut peers = [(); 2].map(|()| Peer::filled(pages, SEED, pages));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let zones = ["dma", "dma32", "normal"];
    let stalls = || -> u64 {
        let stalled = zones.map(|zone| events(&format!("allocstall_{zone}")));
        stalled.iter().sum()
    };
    let (kills, stalled) = (events("oom_kill"), stalls());
    let counts = domain.merge(&spaces, 0..pages, Permit::default());
    let stalled = stalls() - stalled;
    let mut zones = Zone::all();
    zones.retain(|zone| !zone.is_for_devices());
    let room = sum(&zones, false, |zone| zone.free.saturating_sub(zone.high));
    context.note(format!(
        "{counts:?}; {stalled} stalls, {room} pages above the marks"
    ));
    assert!(counts.with(Status::Full, Reason::Memory) > 0, "{counts:?}");
    assert_eq!(counts.with(Status::Full, Reason::Machine), 0, "{counts:?}");
    assert_eq!(stalled, 0, "nobody should reclaim for frames");
    assert!(room >= MARGIN / 2, "{zones:?}");
    assert_eq!(events("oom_kill"), kills, "nobody should be killed");
    for peer in &mut peers {
        assert_eq!(
            peer.run(move |own| own.memory.changed(SEED, pages, 0..pages)),
            0
        );
    }
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}
