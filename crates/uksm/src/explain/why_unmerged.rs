//! Sorts the memory of a process by the reason for which it is not merged.
//!
//! # Problem
//! Several reasons can keep a page unmerged at once: it is locked, its region is too young, and no
//! equal page is known. Only one is reported: the first in the order in which module and engine
//! check them.
//!
//! # Approach
//! Pages in regions are judged by their state when read, by the standing of their region, and by
//! the settings, in the order in which module and engine check ([`why`]). In a large region some
//! pages were read, and represent all. Memory in no region is judged by its mapping. All amounts
//! add up to the resident memory, except for changes between the two readings.
//!
//! The part of unmerged memory that has partners is an estimate for two reasons: only some pages
//! were read, and not all possible partners are indexed. For a sample the interval of Wilson is
//! used, with the correction for a finite number of pages; if only a part of the possible partners
//! is indexed, its upper end is raised in proportion.
//!
//! # Units
//! Pages; shares 0 to 1.
//!
//! # Source
//! E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.

use std::collections::BTreeMap;

use uksm_policy::command::PAGE_SIZE;

use super::estimate::{Estimate, estimate};
use super::mappings::{Mapping, MappingKind, Mappings};
use super::reasons::Reason;
use crate::status::evidence::{
    Evidence, PageKind, Partner, ProcessStanding, Region, RegionStanding, Terms,
};

/// Fewer pages outside all regions than this are a difference in time.
const MIN_UNCOVERED_PAGES: f64 = 16.0;

/// The amount of memory for a reason, and an example.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Amount {
    /// Pages.
    pub(crate) pages: f64,
    /// The place with most pages: `(start, end)`, and a name.
    pub(crate) example: Option<(u64, u64, String)>,
    /// Details of that region beyond the reason.
    pub(crate) details: Option<String>,
    most: f64,
}

/// The memory of a process.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Breakdown {
    /// In memory, of any kind.
    pub(crate) resident: f64,
    /// Own pages among these: only they could be merged.
    pub(crate) own: f64,
    /// In regions of which a page was read for a decision.
    pub(crate) looked_at: f64,
    /// In regions that were read in full.
    pub(crate) read_in_full: f64,
    /// Merged with frames.
    pub(crate) merged: f64,
    /// Merged with the zero page.
    pub(crate) zeros: f64,
    /// Share of merged pages that is written in a round, over regions in which that was observed.
    pub(crate) broken: f64,
    /// Regions that are left alone because of these writes.
    pub(crate) left_alone: u64,
    /// Unmerged pages that were read for this answer.
    pub(crate) read: f64,
    /// Estimate of all unmerged pages.
    pub(crate) unmerged: f64,
    /// Unmerged pages with partners; none where partners are not searched for.
    pub(crate) partners: Option<Estimate>,
    /// Unmerged memory by reason.
    pub(crate) reasons: BTreeMap<Reason, Amount>,
}

/// The reason for a whole process that is not followed.
pub(crate) fn of_process(evidence: &Evidence) -> Option<Reason> {
    Some(match evidence.place {
        ProcessStanding::Followed if evidence.fault.is_some() => Reason::NoAnswer,
        // Its mappings cannot be read either.
        ProcessStanding::Followed if evidence.locked_seconds.is_some() => Reason::HoldsLocks,
        ProcessStanding::Followed if !evidence.is_listed => Reason::NotListed,
        ProcessStanding::Followed | ProcessStanding::Gone | ProcessStanding::Ended => return None,
        ProcessStanding::Daemon => Reason::Daemon,
        ProcessStanding::KernelThread => Reason::KernelThread,
        ProcessStanding::NotAttached => Reason::NotAttached,
        ProcessStanding::Leaving => Reason::Leaving,
        ProcessStanding::Waiting => Reason::Waiting,
        ProcessStanding::NotChosen => Reason::NotChosen,
        ProcessStanding::Excluded => Reason::Excluded,
    })
}

/// Why a page of a region in this state is not merged; none for one that is merged, or not in
/// memory.
pub(crate) fn why(
    what: PageKind,
    partner: Partner,
    region: &Region,
    terms: &Terms,
) -> Option<Reason> {
    let is_huge = match what {
        PageKind::Frame | PageKind::Zero | PageKind::Nothing => return None,
        // Counted by its mapping.
        PageKind::File => return None,
        PageKind::Foreign => return Some(Reason::OtherDomain),
        PageKind::Orphan => return Some(Reason::EarlierDaemon),
        PageKind::Ksm => return Some(Reason::Ksm),
        PageKind::Swapped => return Some(Reason::Swapped),
        PageKind::Locked => return Some(Reason::Locked),
        PageKind::Pinned => return Some(Reason::Pinned),
        PageKind::Poisoned => return Some(Reason::Poisoned),
        PageKind::Refused => return Some(Reason::Refused),
        PageKind::Unclear => return Some(Reason::Unclear),
        PageKind::Own => false,
        PageKind::Huge => true,
    };
    match region.standing {
        RegionStanding::Young => return Some(Reason::TooYoung),
        RegionStanding::ShortLived => return Some(Reason::ShortLived),
        RegionStanding::Refused => return Some(Reason::Refused),
        RegionStanding::Lost => return Some(Reason::Gone),
        RegionStanding::CowBroken => return Some(Reason::WrittenTooFast),
        _ => {}
    }
    if terms.merge == "zero" && !matches!(partner, Partner::Zero | Partner::HugeAgain) {
        return Some(Reason::OnlyZeros);
    }
    match partner {
        Partner::Unknown => return Some(without_partner(region)),
        Partner::OwnOnly => return Some(Reason::OwnOnly),
        Partner::TooFew => return Some(Reason::TooFew),
        Partner::Zero | Partner::HugeAgain | Partner::Frame | Partner::Page => {}
    }
    let is_decided = region.read_in_full && region.standing != RegionStanding::Swept;
    Some(if is_huge && !terms.splits_huge_pages {
        Reason::HugeNever
    } else if is_huge && partner == Partner::HugeAgain {
        Reason::HugeAgain
    } else if is_huge && is_decided {
        Reason::HugeKept
    } else if terms.dry_run {
        Reason::DryRun
    } else if partner == Partner::Page && has_no_frames(terms) {
        Reason::NoFrames
    } else if region.standing == RegionStanding::OnTrial {
        Reason::OnTrial
    } else if region.busy_left_seconds.is_some() {
        Reason::Busy
    } else {
        Reason::Budget
    })
}

fn without_partner(region: &Region) -> Reason {
    match region.standing {
        RegionStanding::Unread => Reason::Unread,
        // It may be read again.
        _ if region.read_in_full => Reason::NothingEqual,
        RegionStanding::Swept => Reason::BeingRead,
        RegionStanding::OnTrial => Reason::OnTrial,
        _ => Reason::SampledOnly,
    }
}

/// Whether a page that needs a new frame can have none.
fn has_no_frames(terms: &Terms) -> bool {
    terms.no_frames_left_seconds.is_some() || terms.frames >= terms.most_frames
}

/// Sums over regions that [`Breakdown`] does not keep.
struct RegionSums {
    /// Unmerged pages with partners.
    partners: f64,
    /// Resident pages of each mapping that are in regions.
    in_regions: Vec<f64>,
    /// The merged ones of them.
    merged_in: Vec<f64>,
    /// Merged pages that are written in a round, over regions with merged pages.
    broken: f64,
    /// Merged pages of these regions.
    merged: f64,
}

impl Breakdown {
    /// Sorts the memory of a process that is followed.
    pub(crate) fn of(evidence: &Evidence, mappings: &Mappings) -> Breakdown {
        let mut breakdown = Breakdown::default();
        let mut sums = RegionSums {
            partners: 0.0,
            in_regions: vec![0.0; mappings.all.len()],
            merged_in: vec![0.0; mappings.all.len()],
            broken: 0.0,
            merged: 0.0,
        };
        let terms = evidence.terms.clone().unwrap_or_default();
        for region in &evidence.regions {
            breakdown.add_region(region, mappings, &terms, &mut sums);
        }
        if sums.merged > 0.0 {
            breakdown.broken = sums.broken / sums.merged;
        }
        breakdown.add_mappings(evidence, mappings, &sums);
        if mappings.all.is_empty() {
            breakdown.own = breakdown.unmerged + breakdown.merged;
        }
        if terms.merge != "zero" {
            let (unmerged, read) = (breakdown.unmerged, breakdown.read);
            breakdown.partners = Some(estimate(sums.partners, unmerged, read, terms.coverage));
        }
        breakdown
    }

    /// Adds the memory of a region.
    fn add_region(
        &mut self,
        region: &Region,
        mappings: &Mappings,
        terms: &Terms,
        sums: &mut RegionSums,
    ) {
        let at = mappings.all.partition_point(|m| m.end <= region.start);
        // Memory of a mapping that is no longer checked is counted by the mapping, except pages
        // merged before.
        let is_open = mappings.all.get(at).is_none_or(|mapping| {
            mapping.start > region.start || mapping.kind == MappingKind::Mergeable
        });
        let resident = self.add_pages(region, (mappings, at, is_open), terms, sums);
        let is_looked_at = !matches!(
            region.standing,
            RegionStanding::Young
                | RegionStanding::ShortLived
                | RegionStanding::Unread
                | RegionStanding::Lost
        );
        if is_looked_at && is_open {
            self.looked_at += resident;
        }
        if region.read_in_full {
            self.read_in_full += resident;
        }
        self.left_alone += u64::from(region.standing == RegionStanding::CowBroken);
        if region.merged > 0 {
            sums.broken += region.broken * region.merged as f64;
            sums.merged += region.merged as f64;
        }
        // A region can reach over several mappings of one kind.
        let mut left = resident;
        for (of, mapping) in sums.in_regions[at..].iter_mut().zip(&mappings.all[at..]) {
            if mapping.start >= region.end {
                break;
            }
            let taken = left.min((mapping.own as f64 - *of).max(0.0));
            *of += taken.max(f64::from(u8::from(mapping.own == 0)));
            left -= taken;
        }
    }

    /// Adds the pages of a region that begins in the mapping at this position, which is checked if
    /// `is_open`. Answers the resident ones.
    fn add_pages(
        &mut self,
        region: &Region,
        (mappings, at, is_open): (&Mappings, usize, bool),
        terms: &Terms,
        sums: &mut RegionSums,
    ) -> f64 {
        let all = (region.end - region.start) / PAGE_SIZE;
        // Each page that was read represents this number of pages.
        let each = all as f64 / (region.read.max(1)) as f64;
        let name = mappings.all.get(at).map_or("", |mapping| &mapping.name);
        let place = (region.start, region.end, name);
        let mut resident = 0.0;
        for sighting in &region.seen {
            let pages = sighting.pages as f64 * each;
            match sighting.what {
                PageKind::Frame => {
                    self.merged += pages;
                    if let Some(merged) = sums.merged_in.get_mut(at) {
                        *merged += pages;
                    }
                }
                _ if !is_open => {}
                PageKind::Zero => self.zeros += pages,
                PageKind::Own | PageKind::Huge => {
                    self.read += sighting.pages as f64;
                    self.unmerged += pages;
                    if sighting.partner != Partner::Unknown {
                        sums.partners += pages;
                    }
                }
                _ => {}
            }
            if !matches!(
                sighting.what,
                PageKind::Nothing | PageKind::Swapped | PageKind::File | PageKind::Zero
            ) {
                resident += pages;
            }
            let reason = why(sighting.what, sighting.partner, region, terms);
            if let Some(reason) = reason.filter(|_| is_open) {
                let details = reason.details(Some(region), terms);
                self.add(reason, pages, place, details);
            }
        }
        resident
    }

    /// Adds memory that is in no region.
    fn add_mappings(&mut self, evidence: &Evidence, mappings: &Mappings, sums: &RegionSums) {
        let counts = sums.in_regions.iter().zip(&sums.merged_in);
        for (mapping, (&in_regions, &merged)) in mappings.all.iter().zip(counts) {
            let (resident, own) = (mapping.resident as f64, mapping.own as f64);
            self.resident += resident;
            self.own += own;
            let place = (mapping.start, mapping.end, mapping.name.as_str());
            let whole = match mapping.kind {
                MappingKind::Mergeable => None,
                MappingKind::Shared => Some(Reason::Shared),
                MappingKind::Hugetlb => Some(Reason::Hugetlb),
                MappingKind::Device => Some(Reason::Device),
                MappingKind::Userfault => Some(Reason::Userfault),
                MappingKind::Special => Some(Reason::Special),
                MappingKind::ReadOnlyFile => Some(Reason::ReadOnlyFile),
                MappingKind::NoAccess => Some(Reason::NoAccess),
                MappingKind::LeftToKsm => Some(Reason::LeftToKsm),
            };
            match whole {
                None => {
                    self.add(Reason::FilePages, resident - own, place, None);
                    let left = own - in_regions;
                    if in_regions == 0.0 || left > MIN_UNCOVERED_PAGES.max(own / 8.0) {
                        let reason = uncovered(mapping, evidence, in_regions > 0.0);
                        if let Some(reason) = reason {
                            self.add(reason, left, place, None);
                        }
                    }
                }
                // Pages that are not the process's own are the file's.
                Some(reason @ (Reason::ReadOnlyFile | Reason::NoAccess | Reason::LeftToKsm)) => {
                    self.add(reason, own - merged, place, None);
                    self.add(Reason::FilePages, resident - own, place, None);
                }
                Some(reason) => self.add(reason, resident - merged, place, None),
            }
            if whole.is_some() {
                self.add(Reason::Swapped, mapping.swapped as f64, place, None);
            }
        }
    }

    /// Adds pages to a reason.
    fn add(
        &mut self,
        reason: Reason,
        pages: f64,
        (start, end, name): (u64, u64, &str),
        details: Option<String>,
    ) {
        if pages <= 0.0 {
            return;
        }
        let amount = self.reasons.entry(reason).or_default();
        amount.pages += pages;
        if pages > amount.most {
            amount.most = pages;
            amount.example = Some((start, end, name.to_owned()));
            amount.details = details;
        }
    }

    /// All memory of a process, for one reason.
    pub(crate) fn whole(reason: Reason, resident: f64, details: Option<String>) -> Breakdown {
        let amount = Amount {
            pages: resident,
            details,
            ..Amount::default()
        };
        Breakdown {
            resident,
            own: resident,
            reasons: BTreeMap::from([(reason, amount)]),
            ..Breakdown::default()
        }
    }

    /// Adds another process to a sum.
    pub(crate) fn plus(&mut self, other: &Breakdown, of: &str) {
        self.resident += other.resident;
        self.own += other.own;
        self.looked_at += other.looked_at;
        self.read_in_full += other.read_in_full;
        let merged = self.merged + other.merged;
        if merged > 0.0 {
            self.broken = (self.broken * self.merged + other.broken * other.merged) / merged;
        }
        self.merged = merged;
        self.zeros += other.zeros;
        self.left_alone += other.left_alone;
        self.read += other.read;
        self.unmerged += other.unmerged;
        // The sum claims no more than that each value is within its own interval.
        if let Some(partners) = other.partners {
            let sum = self.partners.get_or_insert_default();
            sum.pages += partners.pages;
            sum.low += partners.low;
            sum.high += partners.high;
        }
        for (&reason, amount) in &other.reasons {
            let sum = self.reasons.entry(reason).or_default();
            sum.pages += amount.pages;
            if amount.pages > sum.most {
                sum.most = amount.pages;
                sum.details.clone_from(&amount.details);
                let (start, end, name) = amount.example.clone().unwrap_or_default();
                sum.example = Some((start, end, format!("{of} {name}")));
            }
        }
    }

    /// The reasons, largest amount first.
    pub(crate) fn by_amount(&self) -> Vec<(Reason, &Amount)> {
        let reasons = self.reasons.iter();
        let mut reasons: Vec<_> = reasons.map(|(&reason, amount)| (reason, amount)).collect();
        reasons.sort_by(|a, b| b.1.pages.total_cmp(&a.1.pages));
        reasons
    }
}

/// Why mergeable memory is in no region.
fn uncovered(mapping: &Mapping, evidence: &Evidence, is_in_part: bool) -> Option<Reason> {
    let mut sparse = evidence.sparse.iter();
    let is_sparse = sparse.any(|range| range.start < mapping.end && mapping.start < range.end);
    if is_sparse {
        Some(Reason::Sparse)
    } else if evidence.left_out_pages > 0 || evidence.is_crowded {
        Some(Reason::LeftOut)
    } else if !is_in_part {
        Some(Reason::NewMapping)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
