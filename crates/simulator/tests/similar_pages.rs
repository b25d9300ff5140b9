//! Pages that are alike in many lines, which a weak hash distinguishes only by chance.

mod scene;

use scene::{HEAP, MIB, MS, S, base, full, host, show, unique};
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Fill, Host, Run};

/// Two processes with the same pages come one after the other; one in `one_in` pages is like the
/// others of its kind in `lines` of 64.
fn newcomers(one_in: u64, lines: u16, apart: u64) -> Run {
    let content = move |page: u64| match page % one_in {
        0 => Content::similar(page + 1, 5, lines),
        _ => unique(1)(page),
    };
    let mut host = host();
    let old = host.spawn(9);
    host.map(old, base(5), 2 * MIB, HEAP, &Fill::Dense(&unique(7)));
    let mut run = Run::new(full(), one_in, host).unwrap();
    run.quietly_until(S);
    for number in [1, 2] {
        let space = run.host.spawn(1);
        let start = base(number);
        run.host
            .map(space, start, 8 * MIB, HEAP, &Fill::Dense(&content));
        run.quietly_until(run.now() + apart);
    }
    run
}

fn lines(case: u64) -> u16 {
    u16::try_from(case * 7 % 40 + 1).expect("at most 40")
}

#[test]
fn equal_pages_among_alike_ones_are_merged_in_seconds() {
    for case in 0..40 {
        let mut run = newcomers(1 + case % 13, lines(case), case * 7 % 50 * 10 * MS);
        run.quietly_until(20 * S);
        let (saved, mergeable) = (run.host.saved(), run.host.mergeable());
        assert!(saved * 100 >= mergeable * 99, "case {case}: {}", show(&run));
    }
}

#[test]
fn a_page_is_compared_with_few_that_look_like_it() {
    for case in 0..40 {
        let mut run = newcomers(1 + case % 13, lines(case), case * 7 % 50 * 10 * MS);
        run.quietly_until(60 * S);
        let report = run.engine.report();
        let (differed, sampled) = (report.outcomes.differed, report.sampling.pages);
        assert!(differed < 8 * sampled, "case {case}: {}", show(&run));
        assert!(run.spent() < 2 * S, "case {case}: {}", show(&run));
    }
}

/// Two processes hold the same and one comes later, in another order: mostly unique pages, and a
/// thousand contents that are all alike. Without reading in full, such a page is compared with the
/// few known ones of its hash, and given up; most stay unmerged until a stronger hash is tried.
#[test]
fn few_alike_pages_of_many_are_read_in_full_and_merged_without_another_strength() {
    for lines in [20, 40, 63] {
        let content = |stride: u64| {
            move |page: u64| match page % 16 {
                0 => Content::similar(1 + page / 16 * stride % 997, 5, lines),
                _ => unique(1)(page),
            }
        };
        let mut host = host();
        for (number, stride) in [(1, 1), (2, 10)] {
            let space = host.spawn(number);
            let content = content(stride);
            host.map(space, base(5), 16 * 997, HEAP, &Fill::Dense(&content));
        }
        let weak = Params {
            strength: Some(8),
            ..full()
        };
        let mut run = Run::new(weak, 1, host).unwrap();
        run.quietly_until(3 * S);
        let space = run.host.spawn(3);
        let late = content(100);
        run.host
            .map(space, base(5), 16 * 997, HEAP, &Fill::Dense(&late));
        run.quietly_until(5 * S);
        let (saved, mergeable) = (run.host.saved(), run.host.mergeable());
        let report = run.engine.report();
        let in_vain = report.outcomes.differed;
        eprintln!("{lines} {:?} {}", report.strength, show(&run));
        assert!(report.strength.read_in_full > 0, "{lines}: {}", show(&run));
        assert!(saved * 1000 >= mergeable * 999, "{lines}: {}", show(&run));
        // The pages compared until the first is given up; it was 8,481.
        assert!(in_vain < 3 * 997, "{lines}: {}", show(&run));
    }
}

/// `processes` processes of `pages` pages each, of which a quarter is unique; the others are like
/// those of one of `kinds` kinds in `lines` of 64, and equal to none.
fn crowd(processes: u64, pages: u64, kinds: u64, lines: u16) -> Host {
    let mut host = host();
    for process in 0..processes {
        let content = move |page: u64| match page % 4 {
            3 => unique(1000 + process)(page),
            _ => {
                let kind = u32::try_from(5 + page % kinds).expect("few kinds");
                Content::similar(process * pages + page + 1, kind, lines)
            }
        };
        let space = host.spawn(100 + process);
        host.map(space, base(5), pages, HEAP, &Fill::Dense(&content));
    }
    host
}

/// Where nothing is merged, alike pages must not be read in full for ever at the limit of the
/// governor.
#[test]
fn alike_pages_of_which_none_is_equal_are_read_in_full_and_then_it_is_calm() {
    let shapes = [
        (1000, 16, 3),
        (3000, 60, 20),
        (10, 16 * 1024, 1000),
        (100, 256, 1),
    ];
    for governor in [Governor::Full, Governor::Medium, Governor::Low] {
        for (processes, pages, kinds) in shapes {
            for lines in [2, 30, 63] {
                let host = crowd(processes, pages, kinds, lines);
                let mut run = Run::new(Params::governor(governor), 1, host).unwrap();
                run.quietly_until(60 * S);
                let spent = run.spent();
                run.quietly_until(120 * S);
                let after = run.spent() - spent;
                let case = format!(
                    "{governor:?}, {processes} processes, {lines}: {}",
                    show(&run)
                );
                assert!(spent < 2 * S, "{spent} ns in the first minute: {case}");
                // Pages that displace each other in the index seem to be rewritten: now and then
                // they are read again.
                assert!(after < 60 * S * 3 / 1000, "{after} ns after it: {case}");
            }
        }
    }
}

/// A change of strength hashes all frames, and has all pages read again. A search that is under way
/// when all has been merged must not go on sampling, at the limit of the governor, until each trial
/// is worth that.
#[test]
fn a_search_among_many_frames_takes_a_sixty_fourth_of_the_time_in_calm() {
    for governor in [Governor::Full, Governor::Medium] {
        let mut host = host();
        for number in 0..600 {
            let (group, member) = (number / 3, number % 3);
            let space = host.spawn(100 + member);
            let start = base(5) + member * 10 * PAGE_SIZE;
            let content = unique(group);
            host.map(space, start, 8 * MIB, HEAP, &Fill::Dense(&content));
        }
        let adaptive = Params {
            strength: None,
            ..Params::governor(governor)
        };
        let mut run = Run::new(adaptive, 1, host).unwrap();
        run.quietly_until(30 * S);
        let (saved, mergeable) = (run.host.saved(), run.host.mergeable());
        assert!(saved * 1000 >= mergeable * 999, "{}", show(&run));
        let spent = run.spent();
        run.quietly_until(330 * S);
        let part = (run.spent() - spent) as f64 / (300 * S) as f64;
        assert!(
            part < 1.0 / 64.0 + 0.004,
            "{part} of a core: {}",
            show(&run)
        );
    }
}
