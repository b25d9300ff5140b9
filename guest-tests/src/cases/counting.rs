//! A guest that counts instructions measures without noise.
//!
//! # Problem
//! Comparisons of CPU rely on one fact: if the guest's clock is the number of its instructions, CPU
//! time is a count of instructions, independent of the real machine's load.
//!
//! # Approach
//! A loop of known length must take its number of instructions; and the calls that the experiments
//! measure, sampling and merging pages, must cost the same each time. The loop takes another number
//! of nanoseconds on a machine whose clock is real time. Cheap and frequent calls have a bound.
//!
//! Each instruction takes one nanosecond of CPU.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use uksm_linux::hints::Hints;
use uksm_policy::command::{Lines, PageState, SpaceId};
use uksm_testkit::instructions::spin;

use super::Context;
use crate::fixtures::domain::{Domain, LINES, Permit};
use crate::fixtures::memory::{Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::pins::tempfile;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::symbols::kernel_has;

cases! { "counting":
    cpu_time_is_the_number_of_instructions Normal Counted 60,
    the_same_work_takes_the_same_cpu_time Normal Counted 120,
    the_size_of_a_space_costs_less_than_a_sampled_page Normal Counted 60,
    a_foreign_frame_costs_the_same_among_many_domains Normal Counted 60,
    a_read_that_is_watched_costs_little_more Normal Counted 60,
}

/// Runs of a loop; the median counts. An interrupt makes a run dearer, or cheaper: the scheduler
/// subtracts the time of interrupts, and also of some before the run.
const LOOPS: usize = 9;
/// Share that the kernel's timer may add to a loop that it interrupts, in percent.
const INTERRUPTS: f64 = 2.0;
/// Largest spread of runs of the same work, in percent.
const SPREAD: f64 = 4.0;

/// CPU time of this process: the scheduler's sum, not a number of ticks.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("every process has a CPU clock")
        .into()
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

/// CPU time that work took, in nanoseconds.
fn cost(work: impl FnOnce()) -> f64 {
    let begin = cpu();
    work();
    (cpu() - begin).as_secs_f64() * 1e9
}

fn cpu_time_is_the_number_of_instructions(context: &mut Context) {
    for rounds in [1_000_000_u32, 5_000_000, 20_000_000] {
        let instructions = 2.0 * f64::from(rounds);
        // An occasional interrupt does more: it frees memory held back by RCU, a few 10⁶
        // instructions.
        let taken = median((0..LOOPS).map(|_| cost(|| spin(rounds.into()))).collect());
        let off = 100.0 * (taken / instructions - 1.0);
        context.metric(&format!("off at {instructions} instructions"), off, "%");
        assert!(
            off.abs() < INTERRUPTS,
            "{instructions} instructions took {taken} ns of CPU"
        );
    }
}

fn the_same_work_takes_the_same_cpu_time(context: &mut Context) {
    const PAGES: usize = 2048;
    const RUNS: usize = 4;
    // One pass takes 1.5 ms: one interrupt of the timer more or less would be 5 % of it.
    const PASSES: usize = 32;
    let seed = context.seed();
    let mut samples = Vec::new();
    let mut merges = Vec::new();
    // The first run differs: the kernel sets up state that later runs find, up to 5 % more work.
    for _ in 0..=RUNS {
        let mut domain = Domain::open();
        let peers = [(); 2].map(|()| Peer::filled(PAGES, seed, PAGES));
        let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
        samples.push(cost(|| {
            for _ in 0..PASSES {
                assert_eq!(domain.sample(spaces[0], 0..PAGES, LINES).len(), PAGES);
            }
        }));
        merges.push(cost(|| {
            let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
            assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
        }));
    }
    for (what, costs) in [("SAMPLE", &samples[1..]), ("FOLD", &merges[1..])] {
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = costs.iter().copied().fold(0.0, f64::max);
        let spread = 100.0 * (most / least - 1.0);
        context.metric(&format!("spread of {what}"), spread, "%");
        context.metric(what, least, "instructions");
        assert!(
            spread < SPREAD,
            "{what} of the same pages, {RUNS} times: {costs:?} ns of CPU"
        );
    }
}

fn the_size_of_a_space_costs_less_than_a_sampled_page(context: &mut Context) {
    const SPACES: usize = 64;
    const ASKED: usize = 1024;
    const PASSES: usize = 16;
    let mut domain = Domain::open();
    let mut peers: Vec<Peer> = (1..SPACES).map(|_| Peer::new(16)).collect();
    peers.push(Peer::filled(ASKED, context.seed(), ASKED));
    let spaces: Vec<SpaceId> = peers.iter().map(|peer| domain.attach(peer)).collect();
    let asked: Vec<SpaceId> = (0..ASKED).map(|number| spaces[number % SPACES]).collect();
    // Of some passes, divided by the number of calls or pages.
    let each = |mut pass: Box<dyn FnMut() + '_>| {
        let costs = (0..LOOPS).map(|_| cost(|| (0..PASSES).for_each(|_| pass())));
        let calls = f64::from(u32::try_from(PASSES * ASKED).expect("few"));
        median(costs.collect()) / calls
    };
    let size = each(Box::new(|| {
        let sizes = domain.device.sizes(&asked).expect("SIZES");
        assert!(sizes.len() == asked.len() && !sizes[0].gone);
    }));
    let filled = spaces[SPACES - 1];
    let page = each(Box::new(|| {
        assert_eq!(
            domain
                .sample(filled, 0..ASKED, Lines { from: 0, to: 1 })
                .len(),
            ASKED
        );
    }));
    context.metric("the size of a space", size, "instructions");
    context.metric("a sampled page", page, "instructions");
    // On stock kernels this is the bound of 250 instructions for which the call was built. On a
    // kernel that checks each lock, a call that takes a lock for each space is several times as
    // dear.
    let most = if kernel_has("lock_acquire") {
        6.0
    } else {
        0.75
    };
    assert!(
        size < page * most,
        "{size} instructions a space, {page} a page"
    );
}

/// A process can hold only frames of other domains, and a page-table lock is held over many of
/// them.
fn a_foreign_frame_costs_the_same_among_many_domains(context: &mut Context) {
    const PAGES: usize = 512;
    const DOMAINS: usize = 256;
    const STATES: Lines = Lines { from: 0, to: 0 };
    let mut owner = Domain::open();
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, context.seed(), PAGES));
    let spaces = peers.each_ref().map(|peer| owner.attach(peer));
    let counts = owner.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let child = peers[0].run(|_| fork(|| pause()));
    let mut domain = Domain::open();
    let space = domain.attach_pid(child);
    let mut each = || {
        let costs = (0..LOOPS).map(|_| {
            cost(|| {
                let pages = domain.sample(space, 0..PAGES, STATES);
                assert!(pages.iter().all(|page| page.state == PageState::Foreign));
            })
        });
        median(costs.collect()) / f64::from(u32::try_from(PAGES).expect("few"))
    };
    let among_two = each();
    let _others: Vec<Domain> = (0..DOMAINS).map(|_| Domain::open()).collect();
    let among_many = each();
    context.metric("a foreign frame", among_two, "instructions");
    context.metric("among 256 domains", among_many, "instructions");
    assert!(
        among_many < 1.1 * among_two,
        "{among_two} instructions a page, {among_many} with {DOMAINS} domains more"
    );
    peers[0].run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
}

/// Cost of a read without the hint programs, with them, and with them reporting this process.
fn a_read_that_is_watched_costs_little_more(context: &mut Context) {
    const SEGMENTS: usize = 32;
    // All their hints have room in the ring, of which a process may use two thirds.
    const CALLS: usize = 300;
    // For a call that is not reported, for one that is, and for each further segment of that.
    const MAX_UNREPORTED_NS: f64 = 500.0;
    const MAX_REPORTED_NS: f64 = 2000.0;
    const MAX_SEGMENT: f64 = 600.0;
    let memory = Memory::anonymous(2 * SEGMENTS, Huge::Never);
    let file = tempfile("watched");
    file.write_all_at(&vec![7; SEGMENTS * 4096], 0)
        .expect("fill the source");
    // Every other page, so that no segment joins the next.
    let vectors: Vec<libc::iovec> = (0..SEGMENTS)
        .map(|segment| memory.vector(2 * segment..2 * segment + 1))
        .collect();
    let read = |segments: usize| {
        let count = i32::try_from(segments).expect("few");
        // SAFETY: the vectors are memory of this process that is used by number only.
        let done = unsafe { libc::preadv(file.as_raw_fd(), vectors.as_ptr(), count, 0) };
        assert_eq!(usize::try_from(done).ok(), Some(segments * 4096));
    };
    let each = |segments: usize, mut after: Box<dyn FnMut() + '_>| {
        let costs = (0..LOOPS).map(|_| {
            let taken = cost(|| (0..CALLS).for_each(|_| read(segments)));
            after();
            taken / f64::from(u32::try_from(CALLS).expect("few"))
        });
        median(costs.collect())
    };
    let away = [1, SEGMENTS].map(|segments| each(segments, Box::new(|| ())));
    let mut hints = Hints::open().expect("the programs run here");
    let there = [1, SEGMENTS].map(|segments| each(segments, Box::new(|| ())));
    hints.follow(std::process::id(), SpaceId(1));
    let with_hints = [1, SEGMENTS].map(|segments| {
        let mut take = || while hints.take().more {};
        each(segments, Box::new(&mut take))
    });
    let (unreported, once) = (there[0] - away[0], with_hints[0] - away[0]);
    let further = u32::try_from(SEGMENTS - 1).expect("few");
    let segment = (with_hints[1] - away[1] - once) / f64::from(further);
    for (what, instructions) in [
        ("a read of a page", away[0]),
        ("a read of 32 pages", away[1]),
        ("more where it is not told of", unreported),
        ("more where it is", once),
        ("more for each further segment", segment),
    ] {
        context.metric(what, instructions, "instructions");
    }
    // The programs measure their own time, including reading the clock, but without the kernel's
    // entry to them; one run in 64 is timed, and interrupts in it count 64 times.
    let runs = f64::from(u32::try_from(LOOPS * CALLS).expect("few"));
    let whole = runs * (2.0 * unreported + 2.0 * once + f64::from(further) * segment);
    let share = hints.counts().taken.as_secs_f64() * 1e9 / whole;
    context.metric("of which the programs tell", 100.0 * share, "%");
    assert!((0.4..2.0).contains(&share), "they tell of {share}");
    assert!(unreported < MAX_UNREPORTED_NS, "not told: {unreported}");
    assert!(once < MAX_REPORTED_NS, "told: {once}");
    assert!(segment < MAX_SEGMENT, "a segment: {segment}");
}
