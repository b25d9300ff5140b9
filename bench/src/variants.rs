//! The systems under test: in-kernel KSM in several settings, and uksm.
//!
//! # Problem
//! Both must be started, watched and stopped the same way around a fresh workload.
//!
//! # Approach
//! A [`Variant`] is a named setting; [`Variant::start`] gives a running [`System`]. No state of one
//! variant may be left for the next: see [`ksm::settle`].

pub(crate) mod ksm;
mod no_dedup;
mod running_system;
pub(crate) mod uksm;

pub(crate) use running_system::System;

use anyhow::Result;

use crate::setup::Setup;
use ksm::ScanRate;

/// A named setting of a system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variant {
    /// Its name in results: `ksm-shipped`, `uksm-full`, …
    pub name: String,
    /// Its setting.
    pub setting: Setting,
}

/// A setting of a system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    /// In-kernel KSM.
    Ksm(ksm::Settings),
    /// The daemon, with its options.
    Uksm(Vec<String>),
    /// No system merges.
    NoDedup,
}

impl Variant {
    /// KSM as shipped: 100 pages, then 20 ms of sleep.
    pub(crate) fn ksm_shipped() -> Variant {
        Variant::ksm("ksm-shipped", ksm::Settings::at(ScanRate::SHIPPED))
    }

    /// KSM, 1000 pages, 20 ms.
    pub(crate) fn ksm_1000() -> Variant {
        Variant::ksm("ksm-1000", ksm::Settings::at(ScanRate::THOUSAND))
    }

    /// KSM without sleep: as much CPU as it can use.
    pub(crate) fn ksm_unlimited() -> Variant {
        Variant::ksm("ksm-unlimited", ksm::Settings::at(ScanRate::UNLIMITED))
    }

    /// The same, but pages examined in vain are not left out of scans.
    pub(crate) fn ksm_without_smart_scan() -> Variant {
        let all = [(ksm::KsmSwitch::SmartScan, false)];
        Variant::ksm_unlimited().switched("ksm-no-smart-scan", &all)
    }

    /// The same KSM by another name, with switches set.
    pub(crate) fn switched(mut self, name: &str, switches: &[(ksm::KsmSwitch, bool)]) -> Variant {
        name.clone_into(&mut self.name);
        if let Setting::Ksm(settings) = &mut self.setting {
            settings.switches = switches.to_vec();
        }
        self
    }

    /// The same KSM with this limit of sharers of a frame. The limit stays after its end: set for
    /// one variant, it is set for all.
    pub(crate) fn with_sharers(mut self, sharers: u64) -> Variant {
        if let Setting::Ksm(settings) = &mut self.setting {
            settings.sharers = Some(sharers);
        }
        self
    }

    /// The same system at niceness 0, with a name for it: it yields to no process. Both yield by 5
    /// otherwise.
    pub(crate) fn at_nice_0(mut self) -> Variant {
        self.name.push_str("-nice-0");
        match &mut self.setting {
            Setting::Ksm(settings) => settings.nice = Some(0),
            Setting::Uksm(options) => options.extend(["--nice", "0"].map(str::to_owned)),
            Setting::NoDedup => {}
        }
        self
    }

    /// KSM's scan-time advisor with its defaults.
    pub(crate) fn ksm_advisor() -> Variant {
        Variant::ksm("ksm-advisor", ksm::Settings::advisor())
    }

    /// KSM held at a share of a core.
    pub(crate) fn ksm_at(share: f64) -> Variant {
        let settings = ksm::Settings {
            cpu_share: Some(share),
            ..ksm::Settings::at(ScanRate {
                pages_to_scan: 200,
                ..ScanRate::SHIPPED
            })
        };
        Variant::ksm(&format!("ksm-{:.0}-percent", share * 100.0), settings)
    }

    /// A named setting of KSM.
    pub(crate) fn ksm(name: &str, settings: ksm::Settings) -> Variant {
        Variant {
            name: name.to_owned(),
            setting: Setting::Ksm(settings),
        }
    }

    /// No system merges: the workload runs alone.
    pub(crate) fn no_dedup() -> Variant {
        Variant {
            name: "nobody".to_owned(),
            setting: Setting::NoDedup,
        }
    }

    /// uksm with a governor.
    pub(crate) fn uksm_governor(governor: &str) -> Variant {
        Variant::uksm(&format!("uksm-{governor}"), &["--governor", governor])
    }

    /// uksm at a share of a core, with the filter against broken pages off (UKSM §8.1.2).
    pub(crate) fn uksm_unfiltered(share: f64) -> Variant {
        let share = share.to_string();
        Variant::uksm(
            "uksm-unfiltered",
            &["--governor", "full", "--cpu", &share, "--v-cow", "off"],
        )
    }

    /// uksm with the paper's settings for short-lived pages (UKSM §8.1.3).
    pub(crate) fn uksm_fast() -> Variant {
        let levels = ["--level-rounds", "50ms,20ms,10ms,5ms", "--v-life", "off"];
        let budget = ["--governor", "full", "--cpu", "0.5", "--sleep", "20ms"];
        Variant::uksm("uksm-fast", &[&budget[..], &levels].concat())
    }

    /// uksm with options of its own.
    pub(crate) fn uksm(name: &str, options: &[&str]) -> Variant {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Variant {
            name: name.to_owned(),
            setting: Setting::Uksm(options),
        }
    }

    /// Whether the workload must offer its memory to in-kernel KSM.
    pub(crate) fn needs_mergeable(&self) -> bool {
        matches!(self.setting, Setting::Ksm(_))
    }

    /// Whether this kernel supports the setting.
    fn supported(&self) -> bool {
        match &self.setting {
            Setting::Ksm(settings) => settings.supported(),
            Setting::Uksm(_) | Setting::NoDedup => true,
        }
    }

    /// Whether it is wanted and supported by this kernel; prints a message if it is not supported.
    pub(crate) fn is_run(&self, setup: &Setup) -> bool {
        let wanted = setup.wants(&self.name);
        if wanted && !self.supported() {
            println!("{}: this kernel does not have it", self.name);
            return false;
        }
        wanted
    }

    /// Starts the system on these processes; if none is named, uksm on all present and future ones.
    /// KSM serves those that offer their memory.
    pub(crate) fn start(&self, setup: &Setup, pids: &[u32]) -> Result<Box<dyn System>> {
        Ok(match &self.setting {
            Setting::Ksm(settings) => Box::new(ksm::Ksm::start(settings)?),
            Setting::NoDedup => Box::new(no_dedup::NoDedup),
            Setting::Uksm(options) => {
                let options = [&options[..], &setup.daemon_options()[..]].concat();
                Box::new(uksm::Uksm::start(&setup.uksm, &options, pids)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::params::{Governor, Params};

    #[test]
    fn the_policy_takes_the_options_that_variants_give() {
        for variant in [Variant::uksm_unfiltered(0.1), Variant::uksm_fast()] {
            let Setting::Uksm(options) = variant.setting else {
                panic!("{} is not uksm", variant.name)
            };
            let mut params = Params::governor(Governor::Full);
            for pair in options
                .chunks_exact(2)
                .filter(|pair| pair[0] != "--governor")
            {
                let name = pair[0].trim_start_matches('-').replace('-', "_");
                params.set(&name, &pair[1]).unwrap();
            }
            params.check().unwrap();
        }
    }
}
