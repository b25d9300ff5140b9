//! Dynamic rates: invariants, and that a modelled host settles.

use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn terms(start: Share) -> RateTerms {
    RateTerms {
        least: 10_000,
        most: 950_000,
        start,
    }
}

fn two(total: Share) -> Rates {
    let mut rates = Rates::default();
    let both = ["a", "b"].map(|name| (name.to_owned(), terms(100_000)));
    rates.follow(total, &both.into());
    rates
}

/// The work of a group in a second, if it uses all of its share.
fn busy(share: Share, freed_per_second: u64) -> GroupWork {
    GroupWork {
        time: SECOND,
        cpu: share * 1000,
        reclaimed: share * freed_per_second / CORE,
        ..GroupWork::default()
    }
}

/// Runs turns in which `act` returns the work of each group for its share; returns the changes of
/// each.
fn run(rates: &mut Rates, turns: u32, act: impl Fn(&str, Share) -> GroupWork) -> Vec<Vec<Change>> {
    let turn = |_| {
        let names = rates.groups.keys().cloned();
        let seen = names.map(|name| {
            let seen = act(&name, rates.share(&name).unwrap());
            (name, seen)
        });
        let seen = seen.collect();
        rates.turn(&seen)
    };
    (0..turns).map(turn).collect()
}

fn shares(rates: &Rates) -> [Share; 2] {
    ["a", "b"].map(|name| rates.share(name).unwrap())
}

#[test]
fn who_frees_more_for_a_second_of_processor_has_more_and_then_nothing_is_told() {
    let mut rates = two(200_000);
    let act = |name: &str, share| busy(share, if name == "a" { 9_000 } else { 1_000 });
    run(&mut rates, 60, act);
    let [a, b] = shares(&rates);
    assert!((150_000..185_000).contains(&a), "{a} {b}");
    let changes = run(&mut rates, 60, act);
    assert!(changes.iter().all(Vec::is_empty), "{changes:?}");
}

/// Both groups merge alike; pages of the first are written again, all of them or a half.
#[test]
fn what_is_written_again_was_not_freed() {
    for (per_mille, at_most) in [(1000, 40_000), (500, 80_000)] {
        let mut rates = two(200_000);
        run(&mut rates, 60, |name, share| {
            let seen = busy(share, 5_000);
            let written = seen.reclaimed * per_mille / 1000;
            GroupWork {
                written: if name == "a" { written } else { 0 },
                ..seen
            }
        });
        let [a, b] = shares(&rates);
        assert!(a <= at_most && a + b > 190_000, "{per_mille}: {a} {b}");
    }
}

#[test]
fn who_waits_for_memory_has_more_of_the_same_yield() {
    let mut rates = two(200_000);
    run(&mut rates, 40, |name, share| GroupWork {
        memory_waited: if name == "b" { SECOND } else { 0 },
        ..busy(share, 1_000)
    });
    let [a, b] = shares(&rates);
    assert!(b > 5 * a, "{a} {b}");
    assert_eq!(rates.status("b").unwrap().reason, Reason::Need);
}

#[test]
fn who_waits_for_processors_gives_way_but_not_if_it_waits_for_memory_too() {
    for (memory_waited, is_less) in [(0, true), (SECOND, false)] {
        let mut rates = Rates::default();
        rates.follow(500_000, &[("a".to_owned(), terms(500_000))].into());
        run(&mut rates, 60, |_, share| GroupWork {
            cpu_waited: SECOND * 9 / 10,
            memory_waited,
            ..busy(share, 1_000)
        });
        let share = rates.share("a").unwrap();
        assert_eq!(share < 150_000, is_less, "{share}");
        let reason = rates.status("a").unwrap().reason;
        assert_eq!(reason == Reason::Waiting, is_less, "{reason}");
    }
}

#[test]
fn what_one_does_not_use_the_other_has_and_it_comes_back_in_seconds() {
    let mut rates = two(200_000);
    let only_a = |name: &str, share| match name {
        "a" => busy(share, 1_000),
        _ => GroupWork {
            time: SECOND,
            ..GroupWork::default()
        },
    };
    run(&mut rates, 30, only_a);
    let [a, b] = shares(&rates);
    assert!(a > 160_000 && b >= 25_000, "{a} {b}");
    // A sleeping group gets no message.
    let changes = run(&mut rates, 100, only_a);
    assert!(changes.iter().all(Vec::is_empty), "{changes:?}");
    run(&mut rates, 12, |name, share| {
        busy(share, if name == "b" { 9_000 } else { 100 })
    });
    let [a, b] = shares(&rates);
    assert!(b > a, "{a} {b}");
}

#[test]
fn a_group_that_freed_nothing_is_looked_at_again_and_found() {
    let mut rates = two(200_000);
    run(&mut rates, 60, |name, share| {
        busy(share, if name == "a" { 5_000 } else { 0 })
    });
    let [_, before] = shares(&rates);
    assert!(before >= 10_000, "{before}");
    run(&mut rates, 20, |name, share| {
        busy(share, if name == "a" { 1_000 } else { 5_000 })
    });
    let [a, b] = shares(&rates);
    assert!(b > a, "{a} {b}");
}

#[test]
fn another_configuration_begins_with_parts_as_configured() {
    let mut rates = two(200_000);
    assert_eq!(shares(&rates), [100_000, 100_000]);
    let both = |total: Share, of_b| {
        let both = [
            ("a".to_owned(), terms(100_000)),
            ("b".to_owned(), terms(of_b)),
        ];
        (total, both.into())
    };
    let (total, same) = both(200_000, 100_000);
    assert!(rates.follow(total, &same).is_empty());
    let (total, other) = both(100_000, 300_000);
    assert_eq!(rates.follow(total, &other).len(), 2);
    assert_eq!(shares(&rates), [30_000, 70_000]);
}

#[test]
fn a_change_says_what_and_why() {
    let change = Change {
        group: "web".to_owned(),
        from: 100_000,
        to: 25_000,
        reason: Reason::Waiting,
    };
    assert!(change.is_large());
    assert_eq!(
        change.to_string(),
        "group web: may use 2.5% of a core instead of 10.0%: its tasks wait for processors"
    );
}

fn any_terms() -> impl Strategy<Value = RateTerms> {
    (2_000..100_000_u64, 0..850_000_u64, 2_000..950_000_u64).prop_map(|(least, more, start)| {
        RateTerms {
            least,
            most: least + more,
            start,
        }
    })
}

fn any_seen() -> impl Strategy<Value = GroupWork> {
    let part = 0..=100_u64;
    (
        1..10 * SECOND,
        part.clone(),
        (0..1_000_000_u64, 0..1_000_000_u64),
        part.clone(),
        part,
    )
        .prop_map(
            |(time, cpu, (reclaimed, written), cpu_waited, memory_waited)| GroupWork {
                time,
                cpu: time / 100 * cpu,
                reclaimed,
                written,
                cpu_waited: time / 100 * cpu_waited,
                memory_waited: time / 100 * memory_waited,
            },
        )
}

fn name(number: usize) -> String {
    format!("group{number}")
}

proptest! {
    #[test]
    fn no_more_than_the_total_is_given_and_all_have_what_they_are_bound_to(
        groups in prop::collection::vec(any_terms(), 1..8),
        room in 0..2_000_000_u64,
        turns in prop::collection::vec(prop::collection::vec(prop::option::of(any_seen()), 8), 1..40),
    ) {
        let terms: BTreeMap<String, RateTerms> =
            groups.iter().enumerate().map(|(at, terms)| (name(at), *terms)).collect();
        let total = groups.iter().map(|terms| terms.least).sum::<Share>() + room;
        let (mut rates, mut again) = (Rates::default(), Rates::default());
        rates.follow(total, &terms);
        again.follow(total, &terms);
        let mut shares: BTreeMap<String, Share> =
            terms.keys().map(|name| (name.clone(), rates.share(name).unwrap())).collect();
        for turn in turns {
            let seen = turn.into_iter().enumerate()
                .filter_map(|(at, seen)| Some((name(at), seen?))).collect();
            let changes = rates.turn(&seen);
            prop_assert_eq!(&changes, &again.turn(&seen), "the same again");
            for change in changes {
                prop_assert_eq!(shares.insert(change.group.clone(), change.to), Some(change.from));
            }
            let mut sum = 0;
            for (name, terms) in &terms {
                let share = rates.share(name).unwrap();
                prop_assert_eq!(shares[name], share, "each change was returned");
                prop_assert!((terms.least..=terms.most).contains(&share), "{} {:?}", share, terms);
                sum += share;
            }
            prop_assert!(sum <= total, "{} of {}", sum, total);
        }
    }

    /// No group has more because its pages are written, whatever else happens to it.
    #[test]
    fn a_group_whose_pages_are_written_yields_no_more(
        turns in prop::collection::vec(any_seen(), 1..40),
    ) {
        let (mut kept, mut rewritten) = (RateGroup::new(terms(1)), RateGroup::new(terms(1)));
        for seen in &turns {
            kept.see(&GroupWork { written: 0, ..*seen });
            rewritten.see(seen);
            prop_assert!(rewritten.freed >= 0.0);
            prop_assert!(rewritten.yields(0.0) <= kept.yields(0.0));
        }
        let before = rewritten.freed;
        for seen in &turns {
            rewritten.see(&GroupWork { written: seen.reclaimed, ..*seen });
        }
        prop_assert!(rewritten.freed <= before, "as much was written as merged");
    }

    #[test]
    fn a_host_that_does_not_change_settles(
        yields in prop::collection::vec((0..20_000_u64, 0..=100_u64, 0..=100_u64), 2..6),
        total in 100_000..1_500_000_u64,
    ) {
        let mut rates = Rates::default();
        let terms: BTreeMap<String, RateTerms> =
            (0..yields.len()).map(|at| (name(at), terms(100_000))).collect();
        rates.follow(total, &terms);
        let act = |group: &str, share| {
            let at: usize = group[5..].parse().unwrap();
            let (freed, cpu, memory) = yields[at];
            GroupWork {
                cpu_waited: SECOND / 100 * cpu,
                memory_waited: SECOND / 100 * memory,
                ..busy(share, freed)
            }
        };
        run(&mut rates, 150, act);
        let changes = run(&mut rates, 50, act);
        prop_assert!(changes.iter().flatten().count() == 0, "{:?}", changes);
    }
}
