//! Loading the module where it does not fit.
//!
//! # Problem
//! The module calls functions the kernel does not export. On a kernel without one of them it must
//! not load, and the kernel's log must name that function.
//!
//! # Approach
//! The test build asks for one more symbol by parameter; one that no kernel has stands for one
//! that this kernel lacks. It also takes the name of the kernel it was built for from a parameter:
//! the kernel itself loads a module of another release, if all that it imports has the same version.

use super::Context;
use uksm_vm_protocol::machine::MODULE;

cases! { "loading":
    a_missing_symbol_keeps_the_module_out_and_is_named Normal Faults 30,
    a_symbol_that_exists_does_not_keep_the_module_out Normal Faults 30,
    a_module_built_for_another_kernel_is_kept_out_by_name Normal Faults 30,
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

fn a_module_built_for_another_kernel_is_kept_out_by_name(context: &mut Context) {
    const OTHER: &str = "6.6.6-other";
    context.unload(MODULE).expect("unloading the module");
    let loaded = context.load_with(MODULE, &format!("built_for={OTHER}"));
    assert!(loaded.is_err(), "a module for {OTHER} should not load");
    assert!(!context.is_loaded(MODULE));
    let log = context.kernel_log().expect("the kernel's log");
    let running = context.kernel_release();
    assert!(
        log.iter()
            .any(|line| line.contains(OTHER) && line.contains(running)),
        "both kernels should be named: {log:?}"
    );
    context
        .load(MODULE)
        .expect("the module should load on its own kernel");
}
