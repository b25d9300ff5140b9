//! Why memory is not merged: one row a reason.
//!
//! # Problem
//! A reason must have the same name for people, for programs and in the documentation, together
//! with the remedy: a setting, time, or nothing.
//!
//! # Approach
//! One table. [`super::why_unmerged`] chooses the reason for a page; here are the texts. Figures of
//! this host (times, amounts) are filled in from the circumstances of the process.
//! `docs/explain.md` has every row; a test compares.

use serde::{Serialize, Serializer};

use crate::status::evidence::{Region, Terms};

/// Declares the reasons: name in text and JSON, meaning, remedy.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $Reason:ident = $name:literal, $means:literal, $changed:literal;)+) => {
        /// Why memory is not merged.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Reason {
            $($(#[doc = $doc])+ $Reason,)+
        }

        impl Reason {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[Reason] = &[$(Reason::$Reason,)+];

            /// Its name.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Reason::$Reason => $name,)+
                }
            }

            /// What it means.
            pub(crate) fn means(self) -> &'static str {
                match self {
                    $(Reason::$Reason => $means,)+
                }
            }

            /// What would change it.
            pub(crate) fn changed_by(self) -> &'static str {
                match self {
                    $(Reason::$Reason => $changed,)+
                }
            }
        }
    };
}

reasons! {
    /// Of the process.
    NotChosen = "not-chosen", "no target names this process",
        "--pid, --cgroup, --unit, --libvirt or --comm, or the keys of these names";
    /// Of the process.
    Excluded = "excluded", "the process is named and excluded: by --exclude, [targets.exclude], or `uksm break` since the daemon started",
        "exclude; after `uksm break`, a restart of the daemon";
    /// Of the process.
    KernelThread = "kernel-thread", "a thread of the kernel has no memory of its own", "nothing";
    /// Of the process.
    Daemon = "daemon", "uksm never merges itself", "nothing";
    /// Of the process.
    NotAttached = "not-attached", "the process is named, and could not be attached",
        "the cause named in the fault; uksm tries again";
    /// Of the process.
    Leaving = "leaving", "the process must first be unmerged from its old group", "time: it is given its own copies first";
    /// Of the process.
    Waiting = "not-looked-at", "the process is new, and its turn has not come",
        "time; governor, cpu, bottom_cpu";
    /// Of the process.
    HoldsLocks = "holds-its-locks", "the process has held the lock of its own mappings at every \
                  try, so its memory cannot be examined or changed",
        "the process: one of its threads waits for a file, mostly of FUSE, while another maps memory";
    /// Of the process.
    NotListed = "not-listed", "the mappings of the process are still to be listed",
        "time; governor, cpu, bottom_cpu";
    /// Of the process.
    NoAnswer = "no-answer", "the worker of its group does not answer", "the cause named in the fault";

    /// Of a mapping.
    Shared = "shared-mapping", "several processes share this memory already", "nothing here: the program would have to use private memory";
    /// Of a mapping.
    Hugetlb = "hugetlb", "huge pages of hugetlbfs cannot be split", "ordinary memory in its place";
    /// Of a mapping.
    Device = "device", "memory of a device has no pages of the process", "nothing";
    /// Of a mapping.
    Userfault = "userfault", "userfaultfd tracks writes here, or shares its pages with a handler", "the program's registration (missing pages only is merged)";
    /// Of a mapping.
    Special = "special-mapping", "a mapping of a driver or of the kernel, droppable memory, or a shadow stack", "nothing";
    /// Of a mapping.
    FilePages = "file-pages", "all processes share pages of files in the page cache already", "nothing: they are shared already";
    /// Of a mapping.
    ReadOnlyFile = "read-only-file", "pages of a private file mapping that is read-only now are \
                    not examined, even if they were written", "nothing";
    /// Of a mapping.
    NoAccess = "no-access", "the process itself may not touch this memory now", "nothing: mprotect by the program";
    /// Of a mapping.
    LeftToKsm = "left-to-ksm", "the program offers this memory to in-kernel KSM, which runs", "echo 0 > /sys/kernel/mm/ksm/run, or the program's MADV_MERGEABLE";
    /// Of a mapping.
    LeftOut = "left-out", "there are more regions than may be followed", "max_regions, max_process_regions";
    /// Of a mapping.
    Sparse = "sparse", "the mapping is mostly empty, and this part with pages was not found \
              yet", "time; max_process_regions, if much is left out";
    /// Of a mapping.
    NewMapping = "new-mapping", "mapped since the mappings were listed", "time";

    /// Of a page.
    OtherDomain = "other-domain", "a merged page of another group or daemon, as a fork leaves it", "`uksm break`, or the other group's end";
    /// Of a page.
    EarlierDaemon = "earlier-daemon", "merged by an earlier daemon, and shared still", "time: it is taken over as it is read";
    /// Of a page.
    Ksm = "ksm", "merged by in-kernel KSM", "stop KSM: echo 0 > /sys/kernel/mm/ksm/run";
    /// Of a page.
    Swapped = "swapped", "swapped out: it is not in memory", "nothing: it is read when the process needs it";
    /// Of a page.
    Locked = "locked", "mlocked memory is merged only if locked is set", "locked";
    /// Of a page.
    Pinned = "pinned", "a device, direct I/O or io_uring holds the page, or it is in a list of a \
              processor", "time: when the page is released";
    /// Of a page.
    Poisoned = "poisoned", "its memory has failed", "nothing";
    /// Of a page.
    Unclear = "unclear", "the kernel was moving it when it was looked at", "asking again";

    /// Of a region.
    TooYoung = "too-young", "the region is younger than v_life", "v_life";
    /// Of a region.
    ShortLived = "short-lived", "most regions of this program, kind and size died young", "v_life = \"off\"; time";
    /// Of a region.
    Unread = "not-read", "the region is old enough, and none of it was read yet", "time; governor, cpu, bottom_cpu";
    /// Of a region.
    WrittenTooFast = "written-too-fast", "merged pages of this region were written again too fast, and it is left alone for a while", "v_cow; time";
    /// Of a region.
    OnTrial = "on-trial", "the region was left alone because it was written; a few pages are \
               merged now as a trial", "time; v_cow";
    /// Of a region.
    Refused = "refused", "the module refused its pages, and they are tried again later", "time";
    /// Of a region.
    Gone = "mapping-gone", "its mapping seems to be gone", "time: the mappings are listed again";

    /// Of a page.
    DryRun = "dry-run", "equal pages are known, but dry_run is set", "dry_run";
    /// Of a page.
    HugeNever = "huge-never", "in a huge page, which may not be split", "thp";
    /// Of a page.
    HugeKept = "huge-kept", "in a huge page that is kept whole, because too few of its pages have partners", "thp_share";
    /// Of a page.
    HugeAgain = "huge-again", "zeros, in a huge page that the kernel has made again of what was merged: they are left alone for a while",
        "max_ptes_none of khugepaged; time";
    /// Of a page.
    OnlyZeros = "only-zeros", "only pages of zeros are merged", "merge";
    /// Of a page.
    OwnOnly = "own-only", "equal to pages of the same process only, and none are merged within a process", "merge";
    /// Of a page.
    TooFew = "too-few-processes", "fewer than merge_spaces processes hold the same contents", "merge_spaces";
    /// Of a page.
    NoFrames = "no-frames", "equal pages are known, but no frame could be made", "max_frames, \
                frame_percent of the module; memory.max of the control group that pays (book); uksm doctor, where frames are \
                not protected";
    /// Of a page.
    Busy = "busy", "much of the region was busy at the last attempt: it waits", "time";
    /// Of a page.
    Budget = "waits", "equal pages are known: they are merged when it is their turn", "time; governor, cpu";
    /// Of a page.
    BeingRead = "being-read", "the region is being read in full; no equal page is known yet", "time; governor, cpu";
    /// Of a page.
    SampledOnly = "sampled-only", "samples found too few equal pages to read all of it", "v_dup; governor, cpu: more is sampled";
    /// Of a page.
    NothingEqual = "nothing-equal", "the page was read, and no equal page is known", "nothing here; `uksm group suggest` compares other processes";
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Reason {
    /// Details about this region, beyond the reason's meaning.
    pub(crate) fn details(self, region: Option<&Region>, terms: &Terms) -> Option<String> {
        let within = |seconds: Option<f64>| seconds.map(|left| format!("for {} more", time(left)));
        match self {
            Reason::TooYoung => Some(join(
                Some(format!("v_life is {}", time(terms.v_life_seconds))),
                within(region?.left_seconds),
            )),
            Reason::ShortLived | Reason::Refused => within(region?.left_seconds),
            Reason::WrittenTooFast => {
                let region = region?;
                let strikes = (region.strikes > 1).then(|| format!("{} times in a row", region.strikes));
                Some(join(strikes, within(region.left_seconds)))
            }
            Reason::Busy => within(region?.busy_left_seconds),
            Reason::HugeAgain => within(region?.huge_again_left_seconds),
            Reason::NoFrames => Some(join(
                Some(format!("{} of {} frames are held", terms.frames, terms.most_frames)),
                terms
                    .no_frames_left_seconds
                    .map(|left| format!("asked for again in {}", time(left))),
            )),
            Reason::HugeKept => Some(format!("thp_share is {}", percent(terms.thp_share))),
            Reason::TooFew => Some(format!("{} must", terms.spaces_needed)),
            Reason::SampledOnly => {
                let region = region?;
                let most = super::estimate::at_most(region.hits, region.sampled, terms.coverage);
                Some(format!(
                    "of {} samples {} had partners: at most {} of the pages do, at 95 %; v_dup is {}",
                    region.sampled,
                    region.hits,
                    percent(most),
                    percent(terms.v_dup)
                ))
            }
            Reason::Budget
            | Reason::Unread
            | Reason::BeingRead
            | Reason::NotListed
            | Reason::Waiting => Some(format!(
                "{} of a core is used of {}",
                percent(terms.cpu_recent),
                percent(terms.cpu)
            )),
            _ => None,
        }
        .filter(|text| !text.is_empty())
    }
}

fn join(one: Option<String>, two: Option<String>) -> String {
    let parts: Vec<String> = one.into_iter().chain(two).collect();
    parts.join(", ")
}

/// A time for people.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.9995 => format!("{:.0} ms", seconds * 1000.0),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A share for people.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent == 0.0 || percent >= 10.0 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own_and_a_row_in_the_documentation() {
        let text = include_str!("../../../../docs/explain.md");
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        for &reason in Reason::ALL {
            let row = format!("| `{}` |", reason.name());
            assert!(text.contains(&row), "docs/explain.md has no row {row}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), names.len(), "docs/explain.md has other rows");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }

    #[test]
    fn times_and_shares_have_significant_digits_only() {
        let times = [0.25, 1.0, 119.0, 300.0, 9000.0].map(time);
        assert_eq!(times, ["250 ms", "1.0 s", "119.0 s", "5 min", "2.5 h"]);
        assert_eq!([0.0, 0.002, 0.475].map(percent), ["0 %", "0.2 %", "48 %"]);
    }
}
