//! A redis-server for the guest.
//!
//! Problem: the demo merges memory of real programs, on machines that need not
//! have them installed.
//!
//! Approach: Debian's package and the libraries it depends on are downloaded
//! and unpacked into the cache. The C library is this machine's own.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::{cache, packages};

/// The server's file and the search path of its libraries.
#[derive(Debug, Clone)]
pub struct Redis {
    /// The program, `redis-server`.
    pub server: PathBuf,
    /// Folders of libraries.
    pub libraries: Vec<PathBuf>,
}

/// Gets the server from the cache or the package sources.
///
/// # Errors
/// The sources do not offer it.
pub fn get() -> Result<Redis> {
    let server =
        packages::candidate("redis-server")?.with_context(|| packages::unknown("redis-server"))?;
    // A version has an epoch, "5:7.0.15-1", and a colon ends a search path.
    let key = server.version.replace(':', "_");
    let root = cache::entry("redis", &key, |root| {
        eprintln!("getting redis-server {}", server.version);
        let parts = packages::closure(&["redis-server", "redis-tools"], |name| {
            (name.starts_with("lib") || name.starts_with("lua")) && !name.starts_with("libc6")
        })?;
        packages::unpack(&parts, root)
    })?;
    let libraries = packages::library_folders(&root);
    Ok(Redis {
        server: root.join("usr/bin/redis-server"),
        libraries: libraries.into(),
    })
}
