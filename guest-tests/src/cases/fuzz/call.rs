//! One random call of the device: good, spoiled, or nonsense.
//!
//! # Problem
//! Calls of random bytes all end at the first check. To reach page tables a call must be nearly
//! right, and to find faults behind the checks it must then be wrong in one place.
//!
//! # Approach
//! A call starts as a good one for live spaces, frames and addresses, half of them in still areas
//! of the targets and half where page tables come and go. One in four is then spoiled: some bits
//! of its request or of its arrays are turned. Some name an address beyond user space, and must be
//! EINVAL as a whole, since nothing else keeps the module from looking there. Pointers in requests always name buffers
//! of the largest size the contract allows, or places where no memory of this process is: the
//! kernel may write through them, and the fuzzer must live on.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use uksm_linux::module::{ioctl, raw};

use super::target::Area;
use crate::fixtures::contents::{PAGE, Random};

/// The verbs, in the order of their numbers.
pub(super) const VERBS: [(u32, &str); 10] = [
    (raw::UKSM_IOC_INFO, "INFO"),
    (raw::UKSM_IOC_CONFIGURE, "CONFIGURE"),
    (raw::UKSM_IOC_ATTACH, "ATTACH"),
    (raw::UKSM_IOC_DETACH, "DETACH"),
    (raw::UKSM_IOC_SEAL, "SEAL"),
    (raw::UKSM_IOC_SAMPLE, "SAMPLE"),
    (raw::UKSM_IOC_FOLD, "FOLD"),
    (raw::UKSM_IOC_BREAK, "BREAK"),
    (raw::UKSM_IOC_COUNT, "COUNT"),
    (raw::UKSM_IOC_FRAMES, "FRAMES"),
];

/// How often each verb is called, of 100; the page-table verbs most.
const WEIGHTS: [u64; 10] = [3, 1, 4, 2, 0, 34, 38, 6, 7, 5];

/// Places where this process has no memory.
const NOWHERE: [u64; 4] = [0, 4096, 0x7FFF_FFFF_E000, 0xFFFF_8000_0000_0000];

/// Addresses that are no user's, with page tables of any depth: neither canonical nor kernel, and
/// the kernel's own.
const BEYOND: [u64; 5] = [
    1 << 56,
    0xFF00_0000_0000_0000,
    0xFFFF_8880_0000_0000,
    0xFFFF_FFFF_8100_0000,
    0xFFFF_FFFF_FFFF_F000,
];
/// One call in so many names such an address.
const BEYOND_CHANCE: u64 = 40;

/// What calls are made of.
#[derive(Debug)]
pub(super) struct Material {
    /// Live spaces of the domain that is called, at least one.
    pub spaces: Vec<u32>,
    /// Descriptors of pidfds.
    pub pidfds: Vec<i32>,
    /// Where the targets have memory, or had: a large still area first.
    pub areas: Vec<Area>,
}

impl Material {
    /// Half the time the first area.
    fn some_area(&self, random: &mut Random) -> Area {
        if random.chance(1, 2) {
            self.areas[0]
        } else {
            self.areas[random.page(self.areas.len())]
        }
    }

    /// Mostly a page of an area, sometimes one behind the first, or any.
    fn some_address(&self, random: &mut Random) -> u64 {
        match random.below(32) {
            0 => page_of(self.areas[0], self.areas[0].pages + random.page(4096)),
            1 => random.word() & 0x7FFF_FFFF_F000,
            _ => {
                let area = self.some_area(random);
                page_of(area, random.page(area.pages))
            }
        }
    }
}

/// The address of a page counted from the start of an area.
fn page_of(area: Area, page: usize) -> u64 {
    area.start + (page * PAGE) as u64
}

/// Now and then an address beyond user space.
fn some_beyond(random: &mut Random) -> Option<u64> {
    random
        .chance(1, BEYOND_CHANCE)
        .then(|| BEYOND[random.page(BEYOND.len())])
}

/// A call that names an address beyond user space is wrong as a whole.
fn assert_refused(beyond: Option<u64>, spoil: bool, result: Result<(), Errno>) {
    if let Some(address) = beyond
        && !spoil
    {
        assert_eq!(
            result,
            Err(Errno::INVAL),
            "a call with address {address:#x} should be refused"
        );
    }
}

/// The buffers calls point to, of the largest size.
pub(super) struct Buffers {
    runs: Vec<raw::uksm_run>,
    pages: Vec<raw::uksm_page>,
    entries: Vec<raw::uksm_fold_entry>,
    frames: Vec<raw::uksm_frame>,
}

/// What a call came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Called {
    /// Index into [`VERBS`].
    pub verb: usize,
    /// The errno, 0 if it was taken.
    pub errno: i32,
    /// Whether it looked at page tables of a live process.
    pub reached: bool,
}

impl Buffers {
    /// Buffers of the largest size.
    #[must_use]
    pub(super) fn new() -> Buffers {
        Buffers {
            runs: vec![raw::uksm_run::default(); raw::UKSM_MAX_RUNS],
            pages: vec![raw::uksm_page::default(); raw::UKSM_MAX_PAGES],
            entries: vec![raw::uksm_fold_entry::default(); raw::UKSM_MAX_FOLD],
            frames: vec![raw::uksm_frame::default(); raw::UKSM_MAX_FRAMES],
        }
    }

    /// Makes and sends one call.
    pub(super) fn call(
        &mut self,
        device: BorrowedFd<'_>,
        material: &Material,
        random: &mut Random,
    ) -> Called {
        let verb = pick_verb(random);
        let spoil = random.chance(1, 4);
        let (result, reached) = match VERBS[verb].0 {
            raw::UKSM_IOC_SAMPLE => self.sample(device, material, random, spoil),
            raw::UKSM_IOC_FOLD => self.fold(device, material, random, spoil),
            raw::UKSM_IOC_FRAMES => (self.list(device, random, spoil), false),
            raw::UKSM_IOC_BREAK => break_or_count(device, material, random, spoil, true),
            raw::UKSM_IOC_COUNT => break_or_count(device, material, random, spoil, false),
            number => (plain(device, number, material, random, spoil), false),
        };
        let errno = result.err().map_or(0, Errno::raw_os_error);
        Called {
            verb,
            errno,
            reached: reached && errno == 0,
        }
    }

    fn sample(
        &mut self,
        device: BorrowedFd<'_>,
        material: &Material,
        random: &mut Random,
        spoil: bool,
    ) -> (Result<(), Errno>, bool) {
        let nr_runs = 1 + random.page(8);
        let mut nr_pages = 0;
        for run in &mut self.runs[..nr_runs] {
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
            self.runs[random.page(nr_runs)].start = address;
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
            turn_bits(&mut self.runs[random.page(nr_runs)], random);
        } else if spoil {
            turn_bits(&mut request, random);
        }
        request.runs = some_pointer(self.runs.as_ptr(), random, spoil);
        request.pages = some_pointer(self.pages.as_ptr(), random, spoil);
        for page in &mut self.pages[..nr_pages.min(1024) as usize] {
            page.state = raw::UKSM_STATE_DEAD;
        }
        let result = send(device, raw::UKSM_IOC_SAMPLE, &mut request);
        assert_refused(beyond, spoil, result);
        let answered = &self.pages[..(request.done as usize).min(self.pages.len())];
        let walked = |page: &raw::uksm_page| page.state < raw::UKSM_STATE_UNMAPPED;
        (result, answered.iter().any(walked))
    }

    fn fold(
        &mut self,
        device: BorrowedFd<'_>,
        material: &Material,
        random: &mut Random,
        spoil: bool,
    ) -> (Result<(), Errno>, bool) {
        let count = 1 + random.page(64);
        let space = some_space(random, material, spoil);
        let area = material.some_area(random);
        let first = random.page(area.pages);
        // Batches of one area alone are often all mapped or all unmapped.
        let stray = random.chance(1, 2);
        for (at, entry) in self.entries[..count].iter_mut().enumerate() {
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
                frame: if kind == raw::UKSM_KIND_FRAME {
                    1 + small(random, 64)
                } else {
                    0
                },
                set: if kind == raw::UKSM_KIND_SET {
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
            self.entries[random.page(count)].address = address;
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
            turn_bits(&mut self.entries[random.page(count)], random);
        } else if spoil {
            turn_bits(&mut request, random);
        }
        request.entries = some_pointer(self.entries.as_ptr(), random, spoil);
        let result = send(device, raw::UKSM_IOC_FOLD, &mut request);
        assert_refused(beyond, spoil, result);
        let tried = &self.entries[..(request.done as usize).min(self.entries.len())];
        let walked = |entry: &raw::uksm_fold_entry| {
            entry.status != raw::UKSM_STATUS_UNTRIED
                && !matches!(
                    entry.reason,
                    raw::UKSM_REASON_DEAD | raw::UKSM_REASON_LOCK | raw::UKSM_REASON_NO_FRAME
                )
        };
        (result, tried.iter().any(walked))
    }

    fn list(
        &mut self,
        device: BorrowedFd<'_>,
        random: &mut Random,
        spoil: bool,
    ) -> Result<(), Errno> {
        let (a, b) = (some_line(random), some_line(random));
        let mut request = raw::uksm_frames {
            count: small(random, 128),
            cursor: small(random, 64),
            from: a.min(b),
            to: a.max(b),
            flags: u32::try_from(random.below(2)).expect("a flag"),
            ..Default::default()
        };
        if spoil {
            turn_bits(&mut request, random);
        }
        request.frames = some_pointer(self.frames.as_ptr(), random, spoil);
        send(device, raw::UKSM_IOC_FRAMES, &mut request)
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers::new()
    }
}

/// BREAK and COUNT take the same range.
fn break_or_count(
    device: BorrowedFd<'_>,
    material: &Material,
    random: &mut Random,
    spoil: bool,
    breaking: bool,
) -> (Result<(), Errno>, bool) {
    let (a, b) = (material.some_address(random), material.some_address(random));
    let beyond = some_beyond(random);
    let space = some_space(random, material, spoil);
    let live = material.spaces.contains(&space);
    let (start, end) = (a.min(b), a.max(b));
    if breaking {
        // A small range: BREAK over all undoes what the rest works on.
        let end = end.min(start + 16 * PAGE as u64);
        let mut request = raw::uksm_break {
            space,
            start,
            end: beyond.unwrap_or(end),
            ..Default::default()
        };
        if spoil {
            turn_bits(&mut request, random);
        }
        let result = send(device, raw::UKSM_IOC_BREAK, &mut request);
        assert_refused(beyond, spoil, result);
        (result, live && end > start)
    } else {
        let mut request = raw::uksm_count {
            space,
            start,
            end: beyond.unwrap_or(end),
            ..Default::default()
        };
        if spoil {
            turn_bits(&mut request, random);
        }
        let result = send(device, raw::UKSM_IOC_COUNT, &mut request);
        assert_refused(beyond, spoil, result);
        (result, request.pages.iter().any(|&pages| pages > 0))
    }
}

/// Verbs that do not look at page tables, and numbers that are no verb.
fn plain(
    device: BorrowedFd<'_>,
    number: u32,
    material: &Material,
    random: &mut Random,
    spoil: bool,
) -> Result<(), Errno> {
    match number {
        raw::UKSM_IOC_ATTACH => {
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
            send(device, number, &mut request)
        }
        raw::UKSM_IOC_DETACH => {
            let mut request = raw::uksm_detach {
                space: some_space(random, material, spoil),
                flags: u32::from(spoil),
            };
            send(device, number, &mut request)
        }
        _ => {
            // INFO, CONFIGURE and numbers that are near those of verbs.
            let mut request = [0u64; 512];
            for word in request.iter_mut().take(8) {
                *word = random.word();
            }
            let number = if spoil {
                number ^ 1 << random.below(30)
            } else {
                number
            };
            let known = VERBS.iter().any(|&(verb, _)| {
                verb == number && verb != raw::UKSM_IOC_INFO && verb != raw::UKSM_IOC_CONFIGURE
            });
            // A flipped bit may make a verb with pointers, for which random words are unfit.
            if known {
                Err(Errno::NOTTY)
            } else {
                send(device, number, &mut request)
            }
        }
    }
}

fn send<T>(device: BorrowedFd<'_>, verb: u32, request: &mut T) -> Result<(), Errno> {
    let argument = std::ptr::from_mut(request).cast();
    // SAFETY: every pointer in a request is one of `some_pointer`: a buffer of the largest size
    // that the module writes to, or a place without memory. Plain requests have room to spare.
    unsafe { ioctl::any(device, verb, argument) }.map(drop)
}

fn pick_verb(random: &mut Random) -> usize {
    let mut ticket = random.below(WEIGHTS.iter().sum());
    for (verb, &weight) in WEIGHTS.iter().enumerate() {
        if ticket < weight {
            return verb;
        }
        ticket -= weight;
    }
    unreachable!("a ticket is below the sum of all weights")
}

/// The buffer; in spoiled calls now and then a place without memory.
fn some_pointer<T>(buffer: *const T, random: &mut Random, spoil: bool) -> u64 {
    if spoil && random.chance(1, 8) {
        NOWHERE[random.page(NOWHERE.len())]
    } else {
        buffer.expose_provenance() as u64
    }
}

/// A space of the targets; in spoiled calls now and then another number.
fn some_space(random: &mut Random, material: &Material, spoil: bool) -> u32 {
    if spoil && random.chance(1, 16) {
        small(random, 64)
    } else {
        material.spaces[random.page(material.spaces.len())]
    }
}

fn some_line(random: &mut Random) -> u16 {
    u16::try_from(random.below(65)).expect("a line")
}

fn small(random: &mut Random, bound: u64) -> u32 {
    u32::try_from(random.below(bound)).expect("a small number")
}

/// Structures of the contract: plain integers without hidden padding.
pub(super) trait Plain: Copy {}
impl Plain for raw::uksm_run {}
impl Plain for raw::uksm_sample {}
impl Plain for raw::uksm_fold {}
impl Plain for raw::uksm_fold_entry {}
impl Plain for raw::uksm_break {}
impl Plain for raw::uksm_count {}
impl Plain for raw::uksm_frames {}

/// Turns one to four bits.
fn turn_bits<T: Plain>(structure: &mut T, random: &mut Random) {
    // SAFETY: the structure is plain integers, for which all bytes are values.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(std::ptr::from_mut(structure).cast::<u8>(), size_of::<T>())
    };
    for _ in 0..=random.below(4) {
        bytes[random.page(size_of::<T>())] ^= 1 << random.below(8);
    }
}

/// The device of a domain, for calls.
#[must_use]
pub(super) fn device(domain: &crate::fixtures::domain::Domain) -> BorrowedFd<'_> {
    domain.device.as_fd()
}
