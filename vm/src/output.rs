//! An output that outlives one machine.
//!
//! A machine owns its outputs and drops them when it ends, but a boot may have to be tried again.
//! So each machine gets a copy of a handle to them.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// A handle; copies write to the same place, one call at a time.
#[derive(Clone)]
pub struct SharedOutput(Arc<Mutex<Box<dyn Write + Send>>>);

impl SharedOutput {
    /// A first handle.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Mutex::new(output)))
    }
}

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush()
    }
}
