//! The fixture of files that fail or do not answer works as other tests assume.
//!
//! # Problem
//! A test that expects an error, or a waiting process, passes for a wrong reason if the file system
//! does not work at all.
//!
//! # Approach
//! The same pages are read while the server answers, fails, and ignores reads.

use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use super::Context;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::fuse::{FuseFile, Reads};
use crate::fixtures::process::{fork, wait};

cases! { "fuse_files":
    reads_of_a_fuse_file_are_answered_failed_or_ignored Normal Stock 30,
}

const PAGES: usize = 8;
const SEED: u64 = 71;

fn read_page(page: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    FuseFile::open().read_exact_at(&mut bytes, (page * PAGE) as u64)?;
    Ok(bytes)
}

fn reads_of_a_fuse_file_are_answered_failed_or_ignored(context: &mut Context) {
    let mut file = FuseFile::new(context, PAGES, SEED);
    let read_all = || {
        for page in 0..PAGES {
            let bytes = read_page(page).expect("an answered read");
            assert!(
                bytes == Content::new(SEED, page as u64).bytes(),
                "page {page}"
            );
        }
    };
    read_all();
    let once = file.reads();
    assert!(once > 0, "the server should be asked");
    read_all();
    assert_eq!(file.reads(), once, "cached pages should not be asked for");
    FuseFile::drop_cache();
    file.set(Reads::Fail);
    let failed = read_page(1).expect_err("a failed read");
    assert_eq!(failed.raw_os_error(), Some(libc::EIO));

    file.set(Reads::Ignore);
    let before = file.reads();
    let reader = fork(|| {
        let ended = read_page(2);
        i32::from(ended.is_ok())
    });
    while file.reads() == before {
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(300));
    // SAFETY: waitpid without a status touches no memory.
    let ended = unsafe { libc::waitpid(reader, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(ended, 0, "who reads an ignored page should wait");
    drop(file);
    let status = wait(reader);
    assert_eq!(status, 0, "the read should end with an error: {status:#x}");
}
