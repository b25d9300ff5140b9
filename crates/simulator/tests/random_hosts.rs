//! Hosts of any shape: mergeable pages are merged, and then it is calm.
//!
//! Each case draws the number of processes, the number of their mappings, and the pages that are
//! zeros, alike, shared within a group, or unique. This finds states that no other test covers: an
//! engine that goes on reading or comparing for ever when there is nothing left to do.

mod scene;

use scene::{HEAP, MIB, S, base, host, show, unique};
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Fill, Host, Run};

/// The shape of the host of one case.
#[derive(Debug)]
struct Shape {
    processes: u64,
    /// Mappings of each process, and pages of each mapping.
    mappings: u64,
    pages: u64,
    /// Percent of the pages that are zeros; that are like others of their kind in `lines` of 64.
    zeros: u64,
    alike: u64,
    lines: u16,
    kinds: u64,
    /// Percent of the others that the processes of one of `groups` groups share, at the same places
    /// or at other ones in each.
    shared: u64,
    groups: u64,
    is_shuffled: bool,
    /// Whether every fifth page is missing.
    has_holes: bool,
}

impl Shape {
    fn draw(random: &mut SplitMix64) -> Shape {
        let mut one_of = |choices: &[u64]| {
            let at = random.below(choices.len() as u64);
            choices[usize::try_from(at).expect("few choices")]
        };
        let processes = one_of(&[2, 5, 20, 100, 600, 2000]);
        let each = (one_of(&[16, 128, 512, 2048]) * MIB / processes).max(4);
        let mappings = one_of(&[1, 1, 3, 16]).min(each);
        Shape {
            processes,
            mappings,
            pages: each / mappings,
            zeros: one_of(&[0, 0, 10, 80]),
            alike: one_of(&[0, 0, 20, 60]),
            lines: u16::try_from(one_of(&[1, 5, 20, 45, 63])).expect("a page has 64"),
            kinds: one_of(&[1, 3, 50]),
            shared: one_of(&[0, 2, 20, 60, 100]),
            groups: one_of(&[1, 2, 10, 300]),
            is_shuffled: one_of(&[0, 1]) == 1,
            has_holes: one_of(&[0, 0, 1]) == 1,
        }
    }

    /// The content of a page of a process.
    fn content(&self, process: u64, mapping: u64, page: u64) -> Content {
        let mixed = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let percent = (mixed ^ (process * 31)) % 100;
        let number = mapping * self.pages + page;
        if percent < self.zeros {
            Content::ZERO
        } else if percent < self.zeros + self.alike {
            let kind = u32::try_from(5 + page % self.kinds).expect("few kinds");
            Content::similar((process << 24) + number + 1, kind, self.lines)
        } else if mixed / 100 % 100 >= self.shared {
            unique(1_000_000 + process)(number)
        } else if self.is_shuffled {
            let other = (page * 7919 + process * 104_729) % self.pages;
            unique(process % self.groups)(mapping * self.pages + other)
        } else {
            unique(process % self.groups)(number)
        }
    }

    fn host(&self) -> Host {
        let mut host = host();
        for process in 0..self.processes {
            let space = host.spawn(100 + process % 5);
            for mapping in 0..self.mappings {
                let start = base(mapping + 1) + process % 3 * PAGE_SIZE;
                let content = |page| self.content(process, mapping, page);
                let present: Vec<(u64, Content)> = (0..self.pages)
                    .filter(|page| !self.has_holes || page % 5 != 2)
                    .map(|page| (page, content(page)))
                    .collect();
                host.map(space, start, self.pages, HEAP, &Fill::Sparse(&present));
            }
        }
        host
    }
}

/// Calm costs a four-hundredth of a core. The measured minute may repay work of the minutes before.
const CALM: f64 = 0.01;

#[test]
fn what_can_be_merged_is_and_then_it_is_calm() {
    let random = &mut SplitMix64::new(7);
    for case in 0..120 {
        let shape = Shape::draw(random);
        let governor = Governor::ALL[case % 3];
        let params = Params::governor(governor);
        let mut run = Run::new(params, case as u64, shape.host()).unwrap();
        run.quietly_until(120 * S);
        let (saved, mergeable) = (run.host.saved(), run.host.mergeable());
        let spent = run.spent();
        run.quietly_until(180 * S);
        let share = (run.spent() - spent) as f64 / (60 * S) as f64;
        let case = format!("case {case}, {governor:?}, {shape:?}: {}", show(&run));
        assert!(share < CALM, "{share} of a core in calm: {case}");
        assert!(
            saved * 100 >= mergeable * 95 || mergeable < 100,
            "{saved} of {mergeable} saved: {case}"
        );
    }
}
