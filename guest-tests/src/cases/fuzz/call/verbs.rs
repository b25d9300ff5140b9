//! The parts of a random call of each verb.
//!
//! One row a verb, and the function that makes and sends its call. A new verb needs both, only here
//! among the guest's tests; a test compares the table with the contract.

use rustix::io::Errno;
use uksm_linux::module::raw;

use super::material::{
    Buffers, Call, Plain, assert_refused, page_of, send, small, some_beyond, some_line,
    some_pointer, some_space, turn_bits,
};
use crate::fixtures::contents::{PAGE, Random};

/// The module's answer, and whether it read page tables of a live process.
type Sent = (Result<(), Errno>, bool);

/// A verb of the contract, as the fuzzer calls it.
pub(in crate::cases::fuzz) struct Verb {
    /// Its number.
    pub number: u32,
    /// Its name in results.
    pub name: &'static str,
    /// Number of its calls of 100; the page-table verbs have most.
    weight: u64,
    /// Makes and sends one call.
    pub(super) send: fn(&mut Buffers, Call<'_>) -> Sent,
}

/// A row of the table.
macro_rules! verb {
    ($name:ident, $number:ident, $weight:literal, $send:ident) => {
        Verb {
            number: raw::$number,
            name: stringify!($name),
            weight: $weight,
            send: $send,
        }
    };
}

/// The verbs, in the order of their numbers.
pub(in crate::cases::fuzz) const VERBS: [Verb; 12] = [
    verb!(INFO, UKSM_IOC_INFO, 2, info),
    verb!(CONFIGURE, UKSM_IOC_CONFIGURE, 1, configure),
    verb!(ATTACH, UKSM_IOC_ATTACH, 4, attach),
    verb!(DETACH, UKSM_IOC_DETACH, 2, detach),
    // No target could be attached after it: the campaign seals at its end.
    verb!(SEAL, UKSM_IOC_SEAL, 0, seal),
    verb!(SAMPLE, UKSM_IOC_SAMPLE, 32, sample),
    verb!(FOLD, UKSM_IOC_FOLD, 36, fold),
    verb!(BREAK, UKSM_IOC_BREAK, 6, unmerge),
    verb!(COUNT, UKSM_IOC_COUNT, 7, count),
    verb!(FRAMES, UKSM_IOC_FRAMES, 5, list),
    verb!(SIZES, UKSM_IOC_SIZES, 2, measure),
    verb!(MAPPINGS, UKSM_IOC_MAPPINGS, 3, list_mappings),
];

/// Picks a verb by weight; returns its index.
pub(super) fn pick(random: &mut Random) -> usize {
    let mut ticket = random.below(VERBS.iter().map(|verb| verb.weight).sum());
    for (index, verb) in VERBS.iter().enumerate() {
        if ticket < verb.weight {
            return index;
        }
        ticket -= verb.weight;
    }
    unreachable!("a ticket is below the sum of all weights")
}

fn sample(buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let nr_runs = 1 + random.page(8);
    let mut nr_pages = 0;
    for run in &mut buffers.runs[..nr_runs] {
        let count = small(random, 32).max(1);
        let stride = if count == 1 {
            1
        } else {
            small(random, 4).max(1)
        };
        *run = raw::uksm_run {
            start: material.some_address(random),
            space: some_space(random, material, spoil),
            count,
            stride,
            pad: 0,
        };
        nr_pages += count;
    }
    let beyond = some_beyond(random);
    if let Some(address) = beyond {
        buffers.runs[random.page(nr_runs)].start = address;
    }
    let (a, b) = (some_line(random), some_line(random));
    let mut request = raw::uksm_sample {
        nr_runs: u32::try_from(nr_runs).expect("few runs"),
        nr_pages,
        from: a.min(b),
        to: a.max(b),
        ..Default::default()
    };
    if spoil && random.chance(1, 2) {
        turn_bits(&mut buffers.runs[random.page(nr_runs)], random);
    } else if spoil {
        turn_bits(&mut request, random);
    }
    request.runs = some_pointer(buffers.runs.as_ptr(), random, spoil);
    request.pages = some_pointer(buffers.pages.as_ptr(), random, spoil);
    for page in &mut buffers.pages[..nr_pages.min(1024) as usize] {
        page.state = raw::State::Dead as u16;
    }
    let result = send(device, raw::UKSM_IOC_SAMPLE, &mut request);
    assert_refused(beyond, spoil, result);
    let answered = &buffers.pages[..(request.done as usize).min(buffers.pages.len())];
    let walked = |page: &raw::uksm_page| page.state < raw::State::Unmapped as u16;
    (result, answered.iter().any(walked))
}

fn fold(buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let count = 1 + random.page(64);
    let space = some_space(random, material, spoil);
    let area = material.some_area(random);
    let first = random.page(area.pages);
    // Batches of one area alone are often all mapped or all unmapped.
    let stray = random.chance(1, 2);
    for (at, entry) in buffers.entries[..count].iter_mut().enumerate() {
        let near = !stray || random.chance(3, 4);
        let kind = u8::try_from(random.below(3)).expect("a kind");
        *entry = raw::uksm_fold_entry {
            address: if near {
                page_of(area, (first + at) % area.pages)
            } else {
                material.some_address(random)
            },
            hash: random.word(),
            space: if near {
                space
            } else {
                some_space(random, material, spoil)
            },
            frame: if kind == raw::Kind::Frame as u8 {
                1 + small(random, 64)
            } else {
                0
            },
            set: if kind == raw::Kind::Set as u8 {
                u16::try_from(random.below(8)).expect("a set")
            } else {
                0
            },
            kind,
            ..Default::default()
        };
    }
    let beyond = some_beyond(random);
    if let Some(address) = beyond {
        buffers.entries[random.page(count)].address = address;
    }
    let mut request = raw::uksm_fold {
        count: u32::try_from(count).expect("few entries"),
        flags: u32::try_from(random.below(4)).expect("flags")
            | if random.chance(1, 500) {
                raw::UKSM_FOLD_DRAIN
            } else {
                0
            },
        lines: if random.chance(1, 8) {
            some_line(random)
        } else {
            0
        },
        ..Default::default()
    };
    if spoil && random.chance(1, 2) {
        turn_bits(&mut buffers.entries[random.page(count)], random);
    } else if spoil {
        turn_bits(&mut request, random);
    }
    request.entries = some_pointer(buffers.entries.as_ptr(), random, spoil);
    let result = send(device, raw::UKSM_IOC_FOLD, &mut request);
    assert_refused(beyond, spoil, result);
    let tried = &buffers.entries[..(request.done as usize).min(buffers.entries.len())];
    let walked = |entry: &raw::uksm_fold_entry| {
        entry.status != raw::Status::Untried as u8
            && !matches!(
                raw::Reason::from_number(entry.reason.into()),
                Some(raw::Reason::Dead | raw::Reason::Lock | raw::Reason::NoFrame)
            )
    };
    (result, tried.iter().any(walked))
}

fn list(buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material: _,
        random,
        spoil,
    } = call;
    let (a, b) = (some_line(random), some_line(random));
    let mut request = raw::uksm_frames {
        count: small(random, 128),
        cursor: small(random, 64),
        from: a.min(b),
        to: a.max(b),
        flags: u32::try_from(random.below(4)).expect("flags"),
        ..Default::default()
    };
    if spoil {
        turn_bits(&mut request, random);
    }
    request.frames = some_pointer(buffers.frames.as_ptr(), random, spoil);
    (send(device, raw::UKSM_IOC_FRAMES, &mut request), false)
}

/// SIZES of spaces of any kind, which it flags; it reads no page table.
fn measure(buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let count = small(random, 256);
    for size in &mut buffers.sizes[..count as usize] {
        size.space = if random.chance(1, 4) {
            u32::try_from(random.below(1 << 32)).expect("32 bits")
        } else {
            some_space(random, material, spoil)
        };
    }
    let mut request = raw::uksm_sizes {
        count,
        ..Default::default()
    };
    if spoil {
        turn_bits(&mut request, random);
    }
    request.sizes = some_pointer(buffers.sizes.as_ptr(), random, spoil);
    (send(device, raw::UKSM_IOC_SIZES, &mut request), false)
}

/// MAPPINGS from the beginning, from the middle of a mapping, or from anywhere; it reads no page
/// table.
fn list_mappings(buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let beyond = some_beyond(random);
    let start = if random.chance(1, 3) {
        0
    } else {
        material.some_address(random)
    };
    let mut request = raw::uksm_mappings {
        start: beyond.unwrap_or(start),
        space: some_space(random, material, spoil),
        count: 1 + small(random, 512),
        ..Default::default()
    };
    if spoil {
        turn_bits(&mut request, random);
    }
    request.mappings = some_pointer(buffers.mappings.as_ptr(), random, spoil);
    let result = send(device, raw::UKSM_IOC_MAPPINGS, &mut request);
    assert_refused(beyond, spoil, result);
    if result.is_ok() && !spoil {
        assert_in_order(&request, &buffers.mappings);
    }
    (result, false)
}

/// A list is ascending and disjoint during all changes of the target.
fn assert_in_order(request: &raw::uksm_mappings, mappings: &[raw::uksm_mapping]) {
    let mut last = request.start;
    for mapping in &mappings[..request.done as usize] {
        assert!(last <= mapping.start && mapping.start < mapping.end);
        last = mapping.end;
    }
    assert!(request.next == 0 || request.next >= last);
    assert!(request.done <= request.count);
}

/// Start and end of a range, and now and then an end beyond user space.
fn some_range(call: &mut Call<'_>) -> (u64, u64, Option<u64>) {
    let Call {
        material, random, ..
    } = call;
    let (a, b) = (material.some_address(random), material.some_address(random));
    (a.min(b), a.max(b), some_beyond(random))
}

/// Sends a call with a range, which must be refused if it ends beyond user space.
fn send_range<T: Plain>(
    number: u32,
    request: &mut T,
    beyond: Option<u64>,
    call: &mut Call<'_>,
) -> Result<(), Errno> {
    if call.spoil {
        turn_bits(request, call.random);
    }
    let result = send(call.device, number, request);
    assert_refused(beyond, call.spoil, result);
    result
}

/// BREAK of a small range: BREAK over all would undo the work of the other calls.
fn unmerge(_buffers: &mut Buffers, mut call: Call<'_>) -> Sent {
    let (start, end, beyond) = some_range(&mut call);
    let space = some_space(call.random, call.material, call.spoil);
    let live = call.material.spaces.contains(&space);
    let end = end.min(start + 16 * PAGE as u64);
    let choices = [0, 0, raw::UKSM_BREAK_FOREIGN, raw::UKSM_BREAK_SINGLE];
    let flags = choices[call.random.page(choices.len())];
    let mut request = raw::uksm_break {
        space,
        flags,
        start,
        end: beyond.unwrap_or(end),
        ..Default::default()
    };
    let result = send_range(raw::UKSM_IOC_BREAK, &mut request, beyond, &mut call);
    (result, live && end > start)
}

fn count(_buffers: &mut Buffers, mut call: Call<'_>) -> Sent {
    let (start, end, beyond) = some_range(&mut call);
    let mut request = raw::uksm_count {
        space: some_space(call.random, call.material, call.spoil),
        start,
        end: beyond.unwrap_or(end),
        ..Default::default()
    };
    let result = send_range(raw::UKSM_IOC_COUNT, &mut request, beyond, &mut call);
    (result, request.pages.iter().any(|&pages| pages > 0))
}

fn attach(_buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let known = material.pidfds[random.page(material.pidfds.len())];
    let mut request = raw::uksm_attach {
        pidfd: if spoil {
            i32::try_from(random.below(300)).expect("small") - 5
        } else {
            known
        },
        flags: u32::from(spoil && random.chance(1, 4)),
        ..Default::default()
    };
    (send(device, raw::UKSM_IOC_ATTACH, &mut request), false)
}

fn detach(_buffers: &mut Buffers, call: Call<'_>) -> Sent {
    let Call {
        device,
        material,
        random,
        spoil,
    } = call;
    let all = random.chance(1, 16);
    let mut request = raw::uksm_detach {
        space: if all {
            0
        } else {
            some_space(random, material, spoil)
        },
        flags: u32::from(spoil),
    };
    (send(device, raw::UKSM_IOC_DETACH, &mut request), false)
}

fn info(_buffers: &mut Buffers, call: Call<'_>) -> Sent {
    (send_words(raw::UKSM_IOC_INFO, call), false)
}

fn configure(_buffers: &mut Buffers, call: Call<'_>) -> Sent {
    (send_words(raw::UKSM_IOC_CONFIGURE, call), false)
}

fn seal(_buffers: &mut Buffers, call: Call<'_>) -> Sent {
    (send_words(raw::UKSM_IOC_SEAL, call), false)
}

/// Random words for a verb without pointers, or for a number near one.
fn send_words(number: u32, call: Call<'_>) -> Result<(), Errno> {
    let Call {
        device,
        material: _,
        random,
        spoil,
    } = call;
    let mut request = [0u64; 512];
    for word in request.iter_mut().take(8) {
        *word = random.word();
    }
    if spoil {
        let near = number ^ 1 << random.below(30);
        // Random words are no request for a verb with pointers.
        if VERBS.iter().any(|verb| verb.number == near) {
            return Err(Errno::NOTTY);
        }
        return send(device, near, &mut request);
    }
    send(device, number, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ioctl_of_the_contract_is_fuzzed() {
        let header = include_str!("../../../../../interface/uksm_ioctl.h");
        let declared: Vec<&str> = header
            .lines()
            .filter_map(|line| line.strip_prefix("#define UKSM_IOC_"))
            .filter_map(|rest| rest.split_whitespace().next())
            .collect();
        let fuzzed: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        assert_eq!(fuzzed, declared);
    }

    #[test]
    fn weights_are_percentages() {
        assert_eq!(VERBS.iter().map(|verb| verb.weight).sum::<u64>(), 100);
    }
}
