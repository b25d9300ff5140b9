//! What an engine takes, counted by the allocator, and what it says that it takes.

use uksm_policy::Params;
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::Governor;
use uksm_simulator::layout::{Layout, Place};
use uksm_simulator::workload::{Crowd, Scatter};
use uksm_simulator::{Alone, Costs, Driven, Host, Workload, World};

const SEED: u64 = 5;
const SECOND: u64 = 1_000_000_000;
/// Pages in a MiB.
const MIB: u64 = 256;

/// What an engine takes after it has run for a while.
#[derive(Debug)]
struct Taken {
    /// As the allocator counts: what is freed when it goes.
    freed: u64,
    /// As it reports.
    reported: u64,
    regions: u64,
    frames: u64,
    /// Bytes of the pages that it follows.
    followed: u64,
}

fn after(seconds: u64, workload: Box<dyn Workload>) -> Taken {
    let world = World::new(Host::new(SEED, Costs::default()), vec![workload]);
    let params = Params::governor(Governor::Full);
    let driven = Driven::new(params, SEED, 0).expect("a governor is accepted");
    let mut alone = Alone::new(world, driven);
    while alone.now() < seconds * SECOND {
        alone.turn();
    }
    let followed = alone.world.host.resident() * PAGE_SIZE;
    let Driven { engine, .. } = alone.deduplicator;
    let report = engine.report();
    let dropped = allocation_counter::measure(|| drop(engine));
    let taken = Taken {
        freed: dropped.bytes_current.unsigned_abs(),
        reported: report.index.index_bytes + report.region_memory.region_bytes,
        regions: report.regions.regions,
        frames: report.frames.frames,
        followed,
    };
    let each = |bytes: u64| bytes as f64 / taken.followed as f64 * 256.0;
    println!(
        "{taken:?}: {:.2}/256 counted, {:.2}/256 reported",
        each(taken.freed),
        each(taken.reported)
    );
    taken
}

fn scatter(processes: u64, pages: u64, percent: u64, place: Place) -> Box<dyn Workload> {
    let layout = Layout {
        pages,
        percent,
        place,
        pool: 1,
        seed: SEED,
    };
    Box::new(Scatter {
        processes,
        layout,
        begin: 0,
    })
}

/// The report is not far below what is there: it leaves out what is under way, about a MiB, and room that
/// was reserved and is not touched.
fn is_reported(taken: &Taken) -> bool {
    taken.reported * 100 + (100 << 18) >= taken.freed * 80
}

#[test]
fn an_engine_takes_at_most_a_256th_of_what_it_follows() {
    let different = after(20, scatter(16, 128 * MIB, 1, Place::Same));
    let guests = after(20, scatter(16, 128 * MIB, 40, Place::GuestRuns));
    for taken in [different, guests] {
        assert!(taken.freed <= taken.followed / 256, "{taken:?}");
        assert!(is_reported(&taken), "{taken:?}");
    }
}

#[test]
fn a_frame_takes_36_bytes_once_all_is_merged() {
    let pairs = after(20, scatter(2, 512 * MIB, 100, Place::Singly));
    assert!(
        pairs.frames * 100 >= 512 * MIB * 99,
        "all is merged: {pairs:?}"
    );
    assert!(pairs.freed <= pairs.frames * 36, "{pairs:?}");
    assert!(is_reported(&pairs), "{pairs:?}");
}

#[test]
fn a_small_mapping_takes_a_kib() {
    let crowd = after(30, Box::new(Crowd::new(1000, 0, 0, 0, SEED)));
    assert_eq!(crowd.regions, 16_000);
    assert!(crowd.freed <= crowd.regions * 1024, "{crowd:?}");
    assert!(is_reported(&crowd), "{crowd:?}");
}
