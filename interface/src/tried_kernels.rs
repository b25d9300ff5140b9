//! The kernels on which the module's tests passed, and the vendor of a kernel.
//!
//! # Problem
//! The module refuses kernels on which it was not tried. The program explains the refusal before it
//! happens, and both must have one list.
//!
//! # Approach
//! The rows of `tried_kernels.h` are read as text, by the rules of `kernel/kernel_vendor.c`. Tests
//! of both sides judge the kernels of `kernel_names.h`.
//!
//! # Source
//! `tried_kernels.h`.

use std::sync::LazyLock;

const LIST: &str = include_str!("../tried_kernels.h");

/// The oldest series for which the module builds.
pub const FIRST_SERIES: (u32, u32) = (6, 1);

/// The name of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelName<'a> {
    /// As `uname -r` prints it.
    pub release: &'a str,
    /// As `uname -v` prints it.
    pub version: &'a str,
}

/// A row of the list: the name of its macro, and its arguments.
#[derive(Debug)]
struct Row<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
}

static ROWS: LazyLock<Vec<Row<'static>>> = LazyLock::new(|| rows(LIST));

/// The rows of a header; other lines are left out.
fn rows(text: &str) -> Vec<Row<'_>> {
    text.lines().filter_map(row).collect()
}

/// `NAME("a", B)` as a row.
fn row(line: &str) -> Option<Row<'_>> {
    let (name, rest) = line.split_once('(')?;
    let mut rest = rest.strip_suffix(')')?;
    if !name.starts_with("UKSM_") {
        return None;
    }
    let mut arguments = Vec::new();
    loop {
        let (argument, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(',').unwrap_or(rest.len())),
        };
        arguments.push(argument);
        match behind.strip_prefix(", ") {
            Some(more) => rest = more,
            None => return behind.is_empty().then_some(Row { name, arguments }),
        }
    }
}

/// The arguments of all rows of a macro that has this number of them.
fn arguments<const COUNT: usize>(name: &str) -> impl Iterator<Item = [&'static str; COUNT]> {
    let rows = ROWS.iter().filter(move |row| row.name == name);
    rows.filter_map(|row| row.arguments.as_slice().try_into().ok())
}

impl KernelName<'_> {
    /// The vendor; none if no mark is known. `has_option` answers whether the kernel was built with
    /// an option.
    #[must_use]
    pub fn vendor(&self, has_option: impl Fn(&str) -> bool) -> Option<&'static str> {
        let by_option = arguments::<2>("UKSM_VENDOR_OPTION").find(|[_, option]| has_option(option));
        let contains = |macro_name, text: &str| {
            let mut marks = arguments::<2>(macro_name);
            marks.find(|[_, mark]| text.contains(mark))
        };
        by_option
            .or_else(|| contains("UKSM_VENDOR_RELEASE", self.release))
            .or_else(|| contains("UKSM_VENDOR_VERSION", self.version))
            .map(|[vendor, _]| vendor)
            .filter(|vendor| *vendor != "Debian" || self.is_of_debian())
    }

    /// Whether Debian itself built it: others build Debian's source with changes, and leave its
    /// name in the version.
    fn is_of_debian(&self) -> bool {
        let Some(revision) = debian_revision(self.version) else {
            return false;
        };
        let of_revision = KernelName {
            release: revision,
            version: "",
        };
        is_debian_revision(revision)
            && self.has_debian_release()
            && self.series() == of_revision.series()
    }

    /// `6.1.0-57-amd64`, `6.1.0-0.deb11.56-amd64`, `6.12.22+bpo-amd64`, `6.12.117+deb12-amd64`,
    /// `6.12.74+deb13+1-amd64`.
    fn has_debian_release(&self) -> bool {
        let flavour = self.behind_debian_numbers();
        flavour.is_some_and(|flavour| !flavour.is_empty() && flavour == self.flavour())
    }

    fn behind_debian_numbers(&self) -> Option<&str> {
        let behind = skip(self.release, is_number)?;
        let of_debian = || {
            let behind = skip(behind.strip_prefix("+deb")?, is_number)?;
            let build = behind.strip_prefix('+');
            let build = build.and_then(|build| skip(build, is_digit));
            Some(build.unwrap_or(behind))
        };
        let older = || {
            let mut marks = ["-0.deb", "-"].into_iter();
            let number = marks.find_map(|mark| behind.strip_prefix(mark))?;
            skip(number, is_number)
        };
        let plain = behind.strip_prefix("+bpo");
        plain.or_else(of_debian).or_else(older)?.strip_prefix('-')
    }

    /// Whether the tests passed on kernels of this vendor, series and flavour.
    #[must_use]
    pub fn is_tried(&self, vendor: Option<&str>) -> bool {
        let mut tried = arguments::<3>("UKSM_TRIED_KERNEL");
        tried.any(|[of, series, flavours]| {
            let behind = self.release.strip_prefix(series);
            vendor == Some(of)
                && behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
                && flavours.split(", ").any(|one| one == self.flavour())
        })
    }

    /// `rt-amd64` of `6.1.0-57-rt-amd64`; empty if there is none.
    fn flavour(&self) -> &str {
        let mut dashes = self.release.match_indices('-');
        let behind = dashes.find_map(|(at, _)| {
            let behind = self.release.get(at + 1..)?;
            behind
                .starts_with(|c: char| c.is_ascii_lowercase())
                .then_some(behind)
        });
        behind.unwrap_or_default()
    }

    /// The series: `(6, 12)` of `6.12.3`; none if the release does not begin with two numbers.
    #[must_use]
    pub fn series(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse().ok();
        Some((number()?, number()?))
    }
}

const fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Of numbers with dots between them.
const fn is_number(c: char) -> bool {
    is_digit(c) || c == '.'
}

/// Behind characters of a set; none if there are none of them.
fn skip(text: &str, set: fn(char) -> bool) -> Option<&str> {
    let behind = text.trim_start_matches(set);
    (behind.len() < text.len()).then_some(behind)
}

/// The revision in `#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1`; none if a word is not known.
fn debian_revision(version: &str) -> Option<&str> {
    const PREEMPTION: [&str; 4] = [
        "PREEMPT ",
        "PREEMPT_DYNAMIC ",
        "PREEMPT_LAZY ",
        "PREEMPT_RT ",
    ];
    let behind = skip(version.strip_prefix('#')?, is_digit)?.strip_prefix(' ')?;
    let behind = behind.strip_prefix("SMP ").unwrap_or(behind);
    let mut words = PREEMPTION.into_iter();
    let preempted = words.find_map(|word| behind.strip_prefix(word));
    preempted.unwrap_or(behind).strip_prefix("Debian ")
}

/// `6.1.192-3 (2026-11-26)`, `6.12.117-1~deb12u1`, `7.3.4-1~bpo13+1`.
fn is_debian_revision(text: &str) -> bool {
    let plain = skip(text, is_number)
        .and_then(|behind| behind.strip_prefix('-'))
        .and_then(|behind| skip(behind, is_digit));
    let Some(plain) = plain else { return false };
    let suffix = |mark: &str, sign: char| {
        let number = plain.strip_prefix(mark)?;
        let behind = skip(number, is_digit)?.strip_prefix(sign)?;
        skip(behind, is_digit)
    };
    let end = suffix("~deb", 'u').or_else(|| suffix("~bpo", '+'));
    let end = end.unwrap_or(plain);
    // The date is cut where it does not fit.
    let is_of_date = |c| is_digit(c) || " (-)".contains(c);
    (end.is_empty() || end.starts_with(' ')) && end.chars().all(is_of_date)
}

/// The tried kernels in words, as the module names them: `Debian 6.1 (amd64, rt-amd64), …`.
#[must_use]
pub fn tried_in_words() -> String {
    let tried = arguments::<3>("UKSM_TRIED_KERNEL");
    let words: Vec<String> = tried
        .map(|[vendor, series, flavours]| format!("{vendor} {series} ({flavours})"))
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_judged_as_the_table_has_it() {
        let names = rows(include_str!("../kernel_names.h"));
        assert!(names.len() > 30);
        for name in names {
            let [release, version, vendor, is_tried] = name.arguments[..] else {
                panic!("{name:?}")
            };
            let kernel = KernelName { release, version };
            let found = kernel.vendor(|_| false);
            assert_eq!(found.unwrap_or_default(), vendor, "{release}");
            assert_eq!(kernel.is_tried(found), is_tried == "1", "{release}");
        }
    }

    #[test]
    fn an_option_decides_before_names() {
        let kernel = KernelName {
            release: "6.12.0-160000.5-default",
            version: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.1-1 (2026-11-26)",
        };
        assert_eq!(kernel.vendor(|_| false), Some("Debian"));
        let suse = kernel.vendor(|option| option == "CONFIG_SUSE_KERNEL");
        assert_eq!(suse, Some("SUSE"));
    }

    #[test]
    fn every_row_of_the_list_is_read() {
        let known = [
            ("UKSM_TRIED_KERNEL", 3),
            ("UKSM_VENDOR_OPTION", 2),
            ("UKSM_VENDOR_RELEASE", 2),
            ("UKSM_VENDOR_VERSION", 2),
        ];
        let lines = LIST.lines().filter(|line| line.starts_with("UKSM_"));
        assert_eq!(lines.count(), ROWS.len());
        for row in ROWS.iter() {
            let count = row.arguments.len();
            assert!(known.contains(&(row.name, count)), "{row:?}");
        }
        for (name, _) in known {
            assert!(ROWS.iter().any(|row| row.name == name), "{name}");
        }
    }

    #[test]
    fn a_vendor_of_a_tried_kernel_has_a_mark() {
        let marked = |vendor| {
            ROWS.iter()
                .any(|row| row.name.starts_with("UKSM_VENDOR_") && row.arguments[0] == vendor)
        };
        for row in ROWS
            .iter()
            .filter(|row| row.name.starts_with("UKSM_TRIED_"))
        {
            assert!(marked(row.arguments[0]), "{row:?}");
        }
    }

    #[test]
    fn words_name_the_tried_kernels_and_none_that_tests_build() {
        let words = tried_in_words();
        assert!(words.starts_with("Debian 6.1 (amd64, "), "{words}");
        assert!(!words.contains("uksm"), "{words}");
    }

    #[test]
    fn a_release_without_numbers_has_no_series() {
        let of = |release| {
            KernelName {
                release,
                version: "",
            }
            .series()
        };
        assert_eq!(of("6.12.3-arch1"), Some((6, 12)));
        assert_eq!(of("7.3-rc1"), Some((7, 3)));
        assert_eq!(of("6"), None);
        assert_eq!(of("next-20261129"), None);
    }
}
