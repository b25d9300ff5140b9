//! The variants of a case, run one after the other, with the same CPU where the case requires it.

use anyhow::Result;
use uksm_results::report::Measured;

use super::case::Cpu;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::variants::ksm::{self, ScanRate};

/// Least share of a core that uksm can be held at.
const MIN_SHARE: f64 = 0.002;

/// Runs of a case.
pub(super) struct Runs<'a> {
    setup: &'a Setup,
    run: &'a mut dyn FnMut(&Variant) -> Result<Measured>,
    /// Their results.
    pub(super) measured: Vec<Measured>,
}

impl<'a> Runs<'a> {
    /// None yet.
    pub(super) fn new(
        setup: &'a Setup,
        run: &'a mut dyn FnMut(&Variant) -> Result<Measured>,
    ) -> Runs<'a> {
        Runs {
            setup,
            run,
            measured: Vec::new(),
        }
    }

    /// Runs a variant, if it is wanted and present; returns the share of a core that it used.
    pub(super) fn once(&mut self, variant: &Variant) -> Result<Option<f64>> {
        if !variant.is_run(self.setup) {
            return Ok(None);
        }
        let run = (self.run)(variant)?;
        let share = run.cpu_seconds / run.wall_seconds;
        self.measured.push(run);
        Ok(Some(share))
    }

    /// KSM at the wake-ups of a case, or as shipped.
    pub(super) fn ksm_at_rate(&mut self, cpu: Cpu) -> Result<Option<f64>> {
        let rate = match cpu {
            Cpu::WakeUp(sleep_millisecs) => ScanRate {
                sleep_millisecs,
                ..ScanRate::SHIPPED
            },
            Cpu::Governor(_) => ScanRate::SHIPPED,
        };
        self.once(&Variant::ksm("ksm-rate", ksm::Settings::at(rate)))
    }

    /// uksm without hints, and with them; returns the share of the latter. KSM used the share
    /// `taken`.
    pub(super) fn uksm(&mut self, cpu: Cpu, taken: Option<f64>) -> Result<Option<f64>> {
        let options = uksm_options(cpu, taken);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let without = [&options[..], &["--hint-runs", "0"]].concat();
        self.once(&Variant::uksm("uksm-no-hints", &without))?;
        self.once(&Variant::uksm("uksm-hints", &options))
    }
}

/// Options of uksm for this much CPU; `taken` is the share of a core that KSM used.
fn uksm_options(cpu: Cpu, taken: Option<f64>) -> Vec<String> {
    match cpu {
        Cpu::WakeUp(_) => {
            let share = taken.unwrap_or(0.0).max(MIN_SHARE);
            ["--governor", "full", "--cpu", &format!("{share:.4}")]
                .map(str::to_owned)
                .into()
        }
        Cpu::Governor(governor) => ["--governor", governor.name()].map(str::to_owned).into(),
    }
}
