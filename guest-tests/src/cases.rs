//! The table of tests that run inside the guest.
//!
//! # Problem
//! The module exchanges pages under processes that do not know of it. All uses of memory by a
//! process must work as before, on every kernel, and each safety must be shown to be needed.
//!
//! # Approach
//! Each file holds the tests of one concern and lists them with `cases!`: name, purpose, machine
//! and time bound (seconds on an emulated machine). A failed assertion is a failed test. Parts
//! common to several files are in `fixtures`.

use crate::case::{Context, Kind, TestCase};
use uksm_vm_protocol::machine::Machine;

/// Lists the tests of a file: `test Kind Machine bound,` for each function `test(&mut Context)`.
macro_rules! cases {
    ($area:literal: $($test:ident $kind:ident $machine:ident $bound:literal,)*) => {
        /// The tests of this file.
        #[must_use]
        pub(crate) fn cases() -> Vec<super::TestCase> {
            vec![$(super::TestCase {
                name: concat!($area, "::", stringify!($test)),
                kind: super::Kind::$kind,
                machine: super::Machine::$machine,
                bound: $bound,
                run: $test,
            }),*]
        }
    };
}

mod added_groups;
mod attaching;
mod batch_requests;
mod beside_ksm;
mod cgroup_move_events;
mod charging;
mod counting;
mod crowd;
pub mod daemon;
mod device_memory;
mod draining;
mod explain;
mod explain_settings;
mod extremes;
mod failed_memory;
mod folding;
mod formed_groups;
mod frame_limits;
mod frames;
mod freed_memory;
mod full_machine;
mod fuse_files;
pub mod fuzz;
mod giving_back;
mod group_accounts;
mod group_hints;
mod group_restarts;
mod group_timing;
mod groups;
mod growth;
mod guard;
mod held_locks;
mod held_locks_daemon;
mod hint_programs;
mod hints;
mod huge_pages;
mod isolation;
mod khugepaged;
mod ksm_backend;
mod large_churn;
mod large_day;
mod large_folios;
mod large_groups;
mod large_overcommit;
mod line_hash;
mod loading;
mod mapping_kinds;
mod mapping_lists;
mod mappings;
mod merging;
mod negative_controls;
mod nested_guest;
mod numa;
mod offline_memory;
mod orphans;
mod page_table_entries;
mod patrol;
mod pinned_pages;
mod plugged_memory;
mod policies;
mod precedence;
mod rates;
mod reclaim;
mod redistribution;
mod remote_writes;
mod reported_workloads;
mod requests;
mod sandbox;
mod shortage;
mod sizes;
mod sleep;
mod stopped_workers;
mod stress;
mod survival;
mod swap;
mod top;
mod userfault;

/// Every test, in the order in which they run.
#[must_use]
pub fn all() -> Vec<TestCase> {
    let files: &[fn() -> Vec<TestCase>] = &[
        requests::cases,
        batch_requests::cases,
        attaching::cases,
        held_locks::cases,
        shortage::cases,
        sizes::cases,
        mapping_lists::cases,
        sandbox::cases,
        draining::cases,
        line_hash::cases,
        folding::cases,
        frames::cases,
        frame_limits::cases,
        giving_back::cases,
        merging::cases,
        cgroup_move_events::cases,
        mappings::cases,
        remote_writes::cases,
        pinned_pages::cases,
        hint_programs::cases,
        hints::cases,
        growth::cases,
        huge_pages::cases,
        large_folios::cases,
        survival::cases,
        mapping_kinds::cases,
        fuse_files::cases,
        userfault::cases,
        orphans::cases,
        reclaim::cases,
        patrol::cases,
        failed_memory::cases,
        guard::cases,
        device_memory::cases,
        offline_memory::cases,
        plugged_memory::cases,
        charging::cases,
        beside_ksm::cases,
        isolation::cases,
        policies::cases,
        extremes::cases,
        daemon::cases,
        explain::cases,
        explain_settings::cases,
        khugepaged::cases,
        reported_workloads::cases,
        freed_memory::cases,
        sleep::cases,
        ksm_backend::cases,
        top::cases,
        groups::cases,
        held_locks_daemon::cases,
        formed_groups::cases,
        added_groups::cases,
        group_hints::cases,
        group_restarts::cases,
        group_accounts::cases,
        group_timing::cases,
        large_churn::cases,
        large_day::cases,
        large_groups::cases,
        precedence::cases,
        rates::cases,
        redistribution::cases,
        large_overcommit::cases,
        crowd::cases,
        swap::cases,
        full_machine::cases,
        stopped_workers::cases,
        stress::cases,
        fuzz::cases,
        numa::cases,
        nested_guest::cases,
        counting::cases,
        loading::cases,
        negative_controls::cases,
        page_table_entries::cases,
    ];
    files.iter().flat_map(|cases| cases()).collect()
}
