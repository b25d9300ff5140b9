//! Loading the module where it does not fit.
//!
//! # Problem
//! The module calls functions the kernel does not export. On a kernel without one of them it must
//! not load, and the kernel's log must name that function.
//!
//! # Approach
//! The test build imports one more symbol by parameter; one that no kernel has stands for one that
//! this kernel lacks. It also takes name and version of its kernel from parameters: the kernel
//! itself loads a module of another one, if all that it imports has the same version. And it takes
//! the version of the guard that it requires, which stays loaded over an update.

use super::Context;
use uksm_vm_protocol::machine::{GUARD, MODULE};

cases! { "loading":
    a_missing_symbol_keeps_the_module_out_and_is_named Normal Faults 30,
    a_symbol_that_exists_does_not_keep_the_module_out Normal Faults 30,
    a_module_built_for_another_kernel_is_kept_out_by_name Normal Faults 30,
    a_module_built_for_another_build_of_the_kernel_is_kept_out Normal Faults 30,
    an_older_guard_keeps_the_module_out_and_asks_for_a_reboot Normal Faults 30,
}

fn a_missing_symbol_keeps_the_module_out_and_is_named(context: &mut Context) {
    const MISSING: &str = "no_kernel_has_this_symbol";
    context.unload(MODULE).expect("unloading the module");
    let loaded = context.load_with(MODULE, &format!("require={MISSING}"));
    assert!(
        loaded.is_err(),
        "the module should not load without {MISSING}"
    );
    assert!(!context.is_loaded(MODULE));
    assert!(
        !std::path::Path::new("/dev/uksm").exists(),
        "a module kept out leaves no device"
    );
    let log = context.kernel_log().expect("the kernel's log");
    assert!(
        log.iter().any(|line| line.contains(MISSING)),
        "{MISSING} should be named: {log:?}"
    );
    context
        .load(MODULE)
        .expect("with nothing missing the module should load");
}

fn a_symbol_that_exists_does_not_keep_the_module_out(context: &mut Context) {
    context.unload(MODULE).expect("unloading the module");
    context
        .load_with(MODULE, "require=flush_tlb_mm_range")
        .expect("the module should load");
    context.unload(MODULE).expect("unloading the module");
    context.load(MODULE).expect("loading the module");
}

/// The module with `parameter` set to another kernel's value does not load, and the kernel's log
/// names both.
fn assert_kept_out(context: &Context, parameter: &str, running: &str) {
    const OTHER: &str = "6.6.6-other";
    context.unload(MODULE).expect("unloading the module");
    let loaded = context.load_with(MODULE, &format!("{parameter}={OTHER}"));
    assert!(loaded.is_err(), "a module for {OTHER} should not load");
    assert!(!context.is_loaded(MODULE));
    let log = context.kernel_log().expect("the kernel's log");
    assert!(
        log.iter()
            .any(|line| line.contains(OTHER) && line.contains(running)),
        "both kernels should be named: {log:?}"
    );
    context
        .load(MODULE)
        .expect("the module should load on its own kernel");
}

fn a_module_built_for_another_kernel_is_kept_out_by_name(context: &mut Context) {
    assert_kept_out(context, "built_for", context.kernel_release());
}

/// Distributions release other builds of a kernel under the same name.
fn a_module_built_for_another_build_of_the_kernel_is_kept_out(context: &mut Context) {
    let running = nix::sys::utsname::uname().expect("uname");
    let version = running.version().to_str().expect("ASCII");
    assert_kept_out(context, "built_version", version);
}

fn an_older_guard_keeps_the_module_out_and_asks_for_a_reboot(context: &mut Context) {
    context.unload(MODULE).expect("unloading the module");
    let loaded = context.load_with(MODULE, "guard_interface=1000");
    assert!(loaded.is_err(), "the guard should be too old");
    assert!(!context.is_loaded(MODULE));
    let log = context.kernel_log().expect("the kernel's log");
    assert!(
        log.iter()
            .any(|line| line.contains(GUARD) && line.contains("reboot")),
        "the guard should be named: {log:?}"
    );
    context
        .load(MODULE)
        .expect("the module should load with a guard of its time");
}
