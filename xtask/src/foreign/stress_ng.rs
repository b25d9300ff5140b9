//! stress-ng for the guest, and the selection of its stressors.
//!
//! # Approach
//! Debian's package and the libraries it names are downloaded and unpacked into the cache, as
//! redis-server is. Each memory stressor that checks what it reads back (`--verify`) is a run of
//! its own, so that an outcome has a name; the stressor `vm` runs once for each of its methods.
//!
//! # Source
//! stress-ng(1), version 0.15.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use uksm_guest_tests::foreign::schedule::{Allowed, Dialect, Item, SUITE_DIR};
use uksm_vm::{cache, packages};

/// The program's file and the search path of its libraries.
#[derive(Debug, Clone)]
pub struct StressNg {
    /// The program.
    pub program: PathBuf,
    /// Folders of libraries.
    pub libraries: Vec<PathBuf>,
}

/// Gets it from the cache or the package sources.
///
/// # Errors
/// The sources do not offer it.
pub fn get() -> Result<StressNg> {
    let offered =
        packages::candidate("stress-ng")?.with_context(|| packages::unknown("stress-ng"))?;
    let root = cache::entry("stress-ng", &offered.version, |root| {
        eprintln!("getting stress-ng {}", offered.version);
        // It is linked with libraries of graphics; their drivers are large, and are not used.
        let wanted = |name: &str| {
            name.starts_with("lib")
                && !["libc6", "libegl-mesa", "libgl1-mesa", "libllvm"]
                    .iter()
                    .any(|other| name.starts_with(other))
        };
        packages::unpack(&packages::closure(&["stress-ng"], wanted)?, root)
    })?;
    let libraries = packages::library_folders(&root);
    Ok(StressNg {
        program: root.join("usr/bin/stress-ng"),
        libraries: libraries.into(),
    })
}

/// Methods of the stressor `vm`, `all` aside.
const VM_METHODS: [&str; 36] = [
    "cache-lines",
    "cache-stripe",
    "checkerboard",
    "flip",
    "fwdrev",
    "galpat-0",
    "galpat-1",
    "gray",
    "grayflip",
    "rowhammer",
    "incdec",
    "inc-nybble",
    "lfsr32",
    "rand-set",
    "rand-sum",
    "read64",
    "ror",
    "swap",
    "move-inv",
    "modulo-x",
    "mscan",
    "wrrd128nt",
    "prime-0",
    "prime-1",
    "prime-gray-0",
    "prime-gray-1",
    "prime-incdec",
    "walk-0d",
    "walk-1d",
    "walk-0a",
    "walk-1a",
    "write64",
    "write64nt",
    "write1024v",
    "zero-one",
    "all",
];

/// The other stressors, with options that keep them small.
const STRESSORS: [(&str, &[&str]); 33] = [
    ("bigheap", &["--bigheap-growth", "64K"]),
    ("brk", &[]),
    ("dev-shm", &[]),
    ("fork", &["--fork-vm"]),
    ("madvise", &[]),
    ("malloc", &["--malloc-bytes", "16M"]),
    ("memfd", &["--memfd-bytes", "16M"]),
    ("memthrash", &[]),
    ("mincore", &[]),
    ("mlock", &[]),
    ("mlockmany", &[]),
    ("mmap", &["--mmap-bytes", "16M"]),
    ("mmapaddr", &[]),
    ("mmapfixed", &[]),
    ("mmapfork", &[]),
    ("mmaphuge", &["--mmaphuge-mmaps", "8"]),
    ("mmapmany", &[]),
    ("mprotect", &[]),
    ("mremap", &["--mremap-bytes", "8M"]),
    ("msync", &["--msync-bytes", "8M"]),
    ("msyncmany", &[]),
    ("numa", &[]),
    ("pageswap", &[]),
    ("physpage", &[]),
    ("remap", &[]),
    ("shm", &["--shm-bytes", "8M"]),
    ("shm-sysv", &["--shm-sysv-bytes", "8M"]),
    ("stack", &["--stack-mlock"]),
    ("stackmmap", &[]),
    ("userfaultfd", &["--userfaultfd-bytes", "8M"]),
    ("vm-addr", &[]),
    ("vm-rw", &["--vm-rw-bytes", "8M"]),
    ("vm-segv", &[]),
];

/// Running time of each stressor, in seconds.
const SECONDS: u64 = 2;
/// Longest time until a stressor stops after its running time: some only check the clock between
/// long steps, and an emulated machine takes those slowly.
const BOUND: u64 = 60;

/// The runs of stress-ng.
#[must_use]
pub fn items() -> Vec<Item> {
    let vm = VM_METHODS.iter().map(|method| {
        let bytes = ["--vm-bytes", "4M", "--vm-method", method];
        item(&format!("vm-{method}"), "vm", &bytes, 1)
    });
    let others = STRESSORS
        .iter()
        .map(|(stressor, options)| item(stressor, stressor, options, SECONDS));
    vm.chain(others).collect()
}

fn item(name: &str, stressor: &str, options: &[&str], seconds: u64) -> Item {
    let (count, time) = (format!("--{stressor}"), format!("{seconds}s"));
    // Without a fixed seed each run would do something else.
    let general = [
        "--verify",
        "--no-rand-seed",
        "--oomable",
        "--timeout",
        &time,
    ];
    let words = [&[count.as_str(), "2"], options, &general].concat();
    Item {
        name: format!("stress-ng/{name}"),
        program: format!("{SUITE_DIR}/stress-ng"),
        arguments: words.iter().map(ToString::to_string).collect(),
        dialect: Dialect::StressNg,
        bound: BOUND,
        endless: false,
        allowed: Allowed::FULL,
    }
}
