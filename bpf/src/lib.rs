//! The BPF programs for hints of I/O, for growth and for moves between control groups, compiled.
//!
//! `hints.bpf.c` and `cgroup_moves.bpf.c` document their events. `hint_event.h` has the records and
//! tables that the programs and the daemon share; this crate has their Rust side, made by bindgen,
//! and the object files. It loads nothing.

use std::mem::offset_of;

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "made by bindgen, with the header's comments"
)]
mod event {
    include!(concat!(env!("OUT_DIR"), "/hint_event.rs"));
}

pub use event::{
    UKSM_HINT_COUNT_CALLS, UKSM_HINT_COUNT_LOST, UKSM_HINT_COUNT_NANOSECONDS,
    UKSM_HINT_COUNT_OTHER, UKSM_HINT_GROWTH, UKSM_HINT_LOST, UKSM_HINT_READ, UKSM_HINT_WRITE,
    UKSM_MOVE_COUNT_LOST, UKSM_MOVE_COUNT_MOVES, uksm_follower, uksm_hint,
};

/// An object file, aligned as a loader needs it.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

static ALIGNED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hints.bpf.o")));

/// The object file of the hint programs.
pub static HINTS: &[u8] = &ALIGNED.0;

static ALIGNED_CGROUP_MOVES: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
    env!("OUT_DIR"),
    "/cgroup_moves.bpf.o"
)));

/// The object file of the program that reports moves between control groups.
pub static CGROUP_MOVES: &[u8] = &ALIGNED_CGROUP_MOVES.0;

/// That program, and its tracepoint.
pub const CGROUP_MOVES_PROGRAM: (&str, &str) = ("moves", "cgroup_attach_task");

/// The programs of [`HINTS`] that report I/O, each with the function of the kernel that it runs
/// after.
pub const IO_PROGRAMS: &[(&str, &str)] = &[
    ("filemap_read", "filemap_read"),
    ("shmem_read", "shmem_file_read_iter"),
    ("perform_write", "generic_perform_write"),
    ("iomap_write", "iomap_file_buffered_write"),
    ("direct", "bio_iov_iter_get_pages"),
];

/// The program of [`HINTS`] that reports growth, and the function of the kernel that it runs
/// before.
pub const GROWTH_PROGRAM: (&str, &str) = ("page_table", "pte_alloc_one");

impl uksm_follower {
    /// A process that is followed from this turn on, without hints yet.
    #[must_use]
    pub fn new(space: u32, turn: u32) -> uksm_follower {
        uksm_follower {
            space,
            turn,
            // Replaced at its first page table.
            anon_pages: i64::MAX,
            ..uksm_follower::default()
        }
    }

    /// The entry of the programs' table.
    #[must_use]
    pub fn bytes(self) -> [u8; size_of::<uksm_follower>()] {
        let mut all = [0; size_of::<uksm_follower>()];
        let mut put = |at: usize, field: &[u8]| all[at..at + field.len()].copy_from_slice(field);
        put(offset_of!(uksm_follower, space), &self.space.to_ne_bytes());
        put(offset_of!(uksm_follower, turn), &self.turn.to_ne_bytes());
        put(offset_of!(uksm_follower, sent), &self.sent.to_ne_bytes());
        put(offset_of!(uksm_follower, lost), &self.lost.to_ne_bytes());
        put(
            offset_of!(uksm_follower, grown_at),
            &self.grown_at.to_ne_bytes(),
        );
        put(
            offset_of!(uksm_follower, anon_pages),
            &self.anon_pages.to_ne_bytes(),
        );
        all
    }
}

impl uksm_hint {
    /// The record that [`uksm_hint::read`] reads.
    #[must_use]
    pub fn bytes(&self) -> [u8; size_of::<uksm_hint>()] {
        let mut all = [0; size_of::<uksm_hint>()];
        let mut put = |at: usize, field: &[u8]| all[at..at + field.len()].copy_from_slice(field);
        put(offset_of!(uksm_hint, start), &self.start.to_ne_bytes());
        put(offset_of!(uksm_hint, length), &self.length.to_ne_bytes());
        put(
            offset_of!(uksm_hint, file_size),
            &self.file_size.to_ne_bytes(),
        );
        put(offset_of!(uksm_hint, offset), &self.offset.to_ne_bytes());
        put(offset_of!(uksm_hint, space), &self.space.to_ne_bytes());
        put(offset_of!(uksm_hint, source), &self.source.to_ne_bytes());
        all
    }

    /// The hint in a record of the ring, if it is one.
    #[must_use]
    pub fn read(record: &[u8]) -> Option<uksm_hint> {
        Some(uksm_hint {
            start: u64::from_ne_bytes(bytes(record, offset_of!(uksm_hint, start))?),
            length: u64::from_ne_bytes(bytes(record, offset_of!(uksm_hint, length))?),
            file_size: u64::from_ne_bytes(bytes(record, offset_of!(uksm_hint, file_size))?),
            offset: u64::from_ne_bytes(bytes(record, offset_of!(uksm_hint, offset))?),
            space: u32::from_ne_bytes(bytes(record, offset_of!(uksm_hint, space))?),
            source: u32::from_ne_bytes(bytes(record, offset_of!(uksm_hint, source))?),
        })
    }
}

/// `N` bytes of a record from `at` on, if it has them.
fn bytes<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_short_one_is_none() {
        let mut record = [0; size_of::<uksm_hint>()];
        record[..8].copy_from_slice(&0x7000_u64.to_ne_bytes());
        record[8..16].copy_from_slice(&4096_u64.to_ne_bytes());
        record[16..24].copy_from_slice(&(1_u64 << 30).to_ne_bytes());
        record[24..32].copy_from_slice(&0x5000_u64.to_ne_bytes());
        record[32..36].copy_from_slice(&7_u32.to_ne_bytes());
        record[36..].copy_from_slice(&UKSM_HINT_WRITE.to_ne_bytes());
        let hint = uksm_hint::read(&record).unwrap();
        assert_eq!((hint.start, hint.length), (0x7000, 4096));
        assert_eq!((hint.file_size, hint.offset), (1 << 30, 0x5000));
        assert_eq!((hint.space, hint.source), (7, UKSM_HINT_WRITE));
        assert!(uksm_hint::read(&record[1..]).is_none());
        assert_eq!(hint.bytes(), record);
    }

    #[test]
    fn the_objects_are_elf_files_for_bpf() {
        const EM_BPF: u16 = 247;
        for object in [HINTS, CGROUP_MOVES] {
            assert_eq!(&object[..4], b"\x7fELF");
            assert_eq!(u16::from_le_bytes([object[18], object[19]]), EM_BPF);
        }
    }
}
