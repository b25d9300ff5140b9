//! The calls into the module: the only unsafe code of this crate.
//!
//! # Problem
//! An ioctl takes a pointer on trust; some requests carry further pointers inside.
//!
//! # Approach
//! One function for each shape of request. Those with arrays take slices and fill in pointers and
//! lengths themselves, so that no caller can name memory that is not its own.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::raw;

/// A request whose structure holds no pointer, with its number.
///
/// Sealed: the pairs below are the whole list.
pub trait Plain: sealed::Sealed {
    /// The request's number.
    const REQUEST: u32;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($structure:ident = $request:ident,)*) => {$(
        impl sealed::Sealed for raw::$structure {}
        impl Plain for raw::$structure { const REQUEST: u32 = raw::$request; }
    )*};
}

plain! {
    uksm_info = UKSM_IOC_INFO,
    uksm_configure = UKSM_IOC_CONFIGURE,
    uksm_attach = UKSM_IOC_ATTACH,
    uksm_detach = UKSM_IOC_DETACH,
    uksm_break = UKSM_IOC_BREAK,
    uksm_count = UKSM_IOC_COUNT,
}

/// Issues any request at all, for tests that mean to send nonsense.
///
/// # Errors
/// The errno of the call.
///
/// # Safety
/// `argument` must be what the request of that number takes, with every pointer in it valid for
/// the length that stands beside it; or be such that whatever the kernel may write through it
/// hits memory that nobody else uses.
pub unsafe fn any(
    device: BorrowedFd<'_>,
    request: u32,
    argument: *mut libc::c_void,
) -> Result<i32, Errno> {
    let request = libc::c_ulong::from(request);
    // SAFETY: the descriptor is open while borrowed; the caller vouches for the argument.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), request, argument) };
    if answer < 0 {
        let code = std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(answer)
}

/// A request whose structure holds no pointer.
pub(super) fn plain<T: Plain>(device: BorrowedFd<'_>, request: &mut T) -> Result<(), Errno> {
    // SAFETY: `Plain` pairs number and structure; the structure holds no pointer.
    unsafe { any(device, T::REQUEST, std::ptr::from_mut(request).cast()) }.map(drop)
}

/// SEAL, which takes no argument.
pub(super) fn seal(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request takes no argument.
    unsafe { any(device, raw::UKSM_IOC_SEAL, std::ptr::null_mut()) }.map(drop)
}

/// SAMPLE; answers how many of `pages` were written.
pub(super) fn sample(
    device: BorrowedFd<'_>,
    runs: &[raw::uksm_run],
    from: u16,
    to: u16,
    pages: &mut [raw::uksm_page],
) -> Result<usize, Errno> {
    let mut request = raw::uksm_sample {
        runs: address(runs.as_ptr()),
        pages: address(pages.as_mut_ptr()),
        nr_runs: length(runs.len())?,
        nr_pages: length(pages.len())?,
        from,
        to,
        ..Default::default()
    };
    // SAFETY: both arrays are borrowed for the call, with their own lengths.
    unsafe {
        any(
            device,
            raw::UKSM_IOC_SAMPLE,
            std::ptr::from_mut(&mut request).cast(),
        )
    }?;
    Ok((request.done as usize).min(pages.len()))
}

/// FOLD; answers how many of `entries` were tried.
pub(super) fn fold(
    device: BorrowedFd<'_>,
    entries: &mut [raw::uksm_fold_entry],
    lines: u16,
    flags: u32,
) -> Result<usize, Errno> {
    let mut request = raw::uksm_fold {
        entries: address(entries.as_mut_ptr()),
        count: length(entries.len())?,
        flags,
        lines,
        ..Default::default()
    };
    // SAFETY: the array is borrowed mutably for the call, with its own length.
    unsafe {
        any(
            device,
            raw::UKSM_IOC_FOLD,
            std::ptr::from_mut(&mut request).cast(),
        )
    }?;
    Ok((request.done as usize).min(entries.len()))
}

/// FRAMES; answers the request as the module left it, `done` at most the length of `frames`.
pub(super) fn frames(
    device: BorrowedFd<'_>,
    frames: &mut [raw::uksm_frame],
    cursor: u32,
    (from, to): (u16, u16),
    flags: u32,
) -> Result<raw::uksm_frames, Errno> {
    let count = length(frames.len())?;
    let mut request = raw::uksm_frames {
        frames: address(frames.as_mut_ptr()),
        count,
        cursor,
        from,
        to,
        flags,
        ..Default::default()
    };
    // SAFETY: the array is borrowed mutably for the call, with its own length.
    unsafe {
        any(
            device,
            raw::UKSM_IOC_FRAMES,
            std::ptr::from_mut(&mut request).cast(),
        )
    }?;
    request.done = request.done.min(count);
    Ok(request)
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

fn length(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_| Errno::TOOBIG)
}
