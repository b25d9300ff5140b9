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
    a_kernel_that_was_not_tried_keeps_the_module_out_in_one_line Normal Faults 90,
    a_tried_kernel_of_any_series_is_accepted_without_a_line Normal Faults 60,
    a_kernel_without_all_symbols_keeps_the_module_out_and_the_option_is_named Normal Faults 30,
    a_refused_module_leaves_the_guard_idle Normal Faults 30,
}

const ACTIVE: &str = "/sys/module/uksm_guard/parameters/active";

/// A kernel on which uksm was not tried: release, version, and the words of the refusal.
type Untried = (&'static str, &'static str, &'static str);

const PROXMOX: Untried = (
    "6.8.12-4-pve",
    "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4",
    "(Proxmox)",
);

const UNTRIED: [Untried; 5] = [
    PROXMOX,
    // It has the number of a tried series.
    (
        "6.12.0-55.9.1.el10_0.x86_64",
        "#1 SMP PREEMPT_DYNAMIC",
        "(Red Hat)",
    ),
    // The flavour was not tried in this series.
    (
        "7.3.4+deb13-own-amd64",
        "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1",
        "(Debian)",
    ),
    // A series of the future.
    ("8.1.2+deb15-amd64", "#1 SMP Debian 8.1.2-1", "(Debian)"),
    ("6.12.48-own", "#3 SMP PREEMPT_DYNAMIC", "(unknown vendor)"),
];

fn a_missing_symbol_keeps_the_module_out_and_is_named(context: &mut Context) {
    const MISSING: &str = "no_kernel_has_this_symbol";
    context.unload(MODULE).expect("unloading the module");
    let loaded = context.load_with(MODULE, &format!("require={MISSING} untested=1"));
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
        .load_with(MODULE, "require=flush_tlb_mm_range untested=1")
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
    let loaded = context.load_with(MODULE, "guard_interface=1000 untested=1");
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

/// Parameters that make the module judge another kernel.
fn judged(release: &str, version: &str) -> String {
    format!("running_release={release} running_version=\"{version}\"")
}

/// Lines of the module with this text in the kernel's log since the test began.
fn lines_with(context: &Context, text: &str) -> Vec<String> {
    let mut log = context.kernel_log().expect("the kernel's log");
    log.retain(|line| line.contains("uksm") && line.contains(text));
    log
}

/// The module with these parameters is refused as not supported, and leaves nothing.
fn assert_refused(context: &Context, parameters: &str) {
    let refused = context.load_with(MODULE, parameters);
    let refused = refused.expect_err("the module should refuse this kernel").0;
    assert!(refused.contains("EOPNOTSUPP"), "{refused}");
    assert!(!context.is_loaded(MODULE));
    assert!(
        !std::path::Path::new("/dev/uksm").exists(),
        "a refused module leaves no device"
    );
}

/// The same parameters with `untested=1` load the module with one warning, and the parameter can be
/// read as long as the module is loaded.
fn assert_loads_untested(context: &Context, parameters: &str, difference: &str) {
    let text = format!("{difference}: loaded at your own risk");
    let before = lines_with(context, &text).len();
    context
        .load_with(MODULE, &format!("{parameters} untested=1"))
        .expect("untested=1 should load the module");
    assert_eq!(lines_with(context, &text).len(), before + 1);
    assert_eq!(context.parameter("untested").expect("the parameter"), "Y");
    context.unload(MODULE).expect("unloading the module");
}

fn a_kernel_that_was_not_tried_keeps_the_module_out_in_one_line(context: &mut Context) {
    context.unload(MODULE).expect("unloading the module");
    for (release, version, vendor) in UNTRIED {
        let parameters = judged(release, version);
        assert_refused(context, &parameters);
        let lines = lines_with(context, release);
        assert_eq!(lines.len(), 1, "{lines:?}");
        for text in [
            version,
            vendor,
            "Debian 6.1 (",
            "modprobe uksm untested=1",
            "docs/kernels.md",
        ] {
            assert!(lines[0].contains(text), "no {text} in {lines:?}");
        }
        assert_loads_untested(
            context,
            &parameters,
            &format!("{release} {version} {vendor}"),
        );
    }
    context.load(MODULE).expect("loading the module");
}

fn a_tried_kernel_of_any_series_is_accepted_without_a_line(context: &mut Context) {
    context.unload(MODULE).expect("unloading the module");
    for (release, version) in [
        ("6.1.0-57-rt-amd64", "#1 SMP PREEMPT_RT Debian 6.1.192-3"),
        ("6.12.118+deb13-amd64", "#1 SMP Debian 6.12.118-1"),
        ("7.3.4+deb13-cloud-amd64", "#1 SMP Debian 7.3.4-1~bpo13+1"),
    ] {
        context
            .load_with(MODULE, &judged(release, version))
            .expect("the module should accept this kernel");
        context.unload(MODULE).expect("unloading the module");
        assert_eq!(lines_with(context, release), [""; 0]);
    }
    // Kernels that are built for tests are in no list.
    let is_of_debian = context.kernel_release().ends_with("-amd64");
    let parameters = if is_of_debian { "" } else { "untested=1" };
    context
        .load_with(MODULE, parameters)
        .expect("this kernel should be in interface/tried_kernels.h");
    let untested = context.parameter("untested").expect("the parameter");
    assert_eq!(untested == "N", is_of_debian);
}

fn a_kernel_without_all_symbols_keeps_the_module_out_and_the_option_is_named(
    context: &mut Context,
) {
    const OPTION: &str = "built without CONFIG_KALLSYMS_ALL";
    context.unload(MODULE).expect("unloading the module");
    assert_refused(context, "kallsyms_all=0");
    assert_eq!(lines_with(context, OPTION).len(), 1);
    assert_loads_untested(context, "kallsyms_all=0", &format!("({OPTION})"));
    context.load(MODULE).expect("loading the module");
}

/// The guard is loaded before the module, and cannot be unloaded.
fn a_refused_module_leaves_the_guard_idle(context: &mut Context) {
    let is_active = || context.read(ACTIVE).expect("the guard's state") == "Y";
    let (release, version, _) = PROXMOX;
    context.unload(MODULE).expect("unloading the module");
    assert!(is_active(), "it protects pages that stay merged");
    context.write(ACTIVE, "0").expect("an idle guard");
    for parameters in [
        judged(release, version),
        "built_for=6.6.6-other".to_owned(),
        "require=no_kernel_has_this_symbol".to_owned(),
    ] {
        let refused = context.load_with(MODULE, &parameters);
        refused.expect_err("the module should refuse this kernel");
        assert!(!is_active(), "{parameters}");
    }
    context.load(MODULE).expect("loading the module");
    assert!(is_active(), "a module that was accepted needs it");
}
