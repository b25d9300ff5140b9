//! Cost of one of many small groups while nothing happens.
//!
//! A host of 200 groups gives each a 200th of the bottom level's share, so that one wake, of
//! milliseconds in an emulated guest, uses the budget of minutes. The supervisor watches processes
//! for all groups.

mod scene;

use std::collections::BTreeMap;

use scene::*;
use uksm_policy::command::{Command, EventSource, Nanos};
use uksm_simulator::{Content, Costs, Fill, Host, Run};

const GROUPS: f64 = 200.0;
/// Pages common to all members, and pages of each member alone.
const SHARED: u64 = 16;
const OWN: u64 = 24;
/// A wake in an emulated guest.
const WAKE: Nanos = 2_300_000;
const MINUTE: Nanos = 60 * S;

/// A group of `members`. The own pages of a member are equal to those of the others in the first
/// `alike` lines, as after a fork.
fn group(members: u64, alike: u16) -> Run {
    let costs = Costs {
        wake: WAKE,
        ..Costs::default()
    };
    let mut host = Host::new(SEED, costs);
    host.event_source = EventSource::Spaces;
    for number in 0..members {
        let space = host.spawn(number);
        let shared = Fill::Dense(&|page| Content::new(page + 1));
        host.map(space, base(1), SHARED, HEAP, &shared);
        let own = |page: u64| {
            let family = u32::try_from(page).unwrap() + 1;
            Content::similar(OWN * number + page + 1, family, alike)
        };
        host.map(space, base(2), OWN, HEAP, &Fill::Dense(&own));
    }
    let mut params = full();
    params.bottom_cpu /= GROUPS;
    run(params, host)
}

/// The share of a core that `GROUPS` such groups use in twelve minutes of calm.
fn calm(members: u64, alike: u16) -> f64 {
    let mut run = group(members, alike);
    run.quietly_until(90 * S);
    assert_eq!(run.host.saved(), (members - 1) * SHARED, "{}", show(&run));
    let begun = run.spent();
    let mut before = begun;
    for minute in 1..=12 {
        run.commands = Some(vec![]);
        run.quietly_until(90 * S + minute * MINUTE);
        let percent = GROUPS * (run.spent() - before) as f64 / MINUTE as f64 * 100.0;
        before = run.spent();
        let mut calls = BTreeMap::new();
        for command in run.commands.iter().flatten() {
            *calls.entry(name(command)).or_insert(0) += 1;
        }
        eprintln!(
            "{members} members, {alike} lines alike, minute {minute}: {percent:.3} %, {calls:?}"
        );
    }
    GROUPS * (before - begun) as f64 / (12 * MINUTE) as f64
}

/// The name of a call.
fn name(command: &Command) -> String {
    let text = format!("{command:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

#[test]
fn two_hundred_small_groups_take_a_quarter_of_a_percent_in_calm() {
    for members in [3, 10, 40] {
        for alike in [0, 1, 16, 40, 60, 63] {
            let share = calm(members, alike);
            assert!(share < 0.0025, "{members} members, {alike} lines: {share}");
        }
    }
}
