//! Frames with one mapping are given back to the process that holds them.

mod scene;

use scene::*;
use uksm_policy::command::{Command, Nanos, PAGE_SIZE, Reason, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::{Contents, Governor, Params};
use uksm_simulator::{Content, Fill, Host, Run, check};

/// Frames with one mapping, and all that are mapped.
fn singles(host: &Host) -> (u64, u64) {
    let mapped = host.held().filter(|(_, frame)| frame.sharers > 0);
    mapped.fold((0, 0), |(single, all), (_, frame)| {
        (single + u64::from(frame.sharers == 1), all + 1)
    })
}

/// Four pairs of processes with the same pages.
struct Pairs {
    spaces: Vec<SpaceId>,
    random: SplitMix64,
    written: u64,
    due: Nanos,
}

const PAIR_PAGES: u64 = 16 * MIB;

impl Pairs {
    fn start(host: &mut Host, number: u64) -> SpaceId {
        let space = host.spawn(1 + number / 2);
        let same = unique(1 + number / 2);
        host.map(space, base(1), PAIR_PAGES, HEAP, &Fill::Dense(&same));
        space
    }

    fn new(host: &mut Host) -> Pairs {
        Pairs {
            spaces: (0..8).map(|number| Pairs::start(host, number)).collect(),
            random: SplitMix64::new(SEED),
            written: 0,
            due: 60 * S,
        }
    }

    /// Writes a page of any process each `each`. Every ten minutes the oldest process ends, and
    /// another of its kind begins.
    fn act(&mut self, host: &mut Host, now: Nanos, each: Nanos) {
        while now >= self.due {
            self.due += each;
            self.written += 1;
            let at = usize::try_from(self.random.below(8)).unwrap();
            let address = base(1) + self.random.below(PAIR_PAGES) * PAGE_SIZE;
            host.write(self.spaces[at], address, unique(99)(self.written));
            if self.due / (600 * S) > (self.due - each) / (600 * S) {
                let number = self.due / (600 * S) % 8;
                let at = usize::try_from(number).unwrap();
                host.exit(self.spaces[at]);
                self.spaces[at] = Pairs::start(host, number);
            }
        }
    }
}

/// A third of the merged pages are written in three hours, and each process is replaced twice; at
/// governor low a day of that.
#[test]
fn while_pages_are_written_and_processes_end_few_frames_have_one_mapping() {
    // Without memory for copies nothing is given back.
    let cases = [
        (Governor::Full, u64::MAX, 3),
        (Governor::Low, u64::MAX, 24),
        (Governor::Full, 0, 3),
    ];
    for (governor, copies, hours) in cases {
        let mut host = host();
        host.copies = copies;
        let mut pairs = Pairs::new(&mut host);
        let mut run = run(Params::governor(governor), host);
        let (mut looks, mut share, mut most, mut next) = (0, 0.0, 0.0_f64, 300 * S);
        run.until(hours * 3600 * S, |host, now| {
            pairs.act(host, now, S);
            if now >= next {
                next += 10 * S;
                let (single, all) = singles(host);
                let now = single as f64 / all as f64;
                most = most.max(now);
                share += now;
                looks += 1;
            }
        });
        let share = share / f64::from(looks);
        let frames = run.engine.report().frames;
        eprintln!(
            "{governor:?}: {share:.4} single, at most {most:.4}, {frames:?} {}",
            show(&run)
        );
        let is_small = share < 0.02;
        assert_eq!(is_small, copies > 0, "{share}: {}", show(&run));
        assert_eq!(frames.given_back, run.host.given_back);
        // Each page that is given back lost its partner once.
        let lost = pairs.written + 6 * hours * PAIR_PAGES;
        assert!(frames.given_back < lost, "{frames:?}");
        check::audit(&run.host).unwrap();
    }
}

#[test]
fn what_is_given_back_is_not_merged_alone_again() {
    // One of two clones ends.
    let mut run = run(full(), clones(16 * MIB, 0));
    merge(&mut run, 99, 20 * S);
    run.host.exit(SpaceId(1));
    run.quietly_until(600 * S);
    let given_back = run.host.given_back;
    assert!(given_back >= 16 * MIB * 99 / 100, "{given_back}");
    assert_eq!((run.host.frames(), run.host.saved()), (0, 0));
    run.quietly_until(7200 * S);
    assert_eq!(run.host.given_back, given_back, "{}", show(&run));
    // They were not written, so they are merged again when there is a partner.
    let explained = run.engine.explain(SpaceId(2)).unwrap();
    assert_eq!(run.engine.report().promotions.cow_broken, 0);
    assert!(
        explained.regions[0].broken < 0.01,
        "{:?}",
        explained.regions[0]
    );
    let space = run.host.spawn(3);
    let same = unique(1);
    run.host
        .map(space, base(1), 16 * MIB, HEAP, &Fill::Dense(&same));
    let end = run.now() + 60 * S;
    merge(&mut run, 99, end);
}

/// Pages that are all alike in 40 of 64 lines; each has one twin in another process.
fn alike(pages: u64) -> Host {
    let mut host = host();
    for number in 0..2 {
        let space = host.spawn(number);
        let content = |page: u64| match page % 2 {
            0 => Content::similar(1 + (page + number * 10) % pages, 5, 40),
            _ => Content::similar(1 + (number + 1) * 100_000 + page, 6, 40),
        };
        host.map(space, base(1), pages, HEAP, &Fill::Dense(&content));
    }
    host
}

#[test]
fn false_matches_leave_no_frames() {
    for merge in [Contents::All, Contents::Between] {
        for strength in [Some(4), None] {
            let params = Params {
                strength,
                merge,
                ..full()
            };
            let mut run = run(params, alike(8 * MIB));
            let mut most = 0;
            run.until(60 * S, |host, _| most = most.max(singles(host).0));
            let (given_back, differed) = (run.host.given_back, run.host.false_matches);
            let case = format!(
                "{merge:?} {strength:?}: {given_back}, {differed}, {}",
                show(&run)
            );
            eprintln!("{case}");
            assert!(given_back > 0 && given_back <= differed, "{case}");
            assert_eq!(singles(&run.host).0, 0, "{case}");
            assert!(most <= 256, "{most} at a time: {case}");
            run.quietly_until(600 * S);
            assert_eq!(singles(&run.host).0, 0, "{case}");
            let later = run.host.given_back - given_back;
            eprintln!("{later} later, {} frames", run.host.frames());
        }
    }
}

/// Two clones are merged, then each page of one is written: all frames have one mapping. Then other
/// clones come.
fn full_of_singles(limit: usize, refuses: Reason) -> Run {
    let mut run = run(full(), clones(4 * MIB, 0));
    merge(&mut run, 99, 20 * S);
    match refuses {
        Reason::Machine => run.host.machine_frame_limit = limit,
        _ => run.host.frame_limit = limit,
    }
    for page in 0..4 * MIB {
        let address = base(1) + page * PAGE_SIZE;
        run.host.write(SpaceId(1), address, unique(2)(page));
    }
    for number in 0..2 {
        let space = run.host.spawn(10 + number);
        let same = unique(3);
        run.host
            .map(space, base(1), 4 * MIB, HEAP, &Fill::Dense(&same));
    }
    run
}

#[test]
fn where_frames_are_refused_those_with_one_mapping_make_room_soon() {
    for refuses in [Reason::Frames, Reason::Machine] {
        let mut run = full_of_singles(1024, refuses);
        let begun = run.now();
        let time = run.until_done(begun + 300 * S, |host| host.given_back >= 4 * MIB * 9 / 10);
        let time = time.unwrap_or_else(|| panic!("{}", show(&run)));
        let end = run.now() + 120 * S;
        let merged = run.until_done(end, |host| host.saved() >= 4 * MIB * 9 / 10);
        eprintln!("{refuses:?}: given back in {} ms, {merged:?}", time / MS);
        assert!(time < 20 * S && merged.is_some(), "{time} {}", show(&run));
    }
}

/// The number of commands of a kind that a part of a run makes.
fn commands_in(run: &mut Run, is_one: fn(&Command) -> bool, part: impl FnOnce(&mut Run)) -> usize {
    run.commands = Some(vec![]);
    part(run);
    let commands = run.commands.take().unwrap();
    commands.into_iter().filter(is_one).count()
}

fn is_listing(command: &Command) -> bool {
    matches!(command, Command::Frames { .. })
}

#[test]
fn where_memory_is_short_frames_with_one_mapping_go_soon_and_few_listings_are_made() {
    let mut times = vec![];
    for is_short in [false, true] {
        let mut run = run(Params::governor(Governor::Low), clones(64 * MIB, 0));
        merge(&mut run, 99, 60 * S);
        run.quietly_until(600 * S);
        for page in 0..64 * MIB {
            let address = base(1) + page * PAGE_SIZE;
            run.host.write(SpaceId(1), address, unique(2)(page));
        }
        run.host.is_short_of_memory = is_short;
        let begun = run.now();
        let done = |host: &Host| host.given_back >= 64 * MIB * 9 / 10;
        times.push(run.until_done(begun + 900 * S, done).unwrap() / MS);
        let end = run.now() + 3600 * S;
        let listings = commands_in(&mut run, is_listing, |run| run.quietly_until(end));
        eprintln!("{is_short}: {times:?} ms, {listings} pieces of listings in the next hour");
        assert!(listings < 200, "{listings}");
    }
    assert!(times[1] < 10_000 && times[1] < times[0], "{times:?}");
}

#[test]
fn where_memory_is_short_writes_do_not_cause_listings_beyond_their_share() {
    let mut listings = vec![];
    for is_short in [false, true] {
        let mut run = run(Params::governor(Governor::Low), clones(64 * MIB, 0));
        merge(&mut run, 99, 60 * S);
        run.host.is_short_of_memory = is_short;
        let (begun, mut written) = (run.now(), 0);
        let write = |host: &mut Host, now| {
            let due = (now - begun) / S;
            for page in written..due {
                for space in [1, 2] {
                    let address = base(1) + page * PAGE_SIZE;
                    host.write(SpaceId(space), address, unique(2)(page));
                }
            }
            written = due;
        };
        listings.push(commands_in(&mut run, is_listing, |run| {
            run.until(begun + 600 * S, write);
        }));
    }
    eprintln!("{listings:?} pieces of listings in ten minutes, with memory and without");
    assert!(listings[1] <= 2 * listings[0], "{listings:?}");
}

/// Each of several processes is at the limit of its cgroup, and keeps frames.
#[test]
fn processes_without_memory_for_copies_do_not_keep_others_from_giving_back() {
    const HOARDERS: u64 = 12;
    const KEPT: u64 = 256;
    let mut host = host();
    let mut pair = |number: u64, pages: u64| {
        [0, 1].map(|_| {
            let space = host.spawn(number);
            let same = unique(number);
            host.map(space, base(1), pages, HEAP, &Fill::Dense(&same));
            space
        })
    };
    let hoarders: Vec<_> = (1..=HOARDERS).map(|number| pair(number, KEPT)).collect();
    let others = [98, 99].map(|number| pair(number, 4 * MIB));
    host.full_cgroups = hoarders.iter().map(|pair| pair[0]).collect();
    let mut run = run(full(), host);
    merge(&mut run, 99, 60 * S);
    for pair in &hoarders {
        run.host.exit(pair[1]);
    }
    let mut times = vec![];
    for (pair, is_short) in others.iter().zip([false, true]) {
        run.host.exit(pair[1]);
        run.host.is_short_of_memory = is_short;
        let wanted = run.host.given_back + 4 * MIB;
        let end = run.now() + 900 * S;
        let time = run.until_done(end, |host| host.given_back >= wanted);
        times.push(time.unwrap_or_else(|| panic!("{}", show(&run))) / MS);
        // Sweeps for what is kept become rare.
        run.quietly_until(end + 3600 * S);
    }
    eprintln!("given back after {times:?} ms; without and with memory short");
    assert!(times[0] < 150_000 && times[1] < 20_000, "{times:?}");
    assert_eq!(run.host.held().count() as u64, HOARDERS * KEPT);
}

#[test]
fn without_memory_nothing_is_given_back_until_there_is_some() {
    let mut run = run(full(), clones(4 * MIB, 0));
    merge(&mut run, 99, 20 * S);
    run.host.copies = 100;
    run.host.exit(SpaceId(1));
    let is_try = |command: &Command| matches!(command, Command::GiveBack { .. });
    let tries = commands_in(&mut run, is_try, |run| run.quietly_until(3600 * S));
    assert_eq!(run.host.given_back, 100);
    eprintln!("{tries} tries in an hour");
    assert!((2..40).contains(&tries), "{tries}");
    run.host.copies = u64::MAX;
    run.quietly_until(7200 * S);
    assert_eq!(run.host.frames(), 0, "{}", show(&run));
}
