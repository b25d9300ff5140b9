//! Invariants of sizes, for any freed memory and any members that lag behind.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn member(base: u64, freed: u64) -> PoolMember {
    PoolMember {
        base: base * MIB,
        ceiling: u64::MAX,
        weight: 1,
        freed: freed * MIB,
        asked: base * MIB,
        real: base * MIB,
        answers: true,
        step: u64::MAX,
        least: 0,
    }
}

/// Asks once, and all members do as they are asked.
fn turn(rule: Rule, members: &mut [PoolMember], phase: Phase) -> Vec<u64> {
    let asked = asked(rule, members, phase);
    for (member, &asked) in members.iter_mut().zip(&asked) {
        (member.asked, member.real) = (asked, asked);
    }
    asked
}

fn given(members: &[PoolMember]) -> u64 {
    members.iter().map(|member| member.held(member.asked)).sum()
}

#[test]
fn entitlement_gives_each_what_it_freed_and_equal_does_not() {
    let pool = [member(640, 90), member(640, 10)];
    assert_eq!(due(Rule::Entitlement, &pool), [730 * MIB, 650 * MIB]);
    assert_eq!(due(Rule::Equal, &pool), [690 * MIB, 690 * MIB]);
    let mut weighted = pool;
    weighted[1].weight = 3;
    assert_eq!(due(Rule::Weights, &weighted), [665 * MIB, 715 * MIB]);
}

#[test]
fn what_one_may_not_have_goes_to_the_others() {
    let mut pool = [member(100, 50), member(100, 50)];
    pool[0].ceiling = 110 * MIB;
    assert_eq!(due(Rule::Entitlement, &pool), [110 * MIB, 190 * MIB]);
}

#[test]
fn nothing_is_given_that_another_has_not_given_back() {
    let mut pool = [member(100, 0), member(100, 50)];
    (pool[0].asked, pool[0].real) = (150 * MIB, 150 * MIB);
    let first = asked(Rule::Entitlement, &pool, Phase::Giving);
    assert_eq!(
        first,
        [100 * MIB, 100 * MIB],
        "the first has its memory still"
    );
    pool[0].asked = first[0];
    pool[0].real = 130 * MIB;
    let second = asked(Rule::Entitlement, &pool, Phase::Giving);
    assert_eq!(second, [100 * MIB, 120 * MIB]);
}

#[test]
fn who_does_not_answer_keeps_what_it_has_and_that_counts() {
    let mut pool = [member(100, 40), member(100, 0)];
    (pool[1].asked, pool[1].answers) = (130 * MIB, false);
    assert_eq!(
        asked(Rule::Equal, &pool, Phase::Giving),
        [110 * MIB, 130 * MIB]
    );
}

#[test]
fn steps_bound_each_change() {
    let mut pool = [member(100, 100)];
    pool[0].step = 40 * MIB;
    let sizes: Vec<u64> = (0..4)
        .map(|_| turn(Rule::Equal, &mut pool, Phase::Giving)[0] / MIB)
        .collect();
    assert_eq!(sizes, [140, 180, 200, 200]);
    pool[0].freed = 0;
    let sizes: Vec<u64> = (0..4)
        .map(|_| turn(Rule::Equal, &mut pool, Phase::Giving)[0] / MIB)
        .collect();
    assert_eq!(sizes, [160, 120, 100, 100]);
}

#[test]
fn holding_gives_nothing_more_but_takes_what_is_owed_and_taking_back_takes_all() {
    let mut pool = [member(100, 50)];
    turn(Rule::Equal, &mut pool, Phase::Giving);
    pool[0].freed = 80 * MIB;
    assert_eq!(turn(Rule::Equal, &mut pool, Phase::Holding), [150 * MIB]);
    pool[0].freed = 20 * MIB;
    assert_eq!(turn(Rule::Equal, &mut pool, Phase::Holding), [120 * MIB]);
    assert_eq!(turn(Rule::Equal, &mut pool, Phase::TakingBack), [100 * MIB]);
}

prop_compose! {
    fn any_member()(
        base in 1..4000_u64, room in 0..4000_u64, weight in 0..5_u64, freed in 0..2000_u64,
        asked in 0..1000_u64, late in 0..200_u64, answers in prop::bool::weighted(0.9),
        step in 1..500_u64, least in 0..16_u64,
    ) -> PoolMember {
        let ceiling = (base + room) * MIB;
        let asked = ((base + asked) * MIB).min(ceiling);
        PoolMember {
            base: base * MIB, ceiling, weight, freed: freed * MIB, asked,
            real: asked + late * MIB, answers, step: step.max(least) * MIB, least: least * MIB,
        }
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Equal),
        Just(Rule::Entitlement),
        Just(Rule::Weights)
    ]
}

fn any_phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        Just(Phase::Giving),
        Just(Phase::Holding),
        Just(Phase::TakingBack)
    ]
}

fn any_pool() -> impl Strategy<Value = Vec<PoolMember>> {
    prop::collection::vec(any_member(), 1..8)
}

proptest! {
    #[test]
    fn no_more_is_held_than_was_freed_or_than_was_held_before(
        pool in any_pool(), rule in any_rule(), phase in any_phase()
    ) {
        let asked = asked(rule, &pool, phase);
        let before: u64 = pool.iter().map(|member| member.held(member.asked)).sum();
        let after: u64 = pool.iter().zip(&asked).map(|(member, &asked)| member.held(asked)).sum();
        prop_assert!(after <= before.max(freed(&pool)), "{after} of {before}");
    }

    #[test]
    fn nobody_falls_below_its_base_nor_rises_above_its_ceiling(
        pool in any_pool(), rule in any_rule(), phase in any_phase()
    ) {
        for (member, asked) in pool.iter().zip(asked(rule, &pool, phase)) {
            prop_assert!(member.base <= asked && asked <= member.ceiling);
        }
    }

    #[test]
    fn no_change_is_more_than_a_step_and_no_rise_less_than_is_worth_it(
        pool in any_pool(), rule in any_rule(), phase in any_phase()
    ) {
        for (member, asked) in pool.iter().zip(asked(rule, &pool, phase)) {
            prop_assert!(asked.abs_diff(member.asked) <= member.step);
            prop_assert!(asked <= member.asked || asked - member.asked >= member.least);
            prop_assert!(member.answers || asked == member.asked);
        }
    }

    #[test]
    fn the_order_of_members_changes_nothing(
        (pool, order) in any_pool().prop_flat_map(|pool| {
            let order: Vec<usize> = (0..pool.len()).collect();
            (Just(pool), Just(order).prop_shuffle())
        }),
        rule in any_rule(), phase in any_phase(),
    ) {
        let sizes = asked(rule, &pool, phase);
        let shuffled: Vec<PoolMember> = order.iter().map(|&at| pool[at]).collect();
        let expected: Vec<u64> = order.iter().map(|&at| sizes[at]).collect();
        prop_assert_eq!(asked(rule, &shuffled, phase), expected);
    }

    #[test]
    fn freeing_more_is_less_for_nobody_unless_others_have_a_right_to_it(
        pool in any_pool(), rule in any_rule(), at in any::<prop::sample::Index>(), more in 1..500_u64
    ) {
        let at = at.index(pool.len());
        let mut richer = pool.clone();
        richer[at].freed += more * MIB;
        let (before, after) = (due(rule, &pool), due(rule, &richer));
        // Rounding may cost the last page.
        prop_assert!(after[at] + PAGE >= before[at]);
        if rule != Rule::Entitlement {
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(before <= after);
            }
        }
    }

    #[test]
    fn all_come_to_what_they_are_due_less_what_is_not_worth_it(
        pool in any_pool(), rule in any_rule()
    ) {
        let mut pool = pool;
        for member in &mut pool {
            (member.answers, member.real) = (true, member.asked);
        }
        // At least a MiB a turn, of at most 4000; each of eight may wait for others.
        for _ in 0..40_000 {
            let before = pool.clone();
            turn(rule, &mut pool, Phase::Giving);
            if before == pool {
                break;
            }
        }
        let settled = pool.clone();
        turn(rule, &mut pool, Phase::Giving);
        prop_assert_eq!(&settled, &pool, "it should come to rest");
        let least: u64 = pool.iter().map(|member| member.least.max(PAGE)).sum();
        for (member, due) in pool.iter().zip(due(rule, &pool)) {
            prop_assert!(member.asked <= due);
            prop_assert!(due - member.asked <= least, "{} of {}", member.asked, due);
        }
        prop_assert!(given(&pool) <= freed(&pool));
    }

    #[test]
    fn flicker_below_the_least_change_comes_to_rest(
        flicker in prop::collection::vec(0..4 * MIB, 20..60), rule in any_rule()
    ) {
        let mut pool = [member(100, 200), member(100, 100)];
        for member in &mut pool {
            member.least = 8 * MIB;
        }
        let mut rises = 0;
        turn(rule, &mut pool, Phase::Giving);
        for freed in &flicker {
            pool[0].freed = 200 * MIB + freed;
            let before = pool;
            turn(rule, &mut pool, Phase::Giving);
            rises += pool.iter().zip(before).filter(|(now, then)| now.asked > then.asked).count();
        }
        prop_assert_eq!(rises, 0);
    }
}
