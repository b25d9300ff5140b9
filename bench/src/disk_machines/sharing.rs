//! The pages that two machines could share, at each moment: the oracle (XLH §5.1).
//!
//! A chance to share is a block that both have cached: it begins when the second one has it, and
//! ends when the first one drops it. No machine has a block twice, and no other pages are equal, so
//! at each moment as many pages could be saved as there are chances.

use std::collections::HashMap;

use super::Machine;
use super::plan::{Action, Plan};

/// A page of each machine with the same contents, for a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chance {
    /// The page of the first machine, and of the second.
    pub pages: [usize; 2],
    /// Its start, in seconds.
    pub from: f64,
    /// Its end.
    pub until: f64,
}

/// A block in a page, for a time.
#[derive(Debug, Clone, Copy)]
struct Stay {
    block: u64,
    page: usize,
    from: f64,
    until: f64,
}

/// The positions of blocks during the work of a machine.
fn stays(machine: &Machine, plan: &Plan) -> Vec<Stay> {
    let end = machine.length.as_secs_f64();
    let mut stays: Vec<Stay> = Vec::new();
    let mut in_page: HashMap<usize, usize> = HashMap::new();
    for step in plan
        .0
        .iter()
        .filter(|step| step.action != Action::WriteBack)
    {
        let from = step.at.as_secs_f64();
        for (block, page) in step.blocks() {
            if let Some(&before) = in_page.get(&page) {
                // Written again: the contents are unchanged.
                if stays[before].block == block {
                    continue;
                }
                stays[before].until = from;
            }
            in_page.insert(page, stays.len());
            stays.push(Stay {
                block,
                page,
                from,
                until: end,
            });
        }
    }
    stays
}

/// All chances of two machines, by their start.
pub(crate) fn chances(machines: [&Machine; 2], plans: [&Plan; 2]) -> Vec<Chance> {
    let mut others: HashMap<u64, Vec<Stay>> = HashMap::new();
    for stay in stays(machines[1], plans[1]) {
        others.entry(stay.block).or_default().push(stay);
    }
    let mut chances = Vec::new();
    for own in stays(machines[0], plans[0]) {
        for other in others.get(&own.block).into_iter().flatten() {
            let (from, until) = (own.from.max(other.from), own.until.min(other.until));
            if from < until {
                let pages = [own.page, other.page];
                chances.push(Chance { pages, from, until });
            }
        }
    }
    chances.sort_by(|a, b| a.from.total_cmp(&b.from));
    chances
}

/// The number of chances over time: each time of a change, and the number from then on.
pub(crate) fn course(chances: &[Chance]) -> Vec<(f64, usize)> {
    let mut changes: Vec<(f64, bool)> = chances
        .iter()
        .flat_map(|chance| [(chance.from, true), (chance.until, false)])
        .collect();
    // An end makes room before a start at the same time.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut count = 0_usize;
    let mut course = vec![(0.0, 0)];
    for (at, begins) in changes {
        count = if begins {
            count + 1
        } else {
            count.saturating_sub(1)
        };
        course.push((at, count));
    }
    course
}
