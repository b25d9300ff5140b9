//! Virtual machines that read and write their disks: what I/O brings into their page caches is
//! equal.
//!
//! # Problem
//! Most duplicates of virtual machines are contents of their disks, and come and go with what the
//! machines do (XLH §2). A scan of all memory meets them late or never, and hints tell of them at
//! once.
//!
//! # Approach
//! Each guest has memory of its own, all in use, and a disk of its own. Three quarters of the
//! memory are its page cache, which drops what was used longest ago; the rest never changes. The
//! disks hold the same but for one file in five, which only this guest has. What a guest reads and
//! does not have comes into its page cache in requests, and each request is told as a hint for each
//! run of neighbouring pages.
//!
//! *Builds* ([`Load::Build`]): every guest builds the same, each begins at a time of its own within
//! half a minute, and is up to 6 % slower. A step reads a source and a few headers that were not
//! read before, and headers again that were; then writes an object, which is written to the disk 5
//! s later: that is a hint, too. *Web servers* ([`Load::Web`]): twice as many files as a page cache
//! holds, drawn anew each time, by each guest for itself.
//!
//! Not modelled: what programs write in memory while they run, and reads ahead of what is not read
//! then.
//!
//! # Units
//! Blocks and pages are 4 KiB.
//!
//! # Source
//! XLH §5.1 and §5.2; the guest experiments `hints-build` and `hints-web`, whose machines ask their
//! disks for as many pages a second and a MiB as these.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::hash::{SplitMix64, mix};

use super::page_cache::PageCache;
use super::{SECOND, map};
use crate::layout::{between, own, pooled};
use crate::{Content, Host, Workload};

/// Pages of the longest file, and about those of one in the mean.
const LONGEST: u64 = 63;
const MEAN: u64 = 16;
/// One file in so many is of one guest alone.
const PRIVATE: u64 = 5;
/// Blocks of a disk; where objects are, and headers.
const DISK: u64 = 1 << 32;
const HEADERS: u64 = 1 << 30;
const OBJECTS: u64 = 1 << 31;
/// A page of a build is asked for, and a file of a web server, so often in a guest of [`RATED`]
/// pages.
const BUILD_PAGES: u64 = 150;
const WEB_FILES: u64 = 40;
const RATED: u64 = 128 * 256;
/// What is written is written back so much later.
const WRITTEN_BACK: Nanos = 5 * SECOND;
/// When guests begin, at the earliest, and within which time a build begins.
const LEAD: Nanos = 10 * SECOND;
const SPREAD: Nanos = 30 * SECOND;
/// How much slower than the fastest a build is at most, in thousandths.
const SLOWER: u64 = 60;
/// Headers read by a step for the first time, at most, and again.
const NEW_HEADERS: u64 = 2;
const AGAIN: u64 = 12;

/// What guests do.
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
    /// Pages of each.
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
    /// How much slower it is, in thousandths.
    slower: u64,
    /// Steps of a build.
    step: u64,
    /// What is to be written back: when, and the blocks.
    written: std::collections::VecDeque<(Nanos, u64, u64)>,
}

impl Disks {
    /// So many guests of so many pages.
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
    /// What a block of this guest's disk holds.
    fn content(&self, file: u64, block: u64) -> Content {
        if mix(file).is_multiple_of(PRIVATE) {
            own(self.number, DISK + block)
        } else {
            pooled(7, block)
        }
    }

    /// Reads the blocks of a file: those that are not cached come from the disk.
    fn read(&mut self, host: &mut Host, first: u64, count: u64) {
        let mut run = Run::default();
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

    /// Compiles the next file; how many pages were asked for the first time, or written.
    fn compile(&mut self, host: &mut Host, seed: u64, now: Nanos) -> u64 {
        let step = self.step;
        self.step += 1;
        // What a step reads and writes is the same for all guests.
        let place = |of: u64| of + step * 64;
        let drawn = |what: u64| SplitMix64::new(mix(seed ^ mix(step)) ^ what);
        let source = between(1, LONGEST / 2, &mut drawn(1));
        self.read(host, place(0), source);
        let mut pages = source;
        // Fewer and fewer headers have not been read before.
        let new = NEW_HEADERS * 100 / (100 + step);
        for number in 0..new.max(u64::from(step.is_multiple_of(4))) {
            let length = between(1, 15, &mut drawn(2 + number));
            self.read(host, place(HEADERS) + 16 * number, length);
            pages += length;
        }
        for _ in 0..AGAIN.min(step) {
            // Those that were read early are read often.
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

    /// Writes to the disk what was written some time ago, and is still cached.
    fn write_back(&mut self, host: &mut Host, now: Nanos) {
        while let Some(&(_, first, count)) = self.written.front().filter(|due| due.0 <= now) {
            self.written.pop_front();
            let mut run = Run::default();
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

/// Neighbouring pages of a request, told as one hint.
#[derive(Debug, Default)]
struct Run {
    start: u64,
    pages: u64,
    block: u64,
}

impl Run {
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

    /// Tells of the pages so far.
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
