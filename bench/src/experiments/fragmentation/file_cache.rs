//! A page cache that has all memory but a part.
//!
//! # Problem
//! On a host the page cache grows into freed memory, and lies between the pages of processes. A
//! guest has no disk.
//!
//! # Approach
//! Files in memory, from 16 KiB to 1 MiB, the oldest of which are removed. Their pages can be moved
//! as those of any file.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::contents::PAGE;
use crate::measure::machine::free_kib;
use crate::rng::Rng;

/// Pages of a file.
const FILE_PAGES: RangeInclusive<usize> = 4..=256;
const KIB_PER_PAGE: u64 = 4;
/// Name of the draws of sizes.
const SIZES: u64 = 1 << 51;
/// Tries until as much is free as is to be: freed pages are counted late.
const TRIES: usize = 8;

/// The cache. It is gone at drop.
pub(super) struct FileCache {
    folder: PathBuf,
    /// Number and pages of each file, oldest first.
    files: VecDeque<(u64, usize)>,
    next: u64,
    sizes: Rng,
}

impl FileCache {
    /// An empty one.
    pub(super) fn create(seed: u64) -> Result<FileCache> {
        let folder = std::env::temp_dir().join("uksm-bench-cache");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        mount(
            "cache",
            &folder,
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=100%"),
        )
        .with_context(|| format!("cannot mount a tmpfs on {}", folder.display()))?;
        Ok(FileCache {
            folder,
            files: VecDeque::new(),
            next: 0,
            sizes: Rng::new(seed, SIZES),
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Writes files of at least this many pages together.
    pub(super) fn write(&mut self, pages: usize) -> Result<()> {
        let page = [7_u8; PAGE];
        let mut written = 0;
        while written < pages {
            let size = self.sizes.in_octaves(&FILE_PAGES);
            let path = self.path(self.next);
            let mut file = File::create(&path).with_context(|| path.display().to_string())?;
            for _ in 0..size {
                file.write_all(&page)
                    .with_context(|| path.display().to_string())?;
            }
            self.files.push_back((self.next, size));
            self.next += 1;
            written += size;
        }
        Ok(())
    }

    /// Removes the oldest files of this many pages together, as far as there are any.
    fn remove(&mut self, pages: usize) -> Result<()> {
        let mut removed = 0;
        while removed < pages
            && let Some((number, size)) = self.files.pop_front()
        {
            let path = self.path(number);
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
            removed += size;
        }
        Ok(())
    }

    /// Grows or shrinks until this much memory is free, within a file or two.
    ///
    /// # Errors
    /// There is less, and no file is left.
    pub(super) fn leave_free(&mut self, kib: u64) -> Result<()> {
        let largest = KIB_PER_PAGE * *FILE_PAGES.end() as u64;
        for _ in 0..TRIES {
            let free = free_kib()?;
            if free < kib {
                ensure!(
                    !self.files.is_empty(),
                    "{free} KiB are free without any file: make --size smaller"
                );
                self.remove(usize::try_from((kib - free) / KIB_PER_PAGE)? + 1)?;
            } else if free > kib + 2 * largest {
                self.write(usize::try_from((free - kib - largest) / KIB_PER_PAGE)?)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Removes all files.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.remove(usize::MAX)
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        // A cache that cannot be unmounted stays in a guest that ends soon.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
    }
}
