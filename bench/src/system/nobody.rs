//! No system at all, as the baseline of the others.

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
