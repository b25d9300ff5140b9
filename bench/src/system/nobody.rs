//! No system at all, to which what the others do is held.

use super::running::System;
use anyhow::Result;
use std::time::Duration;

/// It uses nothing and does nothing.
pub(super) struct Nobody;

impl System for Nobody {
    fn cpu(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn report(&self) -> Option<serde_json::Value> {
        None
    }

    fn stop(&mut self) -> Result<()> {
        Ok(())
    }
}
