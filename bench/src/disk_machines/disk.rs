//! The disk of a machine: a file in memory.
//!
//! A block is the same on all disks. Only those blocks of a disk exist that a plan reads.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::plan::{Action, Plan, Step};
use super::{BLOCKS, Machine};
use crate::contents::{PAGE, WORDS, fill, key};

/// The key of a block's contents.
pub(super) fn block_key(seed: u64, block: u64) -> u64 {
    key(seed, BLOCKS, block)
}

/// A disk. It is removed at drop.
pub(crate) struct Disk {
    file: File,
    /// Its path.
    pub(crate) path: PathBuf,
    filled: HashSet<u64>,
}

impl Disk {
    /// An empty disk of the machine of this number.
    pub(crate) fn create(number: u64) -> Result<Disk> {
        let name = format!("uksm-bench-{}-{number}.disk", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        Ok(Disk {
            file,
            path,
            filled: HashSet::new(),
        })
    }

    /// Fills the blocks that this machine reads.
    pub(crate) fn provide(&mut self, machine: &Machine, plan: &Plan) -> Result<()> {
        let mut page = vec![0_u64; WORDS];
        let loads = plan.0.iter().filter(|step| step.action == Action::Load);
        for (block, _) in loads.flat_map(Step::blocks) {
            if self.filled.insert(block) {
                fill(&mut page, block_key(machine.seed, block));
                let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_ne_bytes()).collect();
                self.file
                    .write_all_at(&bytes, block * PAGE as u64)
                    .with_context(|| format!("cannot fill {}", self.path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A disk that cannot be removed stays in a guest that ends soon.
        let _ = std::fs::remove_file(&self.path);
    }
}
