//! The table of tests that run inside the guest.

use super::case::{Kind, Machine, TestCase};

/// Every test, in the order in which they run.
#[must_use]
pub fn all() -> Vec<TestCase> {
    vec![TestCase {
        name: "device_opens_and_module_is_listed",
        kind: Kind::Normal,
        machine: Machine::Stock,
        bound: 30,
        run: |context| {
            let _device = context.open_device()?;
            if context.is_loaded("uksm") {
                Ok(())
            } else {
                Err(super::case::Failure::new("uksm is not in /proc/modules"))
            }
        },
    }]
}
