//! The remedies on kernels of distributions: in their own words, and none that cannot work.

use super::fake::{Fake, MODULE, VERSION, file_of_module, file_of_other_build};
use super::row;
use crate::control::NoAnswer;
use crate::doctor::check::Severity;
use crate::doctor::report::DoctorReport;

/// A host of a distribution, and what must be recommended there.
struct DistributionHost {
    os_release: &'static str,
    release: &'static str,
    version: &'static str,
    /// The command that installs the headers; none if no check may recommend to build.
    headers: Option<&'static str>,
}

const DEBIAN: &str = "ID=debian\n";

const HOSTS: [DistributionHost; 20] = [
    DistributionHost {
        os_release: DEBIAN,
        release: "6.8.12-4-pve",
        version: "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4 (2024-11-06T15:04Z)",
        headers: Some("apt install proxmox-headers-6.8.12-4-pve"),
    },
    DistributionHost {
        os_release: DEBIAN,
        release: "6.18.3+deb14-amd64",
        version: "#1 SMP PREEMPT_DYNAMIC Debian 6.18.3-1 (2026-01-05)",
        headers: Some("apt install linux-headers-6.18.3+deb14-amd64"),
    },
    DistributionHost {
        os_release: "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
        release: "7.0.0-12-generic",
        version: "#12-Ubuntu SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026",
        headers: Some("apt install linux-headers-7.0.0-12-generic"),
    },
    DistributionHost {
        os_release: "ID=fedora\n",
        release: "7.2.9-200.fc43.x86_64",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("dnf install kernel-devel-7.2.9-200.fc43.x86_64"),
    },
    DistributionHost {
        os_release: "ID=\"almalinux\"\nID_LIKE=\"rhel centos fedora\"\n",
        release: "6.12.0-55.9.1.el10_0.x86_64",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("dnf install kernel-devel-6.12.0-55.9.1.el10_0.x86_64"),
    },
    DistributionHost {
        os_release: "ID=\"rhel\"\n",
        release: "6.12.0-55.9.1.el10_0.x86_64+rt",
        version: "#1 SMP PREEMPT_RT",
        headers: Some("dnf install kernel-rt-devel-6.12.0-55.9.1.el10_0.x86_64"),
    },
    DistributionHost {
        os_release: "ID=fedora\n",
        release: "7.2.9-200.fc43.x86_64+debug",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("dnf install kernel-debug-devel-7.2.9-200.fc43.x86_64"),
    },
    DistributionHost {
        os_release: "ID=\"rhel\"\n",
        release: "5.14.0-503.11.1.el9_5.x86_64",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: None,
    },
    DistributionHost {
        os_release: "ID=\"ol\"\nID_LIKE=\"fedora\"\n",
        release: "6.12.0-105.51.5.el9uek.x86_64",
        version: "#2 SMP PREEMPT_DYNAMIC",
        headers: Some("dnf install kernel-uek-devel-6.12.0-105.51.5.el9uek.x86_64"),
    },
    DistributionHost {
        os_release: "ID=\"sles\"\nID_LIKE=\"suse\"\n",
        release: "6.12.0-160000.5-default",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("zypper install kernel-default-devel"),
    },
    DistributionHost {
        os_release: "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n",
        release: "6.12.60-1-longterm",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("zypper install kernel-longterm-devel"),
    },
    DistributionHost {
        os_release: "ID=arch\n",
        release: "7.3.2-arch1-1",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("pacman -S linux-headers"),
    },
    DistributionHost {
        os_release: "ID=arch\n",
        release: "6.18.9-1-lts",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("pacman -S linux-lts-headers"),
    },
    DistributionHost {
        os_release: "ID=cachyos\nID_LIKE=arch\n",
        release: "7.3.2-2-cachyos",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("pacman -S linux-cachyos-headers"),
    },
    DistributionHost {
        os_release: "ID=cachyos\nID_LIKE=arch\n",
        release: "6.18.9-1-cachyos-lts",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("pacman -S linux-cachyos-lts-headers"),
    },
    DistributionHost {
        os_release: "ID=manjaro\nID_LIKE=arch\n",
        release: "6.12.48-1-MANJARO",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("pacman -S linux612-headers"),
    },
    DistributionHost {
        os_release: "ID=\"amzn\"\nID_LIKE=\"fedora\"\n",
        release: "6.12.58-82.121.amzn2023.x86_64",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: Some("dnf install kernel6.12-devel-6.12.58-82.121.amzn2023.x86_64"),
    },
    DistributionHost {
        os_release: "ID=talos\n",
        release: "6.18.24-talos",
        version: "#1 SMP",
        headers: None,
    },
    DistributionHost {
        os_release: "ID=flatcar\nID_LIKE=coreos\n",
        release: "6.12.84-flatcar",
        version: "#1 SMP PREEMPT_DYNAMIC",
        headers: None,
    },
    DistributionHost {
        os_release: "ID=bottlerocket\n",
        release: "6.12.40",
        version: "#1 SMP",
        headers: None,
    },
];

/// Texts of `os-release` with which `/usr` is an image, and their kernels.
const IMAGES: [(&str, &str); 6] = [
    (
        "ID=fedora\nVARIANT_ID=coreos\nOSTREE_VERSION='43.20261110.3.0'\n",
        "7.2.9-200.fc43.x86_64",
    ),
    (
        "ID=bluefin\nID_LIKE=\"fedora\"\nOSTREE_VERSION='43.1'\n",
        "7.2.9-200.fc43.x86_64",
    ),
    (
        "ID=fedora\nVARIANT_ID=silverblue\n",
        "7.2.9-200.fc43.x86_64",
    ),
    (
        "ID=bazzite\nID_LIKE=\"fedora\"\n",
        "7.2.9-ogc1.1.fc43.x86_64",
    ),
    (
        "ID=\"opensuse-microos\"\nID_LIKE=\"suse opensuse opensuse-tumbleweed\"\n",
        "7.3.2-1-default",
    ),
    (
        "ID=\"opensuse-aeon\"\nID_LIKE=\"suse opensuse-tumbleweed opensuse-microos\"\n",
        "7.3.2-1-default",
    ),
];

#[test]
fn nothing_is_installed_on_a_system_whose_usr_is_an_image() {
    for (os_release, release) in IMAGES {
        let mut fake = Fake::right();
        fake.boot(release, "#1 SMP PREEMPT_DYNAMIC");
        fake.write("etc/os-release", os_release);
        fake.daemon = || Err(NoAnswer::NotRunning);
        let report = fake.report();
        for word in ["install", "dkms", "untested=1", "modprobe"] {
            for command in report.rows().iter().flat_map(|row| &row.commands) {
                assert!(!command.contains(word), "{os_release}: {command}");
            }
        }
        let loaded = row(&report, "module-loaded");
        assert!(loaded.what.contains("/usr is an image"), "{}", loaded.what);
        // An image of the operator's own, with the module.
        let place = format!("lib/modules/{release}/extra/uksm.ko");
        fake.put(&place, &file_of_module(release, "ABC", true));
        fake.write("proc/sys/kernel/version", VERSION);
        let loaded = row(&fake.report(), "module-loaded").what.clone();
        assert!(loaded.contains("`modprobe uksm untested=1`"), "{loaded}");
    }
}

fn report(host: &DistributionHost) -> DoctorReport {
    let mut fake = Fake::right();
    fake.boot(host.release, host.version);
    fake.write("etc/os-release", host.os_release);
    fake.daemon = || Err(NoAnswer::NotRunning);
    fake.remove("etc/modules-load.d");
    fake.remove("etc/systemd/system/multi-user.target.wants");
    fake.write("sys/module/module/parameters/sig_enforce", "Y\n");
    fake.report()
}

#[test]
fn the_package_of_headers_has_its_own_name_on_each_distribution() {
    for host in &HOSTS {
        let report = report(host);
        let headers = row(&report, "headers");
        let commands: Vec<&str> = headers.commands.iter().map(String::as_str).collect();
        assert_eq!(commands, Vec::from_iter(host.headers), "{}", host.release);
    }
}

#[test]
fn kernels_that_were_not_tried_are_errors_that_name_the_way_without_a_module() {
    for host in &HOSTS {
        let report = report(host);
        let version = row(&report, "kernel-version");
        assert_eq!(version.severity, Severity::Error, "{}", host.release);
        let loaded = row(&report, "module-loaded");
        assert_eq!(loaded.severity, Severity::Error, "{}", host.release);
        let ksm = ["uksm run --backend ksm --comm NAME"];
        assert_eq!(loaded.commands, ksm, "{}: {}", host.release, loaded.what);
    }
}

#[test]
fn nothing_recommends_to_build_or_load_a_module_that_would_be_refused() {
    for host in &HOSTS {
        let report = report(host);
        let is_possible = !row(&report, "module-loaded")
            .what
            .contains("cannot be built");
        for row in report.rows() {
            let commands = row.commands.iter().map(String::as_str);
            for text in commands.chain(row.mend) {
                let has = |word| text.contains(word);
                let case = format!("{}: {}: {text}", host.release, row.name);
                assert!(!has("modprobe uksm") || has("untested=1"), "{case}");
                assert!(!has("echo uksm"), "{case}");
                let starts = ["start uksm", "--now uksm", "enable uksm"];
                assert!(!starts.into_iter().any(has), "{case}");
                let builds = has("dkms ") || has("untested=1");
                assert!(host.headers.is_some() || !builds, "{case}");
                assert!(is_possible || !has("mokutil"), "{case}");
            }
        }
        for name in ["module-at-start", "unit"] {
            let row = row(&report, name);
            assert_eq!(row.severity, Severity::Ok, "{}: {}", host.release, row.what);
        }
    }
}

#[test]
fn a_module_of_another_build_is_built_again_before_anything_loads_it() {
    for module in [
        file_of_module("6.1.0-9-amd64", "ABC", true),
        file_of_other_build("#2 SMP PREEMPT_DYNAMIC Debian 6.12.1-2"),
    ] {
        let mut fake = Fake::right();
        fake.remove("sys/module/uksm");
        fake.remove("etc/modules-load.d");
        fake.remove("etc/systemd/system/multi-user.target.wants");
        fake.put(MODULE, &module);
        fake.daemon = || Err(NoAnswer::NotRunning);
        let commands = |fake: &Fake, name| row(&fake.report(), name).commands.clone();
        let build = commands(&fake, "module-current");
        assert!(build[0].starts_with("dkms "), "{build:?}");
        let load = vec!["modprobe uksm".to_owned()];
        assert_eq!(commands(&fake, "module-loaded"), [build, load].concat());
        for name in ["module-at-start", "daemon"] {
            assert_eq!(commands(&fake, name), [""; 0], "{name}");
        }
        fake.write("proc/sys/kernel/version", "#1 SMP\n");
        let ksm = ["uksm run --backend ksm --comm NAME"];
        assert_eq!(commands(&fake, "module-loaded"), ksm);
        fake.remove("sys/kernel/mm/ksm");
        assert_eq!(commands(&fake, "module-current"), [""; 0]);
    }
}

#[test]
fn a_loaded_module_is_not_called_impossible() {
    let fake = Fake::right();
    fake.boot("6.18.24-talos", "#1 SMP");
    fake.write("etc/os-release", "ID=talos\n");
    fake.write("sys/module/uksm/version", "0.1.0\n");
    let report = fake.report();
    assert_eq!(row(&report, "module-loaded").severity, Severity::Ok);
    for row in report.rows() {
        for word in ["can be built", "cannot be built", "can be no module"] {
            assert!(!row.what.contains(word), "{}: {}", row.name, row.what);
        }
    }
}

#[test]
fn a_kernel_of_red_hats_source_without_a_mark_is_named_as_by_the_module() {
    let fake = Fake::right();
    fake.boot("6.12.48-own", "#1 SMP PREEMPT_DYNAMIC");
    let vendor = |fake: &Fake| row(&fake.report(), "kernel-version").what.clone();
    assert!(
        vendor(&fake).contains("(unknown vendor)"),
        "{}",
        vendor(&fake)
    );
    fake.write(
        "lib/modules/6.12.48-own/build/include/generated/uapi/linux/version.h",
        "#define LINUX_VERSION_CODE 396288\n#define RHEL_MAJOR 10\n",
    );
    assert!(vendor(&fake).contains("(Red Hat)"), "{}", vendor(&fake));
}

#[test]
fn a_kernel_that_was_built_by_hand_on_suse_has_no_package_of_headers() {
    // The second one is of SUSE's own source and options.
    for release in ["6.12.48-own", "6.12.0-default", "6.12.48-3-own"] {
        let fake = Fake::right();
        fake.boot(release, "#1 SMP PREEMPT_DYNAMIC");
        fake.write("etc/os-release", "ID=\"sles\"\nID_LIKE=\"suse\"\n");
        let report = fake.report();
        let headers = row(&report, "headers");
        assert!(
            headers.commands.is_empty(),
            "{release}: {:?}",
            headers.commands
        );
        assert!(
            headers.what.contains("no package is known"),
            "{}",
            headers.what
        );
    }
}
