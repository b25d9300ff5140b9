//! The material of random calls: spaces, addresses and buffers, right ones and wrong ones.
//!
//! Pointers in requests always name buffers of the largest size that the contract allows, or places
//! without memory of this process: the kernel may write through them, and the fuzzer must live on.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use uksm_linux::module::{ioctl, raw};

use crate::cases::fuzz::target::Area;
use crate::fixtures::contents::{PAGE, Random};

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
pub(in crate::cases::fuzz) struct Material {
    /// Live spaces of the called domain, at least one.
    pub spaces: Vec<u32>,
    /// Descriptors of pidfds.
    pub pidfds: Vec<i32>,
    /// Areas where the targets have or had memory: a large still area first.
    pub areas: Vec<Area>,
}

impl Material {
    /// Half the time the first area.
    pub(super) fn some_area(&self, random: &mut Random) -> Area {
        if random.chance(1, 2) {
            self.areas[0]
        } else {
            self.areas[random.page(self.areas.len())]
        }
    }

    /// Mostly a page of an area, sometimes one behind the first, or a random one.
    pub(super) fn some_address(&self, random: &mut Random) -> u64 {
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
pub(super) fn page_of(area: Area, page: usize) -> u64 {
    area.start + (page * PAGE) as u64
}

/// Now and then an address beyond user space.
pub(super) fn some_beyond(random: &mut Random) -> Option<u64> {
    random
        .chance(1, BEYOND_CHANCE)
        .then(|| BEYOND[random.page(BEYOND.len())])
}

/// A call that names an address beyond user space is wrong as a whole.
pub(super) fn assert_refused(beyond: Option<u64>, spoil: bool, result: Result<(), Errno>) {
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
pub(in crate::cases::fuzz) struct Buffers {
    pub(super) runs: Vec<raw::uksm_run>,
    pub(super) pages: Vec<raw::uksm_page>,
    pub(super) entries: Vec<raw::uksm_fold_entry>,
    pub(super) frames: Vec<raw::uksm_frame>,
    pub(super) sizes: Vec<raw::uksm_size>,
    pub(super) mappings: Vec<raw::uksm_mapping>,
}

/// The parts of a call.
pub(super) struct Call<'a> {
    pub(super) device: BorrowedFd<'a>,
    pub(super) material: &'a Material,
    pub(super) random: &'a mut Random,
    /// Whether it is to be wrong somewhere.
    pub(super) spoil: bool,
}

impl Buffers {
    /// Buffers of the largest size.
    #[must_use]
    pub(in crate::cases::fuzz) fn new() -> Buffers {
        Buffers {
            runs: vec![raw::uksm_run::default(); raw::UKSM_MAX_RUNS],
            pages: vec![raw::uksm_page::default(); raw::UKSM_MAX_PAGES],
            entries: vec![raw::uksm_fold_entry::default(); raw::UKSM_MAX_FOLD],
            frames: vec![raw::uksm_frame::default(); raw::UKSM_MAX_FRAMES],
            sizes: vec![raw::uksm_size::default(); raw::UKSM_MAX_SIZES],
            mappings: vec![raw::uksm_mapping::default(); raw::UKSM_MAX_MAPPINGS],
        }
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers::new()
    }
}

pub(super) fn send<T>(device: BorrowedFd<'_>, verb: u32, request: &mut T) -> Result<(), Errno> {
    let argument = std::ptr::from_mut(request).cast();
    // SAFETY: every pointer in a request is one of `some_pointer`: a buffer of the largest size
    // that the module writes to, or a place without memory. Plain requests have room to spare.
    unsafe { ioctl::any(device, verb, argument) }.map(drop)
}

/// The buffer; in spoiled calls now and then a place without memory.
pub(super) fn some_pointer<T>(buffer: *const T, random: &mut Random, spoil: bool) -> u64 {
    if spoil && random.chance(1, 8) {
        NOWHERE[random.page(NOWHERE.len())]
    } else {
        buffer.expose_provenance() as u64
    }
}

/// A space of the targets; in spoiled calls now and then another number.
pub(super) fn some_space(random: &mut Random, material: &Material, spoil: bool) -> u32 {
    if spoil && random.chance(1, 16) {
        small(random, 64)
    } else {
        material.spaces[random.page(material.spaces.len())]
    }
}

pub(super) fn some_line(random: &mut Random) -> u16 {
    u16::try_from(random.below(65)).expect("a line")
}

pub(super) fn small(random: &mut Random, bound: u64) -> u32 {
    u32::try_from(random.below(bound)).expect("a small number")
}

/// Structures of the contract: plain integers without hidden padding.
pub(in crate::cases::fuzz) trait Plain: Copy {}
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
pub(super) fn turn_bits<T: Plain>(structure: &mut T, random: &mut Random) {
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
pub(in crate::cases::fuzz) fn device(domain: &crate::fixtures::domain::Domain) -> BorrowedFd<'_> {
    domain.device.as_fd()
}
