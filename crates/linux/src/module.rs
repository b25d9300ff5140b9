//! The kernel module's device, as safe calls in the policy's words.
//!
//! # Problem
//! The module is driven by ioctls on `/dev/uksm` with batches of plain structures.
//!
//! # Approach
//! [`Device`] is one open file, hence one domain. Each verb is one method. The
//! policy knows the module's bounds: a batch over them is an error.
//! Buffers are kept between calls, because a fresh quarter of a megabyte a call would cost a page
//! fault every 256 pages sampled. The only unsafe code is in [`ioctl`]; what is laid out how is in
//! [`raw`].
//!
//! # Units
//! Addresses are bytes, counts pages, strength lines. Ranges are half-open.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use uksm_policy::command::{FoldBatch, FoldOutcome, Frame, FrameId, Lines, Page, Run, SpaceId};

pub mod answer;
mod error;
pub mod ioctl;
pub use uksm_interface as raw;

pub use error::{Error, Verb};
pub use raw::uksm_info as Info;

/// Where the module puts its device.
pub const DEVICE_PATH: &str = "/dev/uksm";

/// A result of the device.
pub type Result<T> = std::result::Result<T, Error>;

/// Constants of a domain; 0 keeps the module's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Seed of the line hash; 0: random.
    pub hash_seed: u64,
    /// Most frames the domain may hold; 0: a quarter of the machine's pages.
    pub frame_limit: u64,
    /// Most mappings of one frame; 0: as many as the module allows, 256; 1 is refused.
    pub sharer_limit: u32,
}

/// An attached address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Its id.
    pub space: SpaceId,
    /// Whether this domain had it already (a thread, or a vfork child).
    pub existing: bool,
}

/// What a BREAK did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Where to go on; the end of the range when through.
    pub next: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Whether it stopped because a copy would have needed memory that is not there.
    pub stopped: bool,
}

/// Pages of a range by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Where to go on; the end of the range when through.
    pub next: u64,
    /// Pages by the number of their `PageState`.
    pub pages: [u64; 16],
    /// How many of the `Anon` ones are part of a huge page.
    pub huge: u64,
}

/// A part of the listing of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Frames, in ascending order of their ids.
    pub frames: Vec<Frame>,
    /// Where to go on; 0 when through.
    pub cursor: u32,
    /// How many of them were freed by this listing.
    pub freed: u32,
}

/// One domain of the module.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
    runs: Vec<raw::uksm_run>,
    pages: Vec<raw::uksm_page>,
    entries: Vec<raw::uksm_fold_entry>,
}

impl Device {
    /// Opens [`DEVICE_PATH`]: makes a domain.
    ///
    /// # Errors
    /// The module is not loaded, no right, wrong version.
    pub fn open() -> Result<Device> {
        Device::open_at(Path::new(DEVICE_PATH))
    }

    /// Opens the device at another path.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_at(path: &Path) -> Result<Device> {
        let fail = |errno| match errno {
            Errno::NOENT => Error::Missing {
                path: path.to_owned(),
            },
            errno => Error::Open {
                path: path.to_owned(),
                errno,
            },
        };
        // Close-on-exec: a device that a child inherits would keep the module from unloading.
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        Device::from_file(file, path.to_owned())
    }

    /// Takes over an open file of the device, such as one handed over by another process.
    /// `path` is for error messages.
    ///
    /// # Errors
    /// It is no such file, or of another version.
    pub fn from_file(file: OwnedFd, path: PathBuf) -> Result<Device> {
        let device = Device {
            file,
            runs: Vec::new(),
            pages: Vec::new(),
            entries: Vec::new(),
        };
        match device.info() {
            Ok(info) if info.api_version == raw::UKSM_API_VERSION => Ok(device),
            Ok(info) => Err(Error::Version {
                path,
                found: info.api_version,
            }),
            // A module whose INFO has another size does not know this request number, either;
            // a character device of somebody else answers in the same way.
            Err(Error::Call {
                errno: Errno::NOTTY | Errno::INVAL,
                ..
            }) => Err(Error::NotDevice { path }),
            Err(error) => Err(error),
        }
    }

    /// Another handle of the same domain.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn try_clone(&self) -> std::io::Result<Device> {
        let file = self.file.try_clone()?;
        Ok(Device {
            file,
            runs: Vec::new(),
            pages: Vec::new(),
            entries: Vec::new(),
        })
    }

    /// Features, limits and counters.
    ///
    /// # Errors
    /// The call failed.
    pub fn info(&self) -> Result<Info> {
        let mut info = Info::default();
        ioctl::plain(self.as_fd(), &mut info).map_err(failed(Verb::Info))?;
        Ok(info)
    }

    /// Sets the domain's constants; possible before the first [`Device::attach`] only.
    ///
    /// # Errors
    /// The domain is in use or sealed; a value is refused.
    pub fn configure(&self, configuration: Configuration) -> Result<()> {
        let Configuration {
            hash_seed,
            frame_limit,
            sharer_limit,
        } = configuration;
        let mut request = raw::uksm_configure {
            hash_seed,
            frame_limit,
            sharer_limit,
            flags: 0,
        };
        ioctl::plain(self.as_fd(), &mut request).map_err(failed(Verb::Configure))
    }

    /// Adds the address space of a process.
    ///
    /// # Errors
    /// No right, no memory of its own, owned by another domain, too many.
    pub fn attach(&self, pidfd: BorrowedFd<'_>) -> Result<Attached> {
        use std::os::fd::AsRawFd;
        let mut request = raw::uksm_attach {
            pidfd: pidfd.as_raw_fd(),
            ..Default::default()
        };
        ioctl::plain(self.as_fd(), &mut request).map_err(failed(Verb::Attach))?;
        Ok(Attached {
            space: SpaceId(request.space),
            existing: request.existing != 0,
        })
    }

    /// Forgets a space. Merged pages stay merged.
    ///
    /// # Errors
    /// No such space.
    pub fn detach(&self, space: SpaceId) -> Result<()> {
        let mut request = raw::uksm_detach {
            space: space.0,
            flags: 0,
        };
        ioctl::plain(self.as_fd(), &mut request).map_err(failed(Verb::Detach))
    }

    /// Refuses ATTACH and CONFIGURE from now on, through every handle of the domain.
    ///
    /// # Errors
    /// The call failed.
    pub fn seal(&self) -> Result<()> {
        ioctl::seal(self.as_fd()).map_err(failed(Verb::Seal))
    }

    /// Reads states and hashes into `pages`, which is emptied first: one page for each asked for,
    /// in order; fewer if a signal interrupted.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn sample(&mut self, runs: &[Run], lines: Lines, pages: &mut Vec<Page>) -> Result<()> {
        pages.clear();
        self.runs.clear();
        self.runs.extend(runs.iter().map(answer::run));
        let asked: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if asked > raw::UKSM_MAX_PAGES as u64 {
            return Err(Error::Call {
                verb: Verb::Sample,
                errno: Errno::TOOBIG,
            });
        }
        let asked = usize::try_from(asked).unwrap_or(raw::UKSM_MAX_PAGES);
        if self.pages.len() < asked {
            self.pages.resize(asked, raw::uksm_page::default());
        }
        let answers = &mut self.pages[..asked];
        let done = ioctl::sample(self.file.as_fd(), &self.runs, lines.from, lines.to, answers);
        let done = unless_interrupted(done).map_err(failed(Verb::Sample))?;
        pages.reserve(done);
        for page in &answers[..done] {
            pages.push(answer::page(page).ok_or_else(|| Error::Answer {
                verb: Verb::Sample,
                what: "page state",
                number: page.state.into(),
            })?);
        }
        Ok(())
    }

    /// Merges pages: one outcome for each entry, in order; fewer if a signal interrupted.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>> {
        self.entries.clear();
        self.entries.extend(batch.entries.iter().map(answer::entry));
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = flag(batch.split, raw::UKSM_FOLD_SPLIT)
            | flag(batch.locked, raw::UKSM_FOLD_LOCKED)
            | flag(batch.drain, raw::UKSM_FOLD_DRAIN);
        let done = ioctl::fold(self.file.as_fd(), &mut self.entries, batch.lines, flags);
        let done = unless_interrupted(done).map_err(failed(Verb::Fold))?;
        let mut outcomes = Vec::with_capacity(done);
        for entry in &self.entries[..done] {
            outcomes.push(answer::outcome(entry).ok_or_else(|| Error::Answer {
                verb: Verb::Fold,
                what: "status and reason",
                number: u64::from(entry.status) << 8 | u64::from(entry.reason),
            })?);
        }
        Ok(outcomes)
    }

    /// Unmerges `start..end` until something stops it; [`Broken::next`] says where.
    ///
    /// # Errors
    /// No such space; a bad range.
    pub fn break_range(&self, space: SpaceId, start: u64, end: u64) -> Result<Broken> {
        let mut request = raw::uksm_break {
            space: space.0,
            start,
            end,
            ..Default::default()
        };
        match unless_interrupted(ioctl::plain(self.as_fd(), &mut request)) {
            Ok(()) => {}
            Err(errno) => {
                return Err(Error::Call {
                    verb: Verb::Break,
                    errno,
                });
            }
        }
        let next = if request.next == 0 {
            start
        } else {
            request.next
        };
        Ok(Broken {
            next,
            pages: request.broken,
            stopped: request.stopped != 0,
        })
    }

    /// Counts the pages of `start..end` by state, as far as one call goes; [`Counted::next`] says
    /// where to go on.
    ///
    /// # Errors
    /// No such space; a bad range.
    pub fn count(&self, space: SpaceId, start: u64, end: u64) -> Result<Counted> {
        let mut request = raw::uksm_count {
            space: space.0,
            start,
            end,
            ..Default::default()
        };
        unless_interrupted(ioctl::plain(self.as_fd(), &mut request))
            .map_err(failed(Verb::Count))?;
        let next = if request.next == 0 {
            start
        } else {
            request.next
        };
        Ok(Counted {
            next,
            pages: request.pages,
            huge: request.huge,
        })
    }

    /// Lists at most `count` frames from `cursor` on; with `reap`, frees those without mappings.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn frames(&mut self, cursor: u32, count: u32, lines: Lines, reap: bool) -> Result<Listing> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > raw::UKSM_MAX_FRAMES {
            return Err(Error::Call {
                verb: Verb::Frames,
                errno: Errno::TOOBIG,
            });
        }
        let mut frames = vec![raw::uksm_frame::default(); count];
        let flags = if reap { raw::UKSM_FRAMES_REAP } else { 0 };
        let range = (lines.from, lines.to);
        let request = match ioctl::frames(self.as_fd(), &mut frames, cursor, range, flags) {
            Err(Errno::INTR) => {
                return Ok(Listing {
                    frames: Vec::new(),
                    cursor,
                    freed: 0,
                });
            }
            answer => answer.map_err(failed(Verb::Frames))?,
        };
        frames.truncate(request.done as usize);
        let word = |f: &raw::uksm_frame| Frame {
            hash: f.hash,
            frame: FrameId(f.frame),
            // Nothing can be merged into a frame whose memory has failed: it is as good as gone.
            sharers: if f.flags & raw::UKSM_FRAME_POISONED == 0 {
                f.sharers
            } else {
                0
            },
        };
        let frames = frames.iter().map(word).collect();
        Ok(Listing {
            frames,
            cursor: request.cursor,
            freed: request.freed,
        })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn failed(verb: Verb) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { verb, errno }
}

/// A call that a signal interrupted before it did anything did nothing, which is no error.
fn unless_interrupted<T: Default>(
    answer: std::result::Result<T, Errno>,
) -> std::result::Result<T, Errno> {
    match answer {
        Err(Errno::INTR) => Ok(T::default()),
        answer => answer,
    }
}
