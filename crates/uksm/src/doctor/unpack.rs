//! Unpacking of the kernel's options and of modules.
//!
//! # Problem
//! The properties of a packed module cannot be read in its file. Distributions pack their modules,
//! and DKMS packs what it builds in the same way.
//!
//! # Approach
//! The end of the name is the format, as DKMS and depmod have it. Libraries unpack, since the host
//! may lack `xz` and `zstd`. The result and the memory for it are bounded.

use std::io::{Error, Read, Result};

use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

/// Maximum memory for earlier contents: `xz -9` takes 65 MiB, `zstd -19` 8 MiB.
const MAX_WINDOW_BYTES: u32 = 96 << 20;

/// The contents of a file of this name, which are the bytes themselves if the name is of no format.
///
/// # Errors
/// The bytes are not of the format, or the contents are longer than `most`.
pub(super) fn unpack(name: &str, bytes: &[u8], most: u64) -> Result<Vec<u8>> {
    let reader: Box<dyn Read> = match name.rsplit('.').next() {
        Some("gz") => Box::new(GzDecoder::new(bytes)),
        Some("xz") => Box::new(XzReader::new_mem_limit(bytes, true, MAX_WINDOW_BYTES >> 10)),
        Some("zst") => {
            let window = u64::from(MAX_WINDOW_BYTES);
            let reader = StreamingDecoder::new_with_max_window_size(bytes, window);
            Box::new(reader.map_err(Error::other)?)
        }
        _ => Box::new(bytes),
    };
    let mut contents = Vec::new();
    reader.take(most + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 > most {
        true => Err(Error::other(format!("is longer than {most} bytes"))),
        false => Ok(contents),
    }
}
