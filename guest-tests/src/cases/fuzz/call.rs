//! One random call of the device: good, spoiled, or nonsense.
//!
//! # Problem
//! Calls of random bytes all end at the first check. To reach page tables a call must be nearly
//! right, and to find faults behind the checks it must then be wrong in one place.
//!
//! # Approach
//! A call starts as a good one for live spaces, frames and addresses, half of them in still areas
//! of the targets and half where page tables come and go. One in four is then spoiled: some bits of
//! its request or of its arrays are flipped. Some name an address beyond user space, and must be
//! EINVAL as a whole, since no other check keeps the module from reading there. Pointers in
//! requests always name buffers of the largest size that the contract allows, or places without
//! memory of this process: the kernel may write through them, and the fuzzer must live on. The rest
//! of each verb is a row of [`verbs`].
//!
//! # Source
//! `interface/uksm_ioctl.h`.

mod verbs;

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use uksm_linux::module::{ioctl, raw};

use super::target::Area;
use crate::fixtures::contents::{PAGE, Random};
pub(super) use verbs::VERBS;

/// Places where this process has no memory.
const NOWHERE: [u64; 4] = [0, 4096, 0x7FFF_FFFF_E000, 0xFFFF_8000_0000_0000];

/// Addresses outside user space, with page tables of any depth: neither canonical nor kernel, and
/// the kernel's own.
const BEYOND: [u64; 5] = [
    1 << 56,
    0xFF00_0000_0000_0000,
    0xFFFF_8880_0000_0000,
    0xFFFF_FFFF_8100_0000,
    0xFFFF_FFFF_FFFF_F000,
];
/// One call in this many names such an address.
const BEYOND_CHANCE: u64 = 40;

/// The material of calls.
#[derive(Debug)]
pub(super) struct Material {
    /// Live spaces of the called domain, at least one.
    pub spaces: Vec<u32>,
    /// Descriptors of pidfds.
    pub pidfds: Vec<i32>,
    /// Areas where the targets have or had memory: a large still area first.
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

    /// Mostly a page of an area, sometimes one behind the first, or a random one.
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
    sizes: Vec<raw::uksm_size>,
    mappings: Vec<raw::uksm_mapping>,
}

/// The parts of a call.
struct Call<'a> {
    device: BorrowedFd<'a>,
    material: &'a Material,
    random: &'a mut Random,
    /// Whether it is to be wrong somewhere.
    spoil: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Called {
    /// Index into [`VERBS`].
    pub verb: usize,
    /// The errno, 0 if it was taken.
    pub errno: i32,
    /// Whether it read page tables of a live process.
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
            sizes: vec![raw::uksm_size::default(); raw::UKSM_MAX_SIZES],
            mappings: vec![raw::uksm_mapping::default(); raw::UKSM_MAX_MAPPINGS],
        }
    }

    /// Makes and sends one call.
    pub(super) fn call(
        &mut self,
        device: BorrowedFd<'_>,
        material: &Material,
        random: &mut Random,
    ) -> Called {
        let verb = verbs::pick(random);
        let call = Call {
            device,
            material,
            spoil: random.chance(1, 4),
            random,
        };
        let (result, reached) = (VERBS[verb].send)(self, call);
        let errno = result.err().map_or(0, Errno::raw_os_error);
        Called {
            verb,
            errno,
            reached: reached && errno == 0,
        }
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers::new()
    }
}

fn send<T>(device: BorrowedFd<'_>, verb: u32, request: &mut T) -> Result<(), Errno> {
    let argument = std::ptr::from_mut(request).cast();
    // SAFETY: every pointer in a request is one of `some_pointer`: a buffer of the largest size
    // that the module writes to, or a place without memory. Plain requests have room to spare.
    unsafe { ioctl::any(device, verb, argument) }.map(drop)
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
impl Plain for raw::uksm_sizes {}
impl Plain for raw::uksm_mappings {}

/// Flips one to four bits.
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
