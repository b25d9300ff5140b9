//! The schedule of questions, for a machine that receives events and for one that polls.

use super::*;
use crate::command::SpaceId;
use crate::params::Governor;

const MS: Nanos = MILLISECOND;
/// Spaces of more than one slice.
const SLICES: u32 = 2000;

fn discovery() -> Discovery {
    Discovery::new(&Params::governor(Governor::Full))
}

fn size(slot: SpaceSlot, mappings: u64) -> SpaceSize {
    SpaceSize {
        space: SpaceId(slot.0 + 1),
        gone: false,
        mappings,
        pages: 100,
        anon_pages: 0,
    }
}

/// Spaces in slots 0.., whose first sizes and lists came back at 0.
fn known(count: u32, event_source: EventSource) -> Discovery {
    let mut discovery = discovery();
    discovery.processes_listed(false, false, event_source, 0);
    (0..count).for_each(|slot| discovery.add(SpaceSlot(slot), 0, 0));
    while discovery.sizes.due_at() == 0 {
        assert_eq!(discovery.next(0), Some(Discover::Sizes));
        let sizes: Vec<_> = discovery
            .asked()
            .iter()
            .map(|&slot| size(slot, 3))
            .collect();
        discovery.measured(&sizes, 0);
    }
    while let Some(Discover::Mappings(slot)) = discovery.next(0) {
        discovery.mappings_listed(slot, true, (0, 0), 0);
    }
    discovery
}

/// The questions in this period of time, at no cost, with answers that nothing changed.
fn calm(discovery: &mut Discovery, from: Nanos, to: Nanos) -> [u32; 3] {
    let (mut now, mut counts) = (from, [0; 3]);
    while now < to {
        match discovery.next(now) {
            Some(Discover::Processes) => {
                counts[0] += 1;
                discovery.processes_listed(false, false, discovery.event_source, now);
            }
            Some(Discover::Sizes) => {
                counts[1] += 1;
                let slots = discovery.asked().iter();
                let sizes: Vec<_> = slots.map(|&slot| size(slot, 3)).collect();
                discovery.measured(&sizes, now);
            }
            Some(Discover::Mappings(slot)) => {
                counts[2] += 1;
                discovery.mappings_listed(slot, false, (now, 0), now);
            }
            None => now = discovery.due_at(now).max(now + 1),
        }
    }
    counts
}

#[test]
fn the_newest_space_is_listed_first_and_after_it_was_measured() {
    let mut discovery = discovery();
    discovery.processes_listed(true, false, EventSource::Processes, SECOND);
    for (slot, born) in [(0, 5), (1, 900), (2, 70)] {
        discovery.add(SpaceSlot(slot), born, SECOND);
    }
    assert_eq!(discovery.next(SECOND), Some(Discover::Sizes));
    assert_eq!(discovery.asked().len(), 3);
    let sizes: Vec<_> = (0..3).map(|slot| size(SpaceSlot(slot), 3)).collect();
    discovery.measured(&sizes, SECOND);
    for slot in [1, 2, 0] {
        assert_eq!(
            discovery.next(SECOND),
            Some(Discover::Mappings(SpaceSlot(slot)))
        );
        discovery.mappings_listed(SpaceSlot(slot), true, (SECOND, 0), SECOND);
    }
    assert!(discovery.first.is_empty());
}

#[test]
fn first_lists_and_waiting_processes_get_what_nobody_else_uses() {
    let mut discovery = known(1, EventSource::Processes);
    assert_eq!(
        discovery.next_spare(),
        None,
        "calm lists wait for their share"
    );
    discovery.add(SpaceSlot(1), 0, SECOND);
    discovery.charge(List::Sizes, SECOND, SECOND);
    discovery.charge(List::First, SECOND, SECOND);
    discovery.charge(List::Events, SECOND, SECOND);
    assert_eq!(discovery.next(SECOND), None, "all shares are used up");
    let first = Some(Discover::Mappings(SpaceSlot(1)));
    assert_eq!(discovery.next_spare(), first);
    assert_eq!(discovery.payer(), Payer::List(List::Spare));
    assert_eq!(discovery.due_at(SECOND), SECOND);
    discovery.processes_listed(true, true, EventSource::Processes, SECOND);
    assert_eq!(discovery.next_spare(), Some(Discover::Processes));
}

#[test]
fn a_space_of_another_size_is_listed_soon_and_no_other() {
    for event_source in [EventSource::Processes, EventSource::Nothing] {
        let mut discovery = known(3, event_source);
        calm(&mut discovery, 0, 20 * SECOND);
        let now = 20 * SECOND;
        discovery.sizes.choose(now + SECOND);
        let sizes = [
            size(SpaceSlot(0), 3),
            size(SpaceSlot(1), 4),
            size(SpaceSlot(2), 3),
        ];
        discovery.measured(&sizes, now);
        let queue: Vec<_> = discovery.changed.iter().copied().collect();
        assert_eq!(queue, [(now, SpaceSlot(1))], "{event_source:?}");
        // Fewer mappings than before are a change as well.
        discovery.mappings_listed(SpaceSlot(1), true, (now, 0), now);
        discovery.sizes.choose(now + SECOND);
        let sizes = [size(SpaceSlot(0), 2)];
        discovery.measured(&sizes, now + 1);
        assert!(discovery.changed.contains(&(now + 1, SpaceSlot(0))));
    }
}

#[test]
fn a_list_read_before_the_change_was_noticed_is_read_again() {
    let mut discovery = known(1, EventSource::Processes);
    let slot = SpaceSlot(0);
    discovery.list_mappings_soon(slot, 3 * SECOND);
    discovery.mappings_listed(slot, false, (2 * SECOND, 0), 3 * SECOND);
    assert_eq!(discovery.schedules[0].queue, Queue::Changed);
    assert!(discovery.schedules[0].due <= 5 * SECOND);
    discovery.mappings_listed(slot, true, (4 * SECOND, 0), 4 * SECOND);
    assert_eq!(discovery.schedules[0].queue, Queue::Calm);
}

#[test]
fn a_dear_list_makes_its_space_rest_and_no_other() {
    let mut discovery = known(2, EventSource::Processes);
    let now = SECOND;
    discovery.list_mappings_soon(SpaceSlot(0), now);
    discovery.mappings_listed(SpaceSlot(0), true, (now, 30 * MS), now);
    discovery.list_mappings_soon(SpaceSlot(0), now + MS);
    discovery.list_mappings_soon(SpaceSlot(1), now + MS);
    let queue: Vec<_> = discovery.changed.iter().copied().collect();
    let rested = now + 64 * 30 * MS;
    assert_eq!(queue, [(now + MS, SpaceSlot(1)), (rested, SpaceSlot(0))]);
}

#[test]
fn calm_spaces_are_listed_seldom_with_events_and_as_often_as_may_be_if_not() {
    let minute = 60 * SECOND;
    let mut notified = known(10, EventSource::Processes);
    let [processes, sizes, lists] = calm(&mut notified, 0, minute);
    assert!((28..=36).contains(&processes), "{processes} process lists");
    assert!((28..=44).contains(&sizes), "{sizes} calls for sizes");
    assert!((10..=20).contains(&lists), "{lists} mapping lists");
    let mut polls = known(10, EventSource::Nothing);
    let [processes, sizes, lists] = calm(&mut polls, 0, minute);
    assert!((60..=80).contains(&processes), "{processes} process lists");
    assert!((28..=44).contains(&sizes), "{sizes} calls for sizes");
    assert!((600..=800).contains(&lists), "{lists} mapping lists");
}

#[test]
fn processes_with_events_are_listed_at_once_but_no_more_often_than_what_changes() {
    let mut discovery = known(10, EventSource::Processes);
    calm(&mut discovery, 0, 10 * SECOND);
    let (listed, shortest) = (discovery.processes.listed, discovery.shortest);
    assert_eq!(discovery.events_wake_from(listed), listed + shortest);
    discovery.events_arrived(listed + MS);
    assert_eq!(discovery.processes.due, listed + shortest);
    let late = listed + 2 * shortest;
    discovery.processes.due = late + SECOND;
    discovery.events_arrived(late);
    assert_eq!(discovery.next(late), Some(Discover::Processes));
}

#[test]
fn a_space_that_comes_into_a_used_slot_is_measured_anew() {
    let mut discovery = known(2, EventSource::Processes);
    discovery.remove(SpaceSlot(1));
    assert_eq!(discovery.schedules.len(), 2);
    let now = SECOND - MS;
    calm(&mut discovery, 0, now);
    discovery.add(SpaceSlot(1), now, now);
    assert_eq!(discovery.next(now), Some(Discover::Sizes));
    assert_eq!(discovery.asked(), [SpaceSlot(1)]);
}

#[test]
fn a_space_that_is_gone_has_processes_listed_soon() {
    let mut discovery = known(1, EventSource::Processes);
    calm(&mut discovery, 0, 10 * SECOND);
    let before = discovery.processes.due;
    discovery.sizes.choose(20 * SECOND);
    let mut gone = size(SpaceSlot(0), 0);
    gone.gone = true;
    discovery.measured(&[gone], before - 200 * MS);
    assert!(discovery.processes.due < before);
    assert!(discovery.changed.is_empty(), "there is nothing to list");
}

#[test]
fn slices_are_bounded_and_each_has_an_interval_of_its_own() {
    let mut discovery = known(2500, EventSource::Processes);
    calm(&mut discovery, 0, 10 * SECOND);
    let mut seen = vec![];
    for _ in 0..3 {
        discovery.sizes.choose(20 * SECOND);
        seen.push(discovery.asked().len());
        let slots: Vec<SpaceSlot> = discovery.asked().to_vec();
        // A space of the second slice grows.
        let mappings = |slot: SpaceSlot| if slot.0 == 1500 { 9 } else { 3 };
        let sizes: Vec<_> = slots
            .iter()
            .map(|&slot| size(slot, mappings(slot)))
            .collect();
        discovery.measured(&sizes, 20 * SECOND);
    }
    seen.sort_unstable();
    assert_eq!(seen, [452, 1024, 1024]);
    assert_eq!(discovery.sizes.due_at(), 20 * SECOND + 125 * MS);
    discovery.sizes.choose(20 * SECOND + 125 * MS);
    assert!(discovery.asked().contains(&SpaceSlot(1500)));
}

#[test]
fn a_space_that_is_reported_to_have_grown_is_measured_at_once_and_soon_again_if_it_has() {
    for has_grown in [false, true] {
        let mut discovery = known(SLICES, EventSource::Processes);
        let now = 60 * SECOND + MS;
        calm(&mut discovery, 0, now);
        // All slices are calm, and nothing is due.
        assert_eq!(discovery.next(now), None);
        let slot = SpaceSlot(1500);
        discovery.measure_soon(slot);
        assert_eq!(discovery.next(now), Some(Discover::Sizes));
        assert_eq!(discovery.asked(), [slot], "and no other");
        discovery.measured(&[size(slot, if has_grown { 4 } else { 3 })], now);
        if has_grown {
            assert_eq!(discovery.next(now), Some(Discover::Mappings(slot)));
            discovery.mappings_listed(slot, true, (now, 0), now);
        }
        assert_eq!(discovery.next(now), None);
        let soon = now + 2 * discovery.shortest();
        let is_asked_again = discovery.next(soon) == Some(Discover::Sizes);
        assert_eq!(is_asked_again, has_grown);
        if has_grown {
            let its_slice: Vec<_> = (1024..SLICES).map(SpaceSlot).collect();
            assert_eq!(discovery.asked(), its_slice);
        }
    }
}

#[test]
fn spaces_that_grow_all_the_time_do_not_hide_others() {
    let mut discovery = known(SLICES, EventSource::Processes);
    let mut asked = 0;
    for turn in 1..100 {
        let now = turn * SECOND;
        discovery.processes_listed(false, false, EventSource::Processes, now);
        discovery.measure_soon(SpaceSlot(1));
        assert_eq!(discovery.next(now), Some(Discover::Sizes));
        asked += usize::from(discovery.asked().contains(&SpaceSlot(SLICES - 1)));
        let slots = discovery.asked().to_vec();
        let sizes: Vec<_> = slots.iter().map(|&slot| size(slot, 3)).collect();
        discovery.measured(&sizes, now);
    }
    assert!(asked >= 20, "{asked} of 100");
}

/// Where waking is expensive and the share is small, spaces watched by the supervisor are measured
/// so seldom that it takes no more than the share of repairs; reported changes are followed at once
/// all the same.
#[test]
fn what_somebody_else_watches_is_repaired_from_a_small_share() {
    let mut discovery = known(3, EventSource::Spaces);
    let params = Params {
        bottom_cpu: 0.000_01,
        ..Params::governor(Governor::Full)
    };
    discovery.take_shares(&params);
    let mut now = SECOND;
    let mut used = 0;
    while now < 10 * 3600 * SECOND {
        while let Some(list) = discovery.next(now) {
            used += 3 * MS;
            discovery.charge(discovery.asked_for, now, 3 * MS);
            match list {
                Discover::Processes => {
                    discovery.processes_listed(false, false, EventSource::Spaces, now);
                }
                Discover::Sizes => {
                    let slots = discovery.asked().to_vec();
                    let sizes: Vec<_> = slots.iter().map(|&slot| size(slot, 3)).collect();
                    discovery.measured(&sizes, now);
                }
                Discover::Mappings(slot) => {
                    discovery.mappings_listed(slot, false, (now, 3 * MS), now);
                }
            }
        }
        now = discovery.due_at(now).max(now + SECOND);
    }
    let repairs = params.bottom_cpu / 8.0;
    let share = used as f64 / (10 * 3600 * SECOND) as f64;
    // The first of each is paid from the saved budget; it was nine times that share.
    assert!(share < 2.0 * repairs, "{share} of {repairs}");
    discovery.events_arrived(now);
    assert_eq!(discovery.processes_payer(), List::Events);
    assert_eq!(
        discovery.next(now + discovery.shortest()),
        Some(Discover::Processes)
    );
}

#[test]
fn a_list_during_which_the_machine_stood_still_makes_nobody_deaf() {
    let mut discovery = known(10, EventSource::Spaces);
    let now = 60 * SECOND;
    for list in [List::Events, List::Sizes, List::Changed] {
        discovery.charge(list, now, SECOND);
        let ready = discovery.budgets[list as usize].ready_at(now);
        assert!(ready > now, "it is owed for");
        assert!(
            ready < now + 4 * SECOND,
            "{list:?}: {} ms",
            (ready - now) / MS
        );
    }
    // Nor is the space whose mappings were listed then left alone for long.
    discovery.mappings_listed(SpaceSlot(0), true, (now, SECOND), now);
    let rests_until = discovery.schedules[0].rests_until;
    assert!(rests_until <= now + MAX_REST, "{rests_until}");
}
