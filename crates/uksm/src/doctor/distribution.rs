//! The distribution of a host, and its own words: the package of its kernel's headers, and the
//! state of the module on its kernels.
//!
//! # Problem
//! A remedy that does not exist on the host is worse than none.
//!
//! # Approach
//! A distribution is known by `os-release`, or by a name in the kernel's release, as Proxmox VE
//! calls itself Debian. Headers belong to the kernel, so their package is chosen by the kernel's
//! vendor, and by the distribution only where no vendor is known.
//!
//! # Source
//! os-release(5); `docs/kernels.md` for what was tried.

/// A distribution, or a family of them with the same packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::doctor) enum Distribution {
    Debian,
    Ubuntu,
    Proxmox,
    Fedora,
    RedHat,
    Oracle,
    Suse,
    Arch,
    Amazon,
    Talos,
    Flatcar,
    Bottlerocket,
    /// One whose `/usr` is an image, of any of the families.
    Image,
    /// No known one.
    Other,
}

/// Names of `ID` and `ID_LIKE`.
const NAMES: [(&str, Distribution); 21] = [
    ("debian", Distribution::Debian),
    ("ubuntu", Distribution::Ubuntu),
    ("fedora", Distribution::Fedora),
    ("rhel", Distribution::RedHat),
    ("centos", Distribution::RedHat),
    ("almalinux", Distribution::RedHat),
    ("rocky", Distribution::RedHat),
    ("ol", Distribution::RedHat),
    ("sles", Distribution::Suse),
    ("sled", Distribution::Suse),
    ("suse", Distribution::Suse),
    ("opensuse", Distribution::Suse),
    ("opensuse-leap", Distribution::Suse),
    ("opensuse-tumbleweed", Distribution::Suse),
    ("arch", Distribution::Arch),
    ("manjaro", Distribution::Arch),
    ("cachyos", Distribution::Arch),
    ("amzn", Distribution::Amazon),
    ("talos", Distribution::Talos),
    ("flatcar", Distribution::Flatcar),
    ("bottlerocket", Distribution::Bottlerocket),
];

/// Names of `ID`, `ID_LIKE` and `VARIANT_ID` with which `/usr` is an image. Most of Fedora's kind
/// also have a line `OSTREE_VERSION`.
const IMAGES: [&str; 14] = [
    "aeon",
    "bazzite",
    "coreos",
    "iot",
    "kinoite",
    "onyx",
    "opensuse-leap-micro",
    "opensuse-microos",
    "sericea",
    "silverblue",
    "sl-micro",
    "sle-micro",
    "steamos",
    "ubuntu-core",
];

/// Flavours of SUSE's kernels for x86-64.
const SUSE_FLAVOURS: [&str; 7] = [
    "default", "rt", "azure", "longterm", "debug", "kvmsmall", "vanilla",
];

impl Distribution {
    /// The distribution by the text of `os-release` and the kernel's release.
    pub(in crate::doctor) fn of(os_release: &str, release: &str) -> Distribution {
        let by_kernel = [
            ("-pve", Distribution::Proxmox),
            ("uek", Distribution::Oracle),
        ];
        let of_kernel = by_kernel
            .into_iter()
            .find(|(mark, _)| release.contains(mark));
        let value = |key: &str| {
            let mut lines = os_release.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\''])
        };
        let words = || value("ID").split(' ').chain(value("ID_LIKE").split(' '));
        let of_name = || words().find_map(|word| NAMES.into_iter().find(|(name, _)| *name == word));
        let found = of_kernel.or_else(of_name);
        let found = found.map_or(Distribution::Other, |(_, distribution)| distribution);
        let mut names = words().chain([value("VARIANT_ID")]);
        let is_image =
            !value("OSTREE_VERSION").is_empty() || names.any(|name| IMAGES.contains(&name));
        // Flatcar is like CoreOS, and has its own words.
        match found {
            Distribution::Talos | Distribution::Flatcar | Distribution::Bottlerocket => found,
            _ if is_image => Distribution::Image,
            _ => found,
        }
    }

    /// The command that installs the headers of the running kernel. None if no package is known to
    /// have them, as for a kernel that was built by hand.
    pub(in crate::doctor) fn headers(self, release: &str, vendor: Option<&str>) -> Option<String> {
        let apt = |kind| Some(format!("apt install {kind}-headers-{release}"));
        let dnf = |kernel| Some(format!("dnf install {}", red_hat_headers(kernel, release)));
        let arch = |package| Some(format!("pacman -S {package}-headers"));
        match (vendor, self) {
            (Some("Debian" | "Ubuntu"), _) => apt("linux"),
            (Some("Proxmox"), _) => apt("proxmox"),
            (Some("Fedora" | "Red Hat"), _) => dnf("kernel"),
            (Some("Oracle"), _) => dnf("kernel-uek"),
            (Some("Amazon"), _) => Some(format!(
                "dnf install {}-devel-{release}",
                amazon_kernel(release)
            )),
            (Some("SUSE"), _) | (None, Distribution::Suse) => {
                let flavour = suse_flavour(release)?;
                Some(format!("zypper install kernel-{flavour}-devel"))
            }
            (Some("Arch Linux"), _) if release.ends_with("-rt") => arch("linux-rt"),
            (Some("Arch Linux"), _) => arch("linux"),
            (Some("CachyOS"), _) => arch(&cachyos_kernel(release)),
            (Some("Manjaro"), _) => arch(&manjaro_kernel(release)?),
            (None, Distribution::Arch) => {
                let mut known = ["lts", "zen", "hardened", "rt"].into_iter();
                let kind = known.find(|kind| release.ends_with(&format!("-{kind}")))?;
                arch(&format!("linux-{kind}"))
            }
            _ => None,
        }
    }

    /// The command that installs DKMS, where one is known.
    pub(in crate::doctor) const fn dkms(self) -> Option<&'static str> {
        match self {
            Distribution::Debian | Distribution::Ubuntu | Distribution::Proxmox => {
                Some("apt install dkms")
            }
            Distribution::Fedora | Distribution::Amazon => Some("dnf install dkms"),
            Distribution::RedHat | Distribution::Oracle => Some("dnf install dkms   # of EPEL"),
            Distribution::Suse => Some("zypper install dkms"),
            Distribution::Arch => Some("pacman -S dkms"),
            _ => None,
        }
    }

    /// Why DKMS builds no module here, whatever the kernel.
    pub(in crate::doctor) const fn build_obstacle(self) -> Option<&'static str> {
        match self {
            Distribution::Talos => Some(
                "Talos loads only modules that were signed when it was built: the module must be \
                 a system extension of your own build",
            ),
            Distribution::Flatcar => {
                Some("Flatcar has no DKMS: its development container builds modules")
            }
            Distribution::Bottlerocket => {
                Some("Bottlerocket has no DKMS: its kernel kit builds modules")
            }
            Distribution::Image => {
                Some("/usr is an image here: the module must be a part of an image of your own")
            }
            _ => None,
        }
    }

    /// The state of the module on the distribution's own kernels, in one sentence. None where a
    /// sentence would add nothing.
    pub(in crate::doctor) const fn state(self) -> Option<&'static str> {
        match self {
            Distribution::Ubuntu => Some("Ubuntu: none of its kernels was tried"),
            Distribution::Proxmox => Some(
                "Proxmox VE: none of its kernels was tried; a kernel of Debian can be installed \
                 beside them, without ZFS (docs/guides/proxmox.md)",
            ),
            Distribution::Fedora => Some("Fedora: none of its kernels was tried"),
            Distribution::RedHat => Some(
                "RHEL and its rebuilds: 5.14 of RHEL 9 is too old, and 6.12 of RHEL 10 was not \
                 tried; DKMS is in EPEL",
            ),
            Distribution::Oracle => Some("Oracle Linux: no UEK was tried"),
            Distribution::Suse => Some("SLES and openSUSE: none of their kernels was tried"),
            Distribution::Arch => Some(
                "Arch Linux, Manjaro and CachyOS: none of their kernels was tried; linux-lts \
                 changes its series once a year, linux every few weeks",
            ),
            Distribution::Amazon => Some("Amazon Linux: none of its kernels was tried"),
            Distribution::Talos
            | Distribution::Flatcar
            | Distribution::Bottlerocket
            | Distribution::Image => self.build_obstacle(),
            // The list of tried kernels has all of Debian's.
            Distribution::Debian | Distribution::Other => None,
        }
    }

    /// The key with which DKMS signs modules here.
    pub(in crate::doctor) const fn signing_key(self) -> &'static str {
        match self {
            Distribution::Ubuntu => "/var/lib/shim-signed/mok/MOK.der",
            _ => "/var/lib/dkms/mok.pub",
        }
    }
}

/// `kernel-rt-devel-R.x86_64` of `R.x86_64+rt`: the variant is a part of the package's name.
fn red_hat_headers(kernel: &str, release: &str) -> String {
    match release.split_once('+') {
        Some((release, variant)) => format!("{kernel}-{variant}-devel-{release}"),
        None => format!("{kernel}-devel-{release}"),
    }
}

/// `default` of `6.12.0-160000.5-default`. None for a kernel that was built by hand, whose release
/// has no number of SUSE's package, or an unknown flavour.
fn suse_flavour(release: &str) -> Option<&str> {
    let (before, flavour) = release.rsplit_once('-')?;
    let (_, number) = before.split_once('-')?;
    let is_number = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    (is_number && SUSE_FLAVOURS.contains(&flavour)).then_some(flavour)
}

/// `kernel6.12` of `6.12.58-82.121.amzn2023.x86_64`; the oldest kernel has no number.
fn amazon_kernel(release: &str) -> String {
    let mut numbers = release.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("6"), Some("1")) => "kernel".to_owned(),
        (Some(major), Some(minor)) => format!("kernel{major}.{minor}"),
        _ => "kernel".to_owned(),
    }
}

/// `linux-cachyos-bore` of `7.3.2-2-cachyos-bore`.
fn cachyos_kernel(release: &str) -> String {
    let kind = release.split_once("-cachyos").map_or("", |(_, kind)| kind);
    format!("linux-cachyos{kind}")
}

/// `linux612` of `6.12.48-1-MANJARO`.
fn manjaro_kernel(release: &str) -> Option<String> {
    let mut numbers = release.split('.');
    Some(format!("linux{}{}", numbers.next()?, numbers.next()?))
}
