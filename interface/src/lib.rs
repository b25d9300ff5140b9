//! The contract of `interface/uksm_ioctl.h`, as Rust sees it.
//!
//! # Problem
//! Module and program are compiled apart; a field at the wrong offset would be a silent lie.
//!
//! # Approach
//! Structures and constants are written down once more here, with the header's names, through a
//! macro that also leaves a table of what was written. The test `contract` compiles a C program
//! against the header and compares every size, offset, type and value with that table, and
//! refuses a name of the header that is missing here. What each field means, the header tells.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

#![expect(missing_docs, reason = "interface/uksm_ioctl.h tells each")]

/// One field of a structure, for comparison with the header.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type in Rust.
    pub kind: &'static str,
    /// Its distance from the structure's start in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// One structure, for comparison with the header.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

const fn size_behind<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

macro_rules! structures {
    ($($name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            pub struct $name { $(pub $field: $kind,)* }
        )*
        /// Every structure of the contract.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            fields: &[$(Field {
                name: stringify!($field),
                kind: stringify!($kind),
                offset: std::mem::offset_of!($name, $field),
                size: size_behind::<$name, $kind>(|s| &s.$field),
            },)*],
        },)*];
    };
}

macro_rules! constants {
    ($($name:ident: $kind:ty = $value:expr;)*) => {
        $(pub const $name: $kind = $value;)*
        /// Every constant of the contract: name and value.
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

structures! {
    uksm_info {
        api_version: u32,
        features: u32,
        max_runs: u32,
        max_pages: u32,
        max_fold: u32,
        max_frames: u32,
        lock_batch: u32,
        spaces: u32,
        hash_seed: u64,
        frame_limit: u64,
        frames: u64,
        sharer_limit: u32,
        sealed: u32,
        tried: u64,
        merged: u64,
        already: u64,
        zeroed: u64,
        differed: u64,
        busy: u64,
        gone: u64,
        full: u64,
        refused: u64,
        broken: u64,
        splits: u64,
        split_zeroed: u64,
        frames_made: u64,
        adopted: u64,
        frames_freed: u64,
        poisoned: u64,
        sampled: u64,
    }
    uksm_configure {
        hash_seed: u64,
        frame_limit: u64,
        sharer_limit: u32,
        flags: u32,
    }
    uksm_attach {
        pidfd: i32,
        flags: u32,
        space: u32,
        existing: u32,
    }
    uksm_detach {
        space: u32,
        flags: u32,
    }
    uksm_run {
        start: u64,
        space: u32,
        count: u32,
        stride: u32,
        pad: u32,
    }
    uksm_page {
        hash: u64,
        frame: u32,
        state: u16,
        flags: u16,
    }
    uksm_sample {
        runs: u64,
        pages: u64,
        nr_runs: u32,
        nr_pages: u32,
        from: u16,
        to: u16,
        flags: u32,
        done: u32,
        pad: u32,
    }
    uksm_fold_entry {
        address: u64,
        hash: u64,
        space: u32,
        frame: u32,
        set: u16,
        kind: u8,
        status: u8,
        reason: u8,
        pad: [u8; 3],
    }
    uksm_fold {
        entries: u64,
        count: u32,
        flags: u32,
        lines: u16,
        pad: u16,
        done: u32,
    }
    uksm_break {
        space: u32,
        flags: u32,
        start: u64,
        end: u64,
        next: u64,
        broken: u64,
        stopped: u32,
        pad: u32,
    }
    uksm_count {
        space: u32,
        flags: u32,
        start: u64,
        end: u64,
        next: u64,
        pages: [u64; 16],
        huge: u64,
    }
    uksm_frame {
        hash: u64,
        frame: u32,
        sharers: u32,
        flags: u32,
        pad: u32,
    }
    uksm_frames {
        frames: u64,
        count: u32,
        cursor: u32,
        from: u16,
        to: u16,
        flags: u32,
        done: u32,
        freed: u32,
    }
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// An ioctl request as `_IOC(direction, 0xDE, number, size)` makes it.
const fn request(direction: u32, number: u32, size: usize) -> u32 {
    assert!(size < 1 << 14, "an ioctl carries at most 16 KiB");
    #[expect(clippy::cast_possible_truncation, reason = "checked one line above")]
    let size = size as u32;
    direction << 30 | size << 16 | 0xDE << 8 | number
}

constants! {
    UKSM_API_VERSION: u32 = 2;
    UKSM_PAGE_SIZE: u64 = 4096;
    UKSM_LINE_SIZE: u64 = 64;
    UKSM_PAGE_LINES: u16 = 64;
    UKSM_MAX_RUNS: usize = 4096;
    UKSM_MAX_PAGES: usize = 16384;
    UKSM_MAX_FOLD: usize = 512;
    UKSM_MAX_FRAMES: usize = 4096;
    UKSM_LOCK_BATCH: usize = 64;
    UKSM_MAX_SHARERS: u32 = 256;
    UKSM_FEATURE_SPLIT: u32 = 1 << 0;
    UKSM_FEATURE_CHARGE: u32 = 1 << 1;
    UKSM_FEATURE_FAULTS: u32 = 1 << 2;
    UKSM_FEATURES_ALL: u32 = (1 << 3) - 1;
    UKSM_IOC_INFO: u32 = request(READ, 0, size_of::<uksm_info>());
    UKSM_IOC_CONFIGURE: u32 = request(WRITE, 1, size_of::<uksm_configure>());
    UKSM_IOC_ATTACH: u32 = request(READ | WRITE, 2, size_of::<uksm_attach>());
    UKSM_IOC_DETACH: u32 = request(WRITE, 3, size_of::<uksm_detach>());
    UKSM_IOC_SEAL: u32 = request(0, 4, 0);
    UKSM_IOC_SAMPLE: u32 = request(READ | WRITE, 5, size_of::<uksm_sample>());
    UKSM_IOC_FOLD: u32 = request(READ | WRITE, 6, size_of::<uksm_fold>());
    UKSM_IOC_BREAK: u32 = request(READ | WRITE, 7, size_of::<uksm_break>());
    UKSM_IOC_COUNT: u32 = request(READ | WRITE, 8, size_of::<uksm_count>());
    UKSM_IOC_FRAMES: u32 = request(READ | WRITE, 9, size_of::<uksm_frames>());
    UKSM_STATE_NONE: u16 = 0;
    UKSM_STATE_ANON: u16 = 1;
    UKSM_STATE_FRAME: u16 = 2;
    UKSM_STATE_ZERO: u16 = 3;
    UKSM_STATE_ORPHAN: u16 = 4;
    UKSM_STATE_FOREIGN: u16 = 5;
    UKSM_STATE_KSM: u16 = 6;
    UKSM_STATE_SWAP: u16 = 7;
    UKSM_STATE_OTHER: u16 = 8;
    UKSM_STATE_REFUSED: u16 = 9;
    UKSM_STATE_UNMAPPED: u16 = 10;
    UKSM_STATE_DEAD: u16 = 11;
    UKSM_STATE_RETRY: u16 = 12;
    UKSM_STATE_POISONED: u16 = 13;
    UKSM_PAGE_YOUNG: u16 = 1 << 0;
    UKSM_PAGE_DIRTY: u16 = 1 << 1;
    UKSM_PAGE_WRITE: u16 = 1 << 2;
    UKSM_PAGE_HUGE: u16 = 1 << 3;
    UKSM_PAGE_SHARED: u16 = 1 << 4;
    UKSM_PAGE_PINNED: u16 = 1 << 5;
    UKSM_PAGE_LOCKED: u16 = 1 << 6;
    UKSM_KIND_FRAME: u8 = 0;
    UKSM_KIND_SET: u8 = 1;
    UKSM_KIND_ZERO: u8 = 2;
    UKSM_STATUS_UNTRIED: u8 = 0;
    UKSM_STATUS_MERGED: u8 = 1;
    UKSM_STATUS_ALREADY: u8 = 2;
    UKSM_STATUS_ZEROED: u8 = 3;
    UKSM_STATUS_DIFFERED: u8 = 4;
    UKSM_STATUS_BUSY: u8 = 5;
    UKSM_STATUS_GONE: u8 = 6;
    UKSM_STATUS_FULL: u8 = 7;
    UKSM_STATUS_REFUSED: u8 = 8;
    UKSM_REASON_NONE: u8 = 0;
    UKSM_REASON_CONTENT: u8 = 1;
    UKSM_REASON_STALE: u8 = 2;
    UKSM_REASON_ALONE: u8 = 3;
    UKSM_REASON_PINNED: u8 = 4;
    UKSM_REASON_SWAPCACHE: u8 = 5;
    UKSM_REASON_LOCK: u8 = 6;
    UKSM_REASON_RACED: u8 = 7;
    UKSM_REASON_UNMAPPED: u8 = 8;
    UKSM_REASON_SWAPPED: u8 = 9;
    UKSM_REASON_DEAD: u8 = 10;
    UKSM_REASON_NO_FRAME: u8 = 11;
    UKSM_REASON_SHARERS: u8 = 12;
    UKSM_REASON_FRAMES: u8 = 13;
    UKSM_REASON_MEMORY: u8 = 14;
    UKSM_REASON_MAPPING: u8 = 15;
    UKSM_REASON_USERFAULT: u8 = 16;
    UKSM_REASON_LOCKED: u8 = 17;
    UKSM_REASON_HUGE: u8 = 18;
    UKSM_REASON_NOT_ANON: u8 = 19;
    UKSM_REASON_KSM: u8 = 20;
    UKSM_REASON_FOREIGN: u8 = 21;
    UKSM_REASON_ZERO: u8 = 22;
    UKSM_REASON_POISONED: u8 = 23;
    UKSM_FOLD_SPLIT: u32 = 1 << 0;
    UKSM_FOLD_LOCKED: u32 = 1 << 1;
    UKSM_FOLD_DRAIN: u32 = 1 << 2;
    UKSM_FOLD_FLAGS: u32 = (1 << 3) - 1;
    UKSM_BREAK_MARGIN: u64 = 64;
    UKSM_FRAMES_REAP: u32 = 1 << 0;
    UKSM_FRAME_POISONED: u32 = 1 << 0;
}
