//! Two newcomers with equal memory among idle processes, under each governor.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use super::case::{Case, MIB, Variant};
use crate::workload::{Crowd, SECOND};

/// Start of the newcomers: all others are known by then.
const BEGIN: Nanos = 20 * SECOND;
/// Time that they take to fill their memory.
const FILLING: Nanos = SECOND / 5;
/// Pages of each.
const PAGES: u64 = 64 * MIB;

pub(super) fn cases(seed: u64) -> Vec<Case> {
    [10, 400, 3000].map(|idle| case(idle, seed)).into()
}

fn case(idle: u64, seed: u64) -> Case {
    Case {
        arrival: Some(BEGIN),
        variants: Governor::ALL.map(Variant::Uksm).into(),
        begin: BEGIN + FILLING,
        limit: 120 * SECOND,
        percent: Some(90),
        ..Case::new(format!("{idle} idle"), move || {
            vec![Box::new(Crowd::new(idle, PAGES, BEGIN, FILLING, seed))]
        })
    }
}
