//! New memory in processes that are long known and calm is found at once, at any time and place,
//! and would be found no sooner if it were reported like memory filled by I/O
//! (docs/decisions/0025).

mod scene;

use scene::*;
use uksm_policy::command::{Hint, HintSource, Nanos, PAGE_SIZE};
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Fill};

/// Pages that appear in each of two processes, and pages of all that were there before.
const NEW: u64 = 64 * MIB;
const OLD: u64 = 16 * MIB;

/// Calm time before memory appears.
const CALM: Nanos = 63 * S;

/// Places where memory appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum In {
    /// In a new mapping.
    Mapped,
    /// In an old mapping, empty until then.
    Holes,
}

/// Two of 42 calm processes get memory, which is equal and lies in the same order or not. Returns
/// the time until nine tenths are merged; the memory is also reported as if I/O had filled it, or
/// not.
fn merged_after(
    params: Params,
    at: Nanos,
    (is_reported, is_shuffled, place): (bool, bool, In),
) -> Nanos {
    let mut host = host();
    let spaces: Vec<_> = (10..52)
        .map(|owner| {
            let space = host.spawn(owner);
            host.map(space, base(owner), OLD, HEAP, &Fill::Dense(&unique(owner)));
            space
        })
        .collect();
    if place == In::Holes {
        for &space in &spaces[40..] {
            host.map(space, base(1), NEW, HEAP, &Fill::Sparse(&[]));
        }
    }
    let mut run = run(params, host);
    run.quietly_until(at);
    for (number, &space) in (0..).zip(&spaces[40..]) {
        let step = if is_shuffled { 1 + number * 7918 } else { 1 };
        let content = |page| Content::new(page * step % NEW + 1);
        let start = base(1);
        match place {
            In::Mapped => run
                .host
                .map(space, start, NEW, HEAP, &Fill::Dense(&content)),
            In::Holes => {
                for page in 0..NEW {
                    run.host
                        .write(space, start + page * PAGE_SIZE, content(page));
                }
            }
        }
        if is_reported {
            run.host.hint(Hint {
                start,
                length: NEW * PAGE_SIZE,
                space,
                source: HintSource::Write,
                place: None,
            });
        }
    }
    let begin = run.now();
    let (took, _) = merge(&mut run, 90, begin + 300 * S);
    assert!(run.engine.report().hints.grown > 0, "growth is reported");
    took
}

#[test]
fn memory_that_appears_in_calm_processes_is_found_at_once() {
    for (governor, most) in [
        (Governor::Full, S),
        (Governor::Medium, S),
        (Governor::Low, 2 * S),
        (Governor::Quiet, 30 * S),
    ] {
        for place in [In::Mapped, In::Holes] {
            for number in 0..8 {
                let (at, is_shuffled) = (CALM + number * 537 * MS, number % 2 == 1);
                let [reported, looked] = [true, false].map(|is_reported| {
                    let how = (is_reported, is_shuffled, place);
                    merged_after(Params::governor(governor), at, how)
                });
                eprintln!(
                    "{governor:?}, {place:?}, shuffled {is_shuffled}: {} ms, {} ms if reported as I/O",
                    looked / MS,
                    reported / MS
                );
                assert!(looked < most, "{governor:?}, {place:?}");
                assert!(looked <= 2 * reported, "{governor:?}, {place:?}");
            }
        }
    }
}

/// Pages of each of ten large processes, and of the memory that appears in two of them: less than a
/// hundredth, of which a fifth is equal and lies elsewhere in each.
const LARGE: u64 = 40_000;
const LITTLE: u64 = 300;

#[test]
fn little_memory_that_appears_in_large_calm_processes_is_found_soon() {
    for number in 0..8 {
        let mut host = host();
        let spaces: Vec<_> = (10..20)
            .map(|owner| {
                let space = host.spawn(owner);
                host.map(
                    space,
                    base(owner),
                    LARGE,
                    HEAP,
                    &Fill::Dense(&unique(owner)),
                );
                space
            })
            .collect();
        for &space in &spaces[8..] {
            host.map(space, base(1), LITTLE, HEAP, &Fill::Sparse(&[]));
        }
        let mut run = run(Params::governor(Governor::Full), host);
        run.quietly_until(CALM + number * 537 * MS);
        for ((owner, step), &space) in [(30, 1), (31, 7919)].into_iter().zip(&spaces[8..]) {
            for page in 0..LITTLE {
                let number = page * step % LITTLE;
                let is_equal = number < LITTLE / 5;
                let content = unique(if is_equal { 29 } else { owner })(number);
                run.host.write(space, base(1) + page * PAGE_SIZE, content);
            }
        }
        let begin = run.now();
        let (took, _) = merge(&mut run, 90, begin + 300 * S);
        eprintln!("{} ms", took / MS);
        assert!(took < 3 * S, "{} ms", took / MS);
    }
}
