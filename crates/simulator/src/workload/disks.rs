//! Virtual machines that read and write their disks: I/O brings equal contents into their page
//! caches.
//!
//! # Problem
//! Most duplicates of virtual machines are contents of their disks, and come and go with the work
//! of the machines (XLH §2). A scan of all memory finds them late or never, and hints report them
//! at once.
//!
//! # Approach
//! Each guest has memory of its own, all in use, and a disk of its own. Three quarters of the
//! memory are its page cache, which drops the pages used longest ago; the rest never changes. The
//! disks are equal but for one file in five, which only this guest has. Blocks that a guest reads
//! and has not cached come into its page cache in requests, and each request gives one hint for
//! each run of neighbouring pages.
//!
//! *Builds* ([`Load::Build`]): all guests build the same program, each begins at a time of its own
//! within half a minute, and is up to 6 % slower. A step reads a source, a few headers for the
//! first time, and other headers again; then it writes an object, which is written to the disk 5 s
//! later: that is a hint, too. *Web servers* ([`Load::Web`]): each guest draws files anew each
//! time, from twice as many as a page cache holds.
//!
//! Not modelled: memory that programs write while they run, and readahead of blocks that are not
//! read later.
//!
//! # Units
//! Blocks and pages are 4 KiB.
//!
//! # Source
//! XLH §5.1 and §5.2; the guest experiments `hints-build` and `hints-web`, whose machines request
//! as many pages a second and a MiB from their disks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::{SplitMix64, mix};

use super::page_cache::PageCache;
use super::{SECOND, map};
use crate::layout::{between, own, pooled};
use crate::{Content, Host, Workload};

/// Maximum and approximate mean of the pages of a file.
const LONGEST: u64 = 63;
const MEAN: u64 = 16;
/// One file in this many belongs to one guest alone.
const PRIVATE: u64 = 5;
/// Blocks of a disk; first blocks of headers and of objects.
const DISK: u64 = 1 << 32;
const HEADERS: u64 = 1 << 30;
const OBJECTS: u64 = 1 << 31;
/// Pages of a build, and files of a web server, requested per second by a guest of [`RATED`] pages.
const BUILD_PAGES: u64 = 150;
const WEB_FILES: u64 = 40;
const RATED: u64 = 128 * 256;
/// Delay between a write and its write-back.
const WRITTEN_BACK: Nanos = 5 * SECOND;
/// Earliest start of guests, and the time within which builds begin.
const LEAD: Nanos = 10 * SECOND;
const SPREAD: Nanos = 30 * SECOND;
/// Largest slowdown of a build relative to the fastest, in thousandths.
const SLOWER: u64 = 60;
/// Headers read by a step: at most this many for the first time, and this many again.
const NEW_HEADERS: u64 = 2;
const AGAIN: u64 = 12;

/// The load of the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// They build the same program.
    Build,
    /// They serve files in an order of their own.
    Web,
}

/// Guests with page caches over their disks.
#[derive(Debug, Clone)]
pub struct Disks {
    load: Load,
    guests: u64,
    /// Pages of each guest.
    pages: u64,
    seed: u64,
    /// Files of a web server: their first blocks, ascending.
    files: Vec<u64>,
    running: Vec<Guest>,
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
}

/// One guest.
#[derive(Debug, Clone)]
struct Guest {
    number: u64,
    space: SpaceId,
    start: u64,
    cache: PageCache,
    random: SplitMix64,
    /// Slowdown, in thousandths.
    slower: u64,
    /// Steps of the build so far.
    step: u64,
    /// Pending write-backs: time, and blocks.
    written: std::collections::VecDeque<(Nanos, u64, u64)>,
}

impl Disks {
    /// This many guests with this many pages each.
    ///
    /// # Panics
    /// If a guest has more pages than there are places in a page cache.
    #[must_use]
    pub fn new(load: Load, guests: u64, pages: u64, seed: u64) -> Disks {
        assert!(u32::try_from(pages).is_ok(), "{pages} pages");
        let mut random = SplitMix64::new(seed ^ 0xf11e5);
        let count = (2 * pages / 4 * 3).div_ceil(MEAN);
        let mut end = 0;
        let mut files: Vec<u64> = (0..count)
            .map(|_| {
                let first = end;
                end += between(1, LONGEST, &mut random);
                first
            })
            .collect();
        files.push(end);
        Disks {
            load,
            guests,
            pages,
            seed,
            files,
            running: vec![],
            due: BinaryHeap::new(),
        }
    }

    fn begin(&mut self, host: &mut Host) {
        for number in 1..=self.guests {
            let mut random = SplitMix64::new(mix(self.seed) ^ number);
            let space = host.spawn(4);
            let contents: Vec<Content> = (0..self.pages).map(|page| own(number, page)).collect();
            let start = map(host, space, 1, &contents, &mut random);
            let cache = u32::try_from(self.pages / 4 * 3).expect("a part of its pages");
            let cache = PageCache::new(cache, &mut random);
            let at = LEAD + random.below(SPREAD);
            self.due.push(Reverse((at, self.running.len())));
            self.running.push(Guest {
                number,
                space,
                start,
                cache,
                slower: random.below(SLOWER + 1),
                random,
                step: 0,
                written: std::collections::VecDeque::new(),
            });
        }
    }

    /// Time between two pages of a build, or two files of a web server, of one guest.
    fn interval(&self) -> Nanos {
        let each_second = match self.load {
            Load::Build => BUILD_PAGES,
            Load::Web => WEB_FILES,
        };
        SECOND * RATED / (each_second * self.pages)
    }
}

impl Workload for Disks {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        if self.running.is_empty() {
            self.begin(host);
        }
        let interval = self.interval();
        while let Some(&Reverse((at, number))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            let guest = &mut self.running[number];
            guest.write_back(host, now);
            let pages = match self.load {
                Load::Web => {
                    let count = self.files.len() as u64 - 1;
                    let file = usize::try_from(guest.random.below(count)).expect("a file");
                    let (first, end) = (self.files[file], self.files[file + 1]);
                    guest.read(host, first, end - first);
                    1
                }
                Load::Build => guest.compile(host, self.seed, now),
            };
            let pause = interval * pages * (1000 + guest.slower) / 1000;
            self.due.push(Reverse((at + pause.max(1), number)));
        }
        self.due.peek().map(|Reverse((at, _))| *at)
    }
}

impl Guest {
    /// The content of a block of this guest's disk.
    fn content(&self, file: u64, block: u64) -> Content {
        if mix(file).is_multiple_of(PRIVATE) {
            own(self.number, DISK + block)
        } else {
            pooled(7, block)
        }
    }

    /// Reads the blocks of a file: those that are not cached come from the disk.
    fn read(&mut self, host: &mut Host, first: u64, count: u64) {
        let mut run = HintRun::default();
        for block in first..first + count {
            let (page, is_new) = self.cache.use_block(block);
            if is_new {
                let address = self.start + u64::from(page) * PAGE_SIZE;
                host.write(self.space, address, self.content(first, block));
                run.add(host, self.space, address, block, HintSource::Read);
            } else {
                run.tell(host, self.space, HintSource::Read);
            }
        }
        run.tell(host, self.space, HintSource::Read);
    }

    /// Compiles the next file; returns the number of pages that were read for the first time, or
    /// written.
    fn compile(&mut self, host: &mut Host, seed: u64, now: Nanos) -> u64 {
        let step = self.step;
        self.step += 1;
        // All guests read and write the same in a step.
        let place = |of: u64| of + step * 64;
        let drawn = |what: u64| SplitMix64::new(mix(seed ^ mix(step)) ^ what);
        let source = between(1, LONGEST / 2, &mut drawn(1));
        self.read(host, place(0), source);
        let mut pages = source;
        // The number of headers read for the first time falls.
        let new = NEW_HEADERS * 100 / (100 + step);
        for number in 0..new.max(u64::from(step.is_multiple_of(4))) {
            let length = between(1, 15, &mut drawn(2 + number));
            self.read(host, place(HEADERS) + 16 * number, length);
            pages += length;
        }
        for _ in 0..AGAIN.min(step) {
            // Headers that were read early are read often.
            let (one, other) = (self.random.below(step), self.random.below(step));
            let old = one.min(other);
            let length = between(1, 15, &mut SplitMix64::new(mix(seed ^ mix(old)) ^ 2));
            if old.is_multiple_of(4) {
                self.read(host, HEADERS + old * 64, length);
            }
        }
        let object = between(1, LONGEST, &mut drawn(9));
        for block in place(OBJECTS)..place(OBJECTS) + object {
            let (page, _) = self.cache.use_block(block);
            let address = self.start + u64::from(page) * PAGE_SIZE;
            host.write(self.space, address, self.content(place(OBJECTS), block));
        }
        let due = now + WRITTEN_BACK;
        self.written.push_back((due, place(OBJECTS), object));
        pages + object
    }

    /// Writes to the disk the cached pages whose write-back is due.
    fn write_back(&mut self, host: &mut Host, now: Nanos) {
        while let Some(&(_, first, count)) = self.written.front().filter(|due| due.0 <= now) {
            self.written.pop_front();
            let mut run = HintRun::default();
            for block in first..first + count {
                if let Some(page) = self.cache.page_of(block) {
                    let address = self.start + u64::from(page) * PAGE_SIZE;
                    run.add(host, self.space, address, block, HintSource::Write);
                }
            }
            run.tell(host, self.space, HintSource::Write);
        }
    }
}

/// Neighbouring pages of a request, reported as one hint.
#[derive(Debug, Default)]
struct HintRun {
    start: u64,
    pages: u64,
    block: u64,
}

impl HintRun {
    /// A page belongs to the request.
    fn add(
        &mut self,
        host: &mut Host,
        space: SpaceId,
        address: u64,
        block: u64,
        source: HintSource,
    ) {
        let is_next =
            self.start + self.pages * PAGE_SIZE == address && self.block + self.pages == block;
        if self.pages == 0 || !is_next {
            self.tell(host, space, source);
            (self.start, self.block) = (address, block);
        }
        self.pages += 1;
    }

    /// Reports the pages so far.
    fn tell(&mut self, host: &mut Host, space: SpaceId, source: HintSource) {
        if self.pages > 0 {
            host.hint(Hint {
                start: self.start,
                length: self.pages * PAGE_SIZE,
                space,
                source,
                place: Some(FilePlace {
                    file_size: DISK * PAGE_SIZE,
                    offset: self.block * PAGE_SIZE,
                }),
            });
        }
        self.pages = 0;
    }
}
