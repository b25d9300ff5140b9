//! Processes that demand more than an engine can follow, and their effect on others: two newcomers
//! with equal pages are merged as soon as on any host, and memory stays bounded.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_simulator::{Fill, Host, Run};

/// Pages of each newcomer.
const PAGES: u64 = 64 * MIB;
/// Time of their start.
const COME: Nanos = 20 * S;
/// Longest time until nine tenths of them are merged (`crowd`, governor full).
const SOON: Nanos = 3 * S;

/// Runs a host on which `acts` acts; starts two newcomers and waits until they are merged.
fn beside(host: Host, mut acts: impl FnMut(&mut Host, Nanos)) -> Run {
    let mut run = run(full(), host);
    run.until(COME, &mut acts);
    for number in 0..2 {
        let space = run.host.spawn(900 + number);
        let same = unique(1 << 20);
        run.host
            .map(space, base(1), PAGES, HEAP, &Fill::Dense(&same));
    }
    let wanted = run.host.saved() + PAGES * 9 / 10;
    while run.host.saved() < wanted && run.now() < COME + 10 * SOON {
        run.until(run.now() + 50 * MS, &mut acts);
    }
    let took = run.now() - COME;
    assert!(took <= SOON, "{} ms: {}", took / MS, show(&run));
    let (spent, now) = (run.spent(), run.now());
    run.until(now + 60 * S, &mut acts);
    let share = (run.spent() - spent) as f64 / (run.now() - now) as f64;
    let memory = run.engine.report().region_memory.region_bytes;
    eprintln!(
        "{} ms; then {share:.4} of a core, {} MiB for regions",
        took / MS,
        memory >> 20
    );
    assert!(memory < 64 << 20, "{memory} bytes");
    assert!(share < 0.1, "{share}: {}", show(&run));
    assert_balanced(&run);
    run
}

/// Maps `count` unused mappings of `pages` each.
fn reserve(host: &mut Host, space: SpaceId, count: u64, pages: u64) {
    let distance = (pages * PAGE_SIZE + 1).next_power_of_two();
    for number in 1..=count {
        host.map(space, number * distance, pages, HEAP, &Fill::Sparse(&[]));
    }
}

#[test]
fn sixty_thousand_growing_mappings_delay_nobody_else() {
    const MAPPINGS: u64 = 60_000;
    /// This many mappings grow by a page together, at this interval.
    const TOGETHER: u64 = 60;
    const EVERY: Nanos = 50 * MS;
    let start = |number: u64| base(2) + number * 64 * PAGE_SIZE;
    let mut host = host();
    let space = host.spawn(1);
    for number in 0..MAPPINGS {
        let own = unique(number + 1);
        host.map(space, start(number), 1, HEAP, &Fill::Dense(&own));
    }
    let (mut next, mut due) = (0, 0);
    let run = beside(host, |host, now| {
        while due <= now {
            due += EVERY;
            for _ in 0..TOGETHER {
                let (number, pages) = (next % MAPPINGS, 1 + next / MAPPINGS);
                host.grow(space, start(number), 1);
                let address = start(number) + pages * PAGE_SIZE;
                host.write(space, address, unique(number + 1)(pages));
                next += 1;
            }
        }
    });
    assert!(next > MAPPINGS, "each has grown");
    assert!(run.engine.report().regions.regions <= MAPPINGS + 16);
}

#[test]
fn two_thousand_reservations_of_63_gib_delay_nobody_else() {
    let mut host = host();
    let space = host.spawn(1);
    reserve(&mut host, space, 2000, 63 << 18);
    beside(host, |_, _| {});
}

#[test]
fn a_mapping_of_8_tib_delays_nobody_else_wherever_it_is_used() {
    let mut host = host();
    let space = host.spawn(1);
    let start = 1 << 45;
    host.map(space, start, 1 << 31, HEAP, &Fill::Sparse(&[]));
    let (mut next, mut due) = (0u64, 0);
    beside(host, |host, now| {
        while due <= now {
            due += 10 * MS;
            // Scattered: multiples of the golden ratio.
            let page = next.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            host.write(space, start + page * PAGE_SIZE, unique(7)(next));
            next += 1;
        }
    });
}
