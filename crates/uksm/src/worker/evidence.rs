//! A worker's answer to the question why memory of a process is not merged.
//!
//! # Problem
//! The engine remembers why it treats a region as it does, but not the state of each page: nothing
//! is kept for a rare question. And a question must not hold up merging.
//!
//! # Approach
//! Some pages of each region are read for the answer: their states, and hashes that are looked up
//! in the indexes, without an entry there. An answer takes one SAMPLE of at most [`MAX_PAGES`]
//! pages, so milliseconds, and a large process takes several answers, between which the worker
//! continues. The policy's budget is not charged.
//!
//! # Units
//! Pages.

use std::collections::{BTreeMap, BTreeSet};

use uksm_linux::discovery::Discovery;
use uksm_linux::domain::Domain;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::{self, Verb};
use uksm_linux::processes::ProcessState;
use uksm_policy::Engine;
use uksm_policy::command::{Lines, PAGE_SIZE, Page, PageFlags, PageState, Run, SpaceId};
use uksm_policy::params::{Contents, Thp};
use uksm_policy::report::{RegionReport, SpaceReport};

use super::locate::Locate;
use super::{Worker, most_frames};
use crate::control::{Answer, Request};
use crate::status::evidence::{
    Evidence, MAX_REGIONS, PageKind, Partner, ProcessStanding, Range, Region, Sighting, Terms,
    seconds,
};

/// Maximum number of pages that are read for one answer, as a SAMPLE allows.
const MAX_PAGES: u64 = 16_384;
/// Minimum number of pages read of each region, if it has them.
const MIN_PAGES: u64 = 32;

/// Evidence on a process that is not followed; none for a followed one.
pub(crate) fn unfollowed(state: ProcessState) -> Option<Evidence> {
    let place = match state {
        ProcessState::Followed(..) => return None,
        ProcessState::Failed(_, errno) => {
            let verb = Verb::Attach;
            let line = module::Error::Call { verb, errno }.to_string();
            return Some(Evidence::of(ProcessStanding::NotAttached, Some(line)));
        }
        ProcessState::Itself => ProcessStanding::Daemon,
        ProcessState::KernelThread => ProcessStanding::KernelThread,
        ProcessState::Ended => ProcessStanding::Ended,
        ProcessState::Leaving(_) => ProcessStanding::Leaving,
        ProcessState::Waiting => ProcessStanding::Waiting,
        ProcessState::NotChosen => ProcessStanding::NotChosen,
        ProcessState::Excluded => ProcessStanding::Excluded,
        ProcessState::Gone => ProcessStanding::Gone,
    };
    Some(Evidence::of(place, None))
}

impl<D: Domain, P: Discovery> Worker<D, P>
where
    LinuxMachine<D, P>: Locate,
{
    /// Answers [`Request::Explain`] and [`Request::ExplainSpace`].
    pub(super) fn explain(&mut self, request: &Request) -> module::Result<Answer> {
        let (space, from) = match *request {
            Request::ExplainSpace { space, from } => (SpaceId(space), from),
            Request::Explain { pid, from } => match self.host.locate(pid) {
                Ok(ProcessState::Followed(_, space)) => (space, from),
                Ok(other) => {
                    let evidence = unfollowed(other);
                    let evidence =
                        evidence.unwrap_or_else(|| Evidence::of(ProcessStanding::Waiting, None));
                    return Ok(Answer::Explained(Box::new(evidence)));
                }
                Err(line) => return Ok(Answer::Error(line)),
            },
            _ => {
                return Ok(Answer::Error(
                    "this request is not about a process".to_owned(),
                ));
            }
        };
        let evidence = match self.engine.explain_from(space, from, MAX_REGIONS) {
            Some(report) => self.evidence(&report)?,
            // It is attached, and the engine has not received it yet.
            None => Evidence {
                locked_seconds: self.host.held(space).map(seconds),
                terms: Some(self.terms()?),
                ..Evidence::of(ProcessStanding::Waiting, None)
            },
        };
        Ok(Answer::Explained(Box::new(evidence)))
    }

    fn evidence(&mut self, report: &SpaceReport) -> module::Result<Evidence> {
        let terms = self.terms()?;
        let seen = self.look(report)?;
        let regions = report.regions.iter().zip(seen);
        Ok(Evidence {
            terms: Some(terms),
            locked_seconds: self.host.held(report.space).map(seconds),
            is_listed: report.is_listed,
            regions: regions
                .map(|(region, seen)| Region::of(region, seen))
                .collect(),
            sparse: report
                .sparse
                .iter()
                .map(|&(start, end)| Range { start, end })
                .collect(),
            left_out_pages: report.left_out_pages,
            is_crowded: report.is_crowded,
            next: report.next,
            ..Evidence::of(ProcessStanding::Followed, None)
        })
    }

    fn terms(&self) -> module::Result<Terms> {
        let info = self.host.info()?;
        let params = self.engine.params();
        let now = self.engine.circumstances();
        let cpu = self.engine.cpu();
        Ok(Terms {
            cpu: cpu.budget_share,
            cpu_recent: cpu.recent_share,
            round_seconds: seconds(now.round),
            v_dup: params.v_dup,
            v_cow: params.v_cow,
            v_life_seconds: seconds(params.v_life),
            splits_huge_pages: params.thp == Thp::Profit,
            thp_share: params.thp_share,
            locked: params.locked,
            merge: params.merge.name().to_owned(),
            spaces_needed: params.spaces_needed().into(),
            dry_run: self.host.is_dry(),
            frames: info.frames,
            most_frames: most_frames(&info),
            no_frames_left_seconds: now.no_frames_left.map(seconds),
            coverage: now.coverage,
        })
    }

    /// Reads some pages of each region, and answers their states. Empty, if there is no memory for
    /// the call.
    fn look(&mut self, report: &SpaceReport) -> module::Result<Vec<Vec<Sighting>>> {
        let runs = runs(report.space, &report.regions);
        let lines = Lines {
            from: 0,
            to: self.engine.circumstances().lines,
        };
        let mut pages = Vec::new();
        if !runs.is_empty() {
            match self.host.domain_mut().sample(&runs, lines, &mut pages) {
                Err(error) if !error.is_short() => return Err(error),
                // Pages that were answered before count.
                _ => {}
            }
        }
        let twins = Twins::among(&pages, &self.engine);
        let mut rest = pages.as_slice();
        let seen = runs.iter().map(|run| {
            let (of_region, others) = rest.split_at((run.count as usize).min(rest.len()));
            rest = others;
            sightings(&self.engine, run, of_region, &twins)
        });
        Ok(seen.collect())
    }
}

/// The pages of the regions to read, a run for each: all, or evenly spread ones. Strides are odd,
/// so that a pattern of huge pages is not met at one place only.
fn runs(space: SpaceId, regions: &[RegionReport]) -> Vec<Run> {
    let pages = |region: &RegionReport| (region.end - region.start) / PAGE_SIZE;
    let total: u64 = regions.iter().map(pages).sum();
    let sure = MIN_PAGES * regions.len() as u64;
    let run = |region: &RegionReport| {
        let pages = pages(region);
        let part = match total <= MAX_PAGES {
            true => pages,
            false => pages * (MAX_PAGES - sure.min(MAX_PAGES)) / total + MIN_PAGES,
        };
        let stride = match pages.div_ceil(part.max(1)) {
            0 | 1 => 1,
            stride => stride | 1,
        };
        Run {
            start: region.start,
            space,
            count: u32::try_from(pages.div_ceil(stride)).unwrap_or(u32::MAX),
            stride: u32::try_from(stride).unwrap_or(u32::MAX),
        }
    };
    regions.iter().map(run).collect()
}

/// Hashes that several pages of one process have. Only one of equal pages is in the index: no other
/// page is found there for it.
struct Twins {
    hashes: BTreeSet<u64>,
    /// Possible partner of such a page.
    partner: Partner,
}

impl Twins {
    /// Hashes of equal pages among pages that were read together.
    fn among(pages: &[Page], engine: &Engine) -> Twins {
        let params = engine.params();
        let (mut once, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for page in pages.iter().filter(|page| page.state == PageState::Anon) {
            if !once.insert(page.hash) && !engine.collides(page.hash) {
                hashes.insert(page.hash);
            }
        }
        let partner = match params.merge {
            Contents::Zero => Partner::Unknown,
            Contents::Between => Partner::OwnOnly,
            Contents::All if params.spaces_needed() > 1 => Partner::TooFew,
            Contents::All => Partner::Page,
        };
        Twins { hashes, partner }
    }
}

/// The states of these pages of a run.
fn sightings(engine: &Engine, run: &Run, pages: &[Page], twins: &Twins) -> Vec<Sighting> {
    let address = |at: usize| run.start + at as u64 * u64::from(run.stride) * PAGE_SIZE;
    let seen = pages.iter().map(|page| seen(page, engine.params().locked));
    let seen: Vec<PageKind> = seen.collect();
    let is_asked = |what: PageKind| matches!(what, PageKind::Own | PageKind::Huge);
    let asked: Vec<(u64, u64)> = (0..pages.len())
        .filter(|&at| is_asked(seen[at]))
        .map(|at| (address(at), pages[at].hash))
        .collect();
    let mut known = engine.partners(run.space, &asked).into_iter();
    let mut counts: BTreeMap<(PageKind, Partner), u64> = BTreeMap::new();
    for (what, page) in seen.into_iter().zip(pages) {
        let partner = match is_asked(what) {
            true => match known.next().flatten().map(Partner::from) {
                None | Some(Partner::Unknown) if twins.hashes.contains(&page.hash) => twins.partner,
                None => Partner::Unknown,
                Some(partner) => partner,
            },
            false => Partner::Unknown,
        };
        *counts.entry((what, partner)).or_default() += 1;
    }
    let counts = counts.into_iter();
    counts
        .map(|((what, partner), pages)| Sighting {
            what,
            partner,
            pages,
        })
        .collect()
}

fn seen(page: &Page, merges_locked: bool) -> PageKind {
    match page.state {
        PageState::Anon if page.flags.any(PageFlags::LOCKED) && !merges_locked => PageKind::Locked,
        PageState::Anon if page.flags.any(PageFlags::PINNED) => PageKind::Pinned,
        PageState::Anon if page.flags.any(PageFlags::HUGE) => PageKind::Huge,
        PageState::Anon => PageKind::Own,
        PageState::Frame => PageKind::Frame,
        PageState::Zero => PageKind::Zero,
        PageState::Foreign => PageKind::Foreign,
        PageState::Orphan => PageKind::Orphan,
        PageState::Ksm => PageKind::Ksm,
        PageState::Swap => PageKind::Swapped,
        PageState::None => PageKind::Nothing,
        PageState::Other => PageKind::File,
        PageState::Poisoned => PageKind::Poisoned,
        PageState::Refused => PageKind::Refused,
        PageState::Unmapped | PageState::Dead | PageState::Retry => PageKind::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::report::Standing;

    fn region(start: u64, pages: u64) -> RegionReport {
        RegionReport {
            start: start * PAGE_SIZE,
            end: (start + pages) * PAGE_SIZE,
            level: 1,
            standing: Standing::Sparse,
            left: None,
            age: 0,
            resident: pages,
            merged: 0,
            read_in_full: false,
            sampled: 0,
            hits: 0,
            duplicates: 0.0,
            broken: 0.0,
            strikes: 0,
            busy: 0,
            busy_left: None,
            huge_again_left: None,
        }
    }

    #[test]
    fn small_regions_are_read_whole_and_large_ones_evenly_within_one_call() {
        let few = runs(SpaceId(1), &[region(1, 3), region(8, 512)]);
        let shape = |runs: &[Run]| -> Vec<(u32, u32)> {
            runs.iter().map(|run| (run.count, run.stride)).collect()
        };
        assert_eq!(shape(&few), [(3, 1), (512, 1)]);
        let many: Vec<RegionReport> = (0..MAX_REGIONS as u64)
            .map(|number| region(number * 100_000, if number < 40 { 16_384 } else { 5 }))
            .collect();
        let many = runs(SpaceId(1), &many);
        let pages: u64 = many.iter().map(|run| u64::from(run.count)).sum();
        assert!(pages <= MAX_PAGES && pages > MAX_PAGES / 4, "{pages}");
        for (at, run) in many.iter().enumerate() {
            let last = u64::from(run.count - 1) * u64::from(run.stride);
            let size = if at < 40 { 16_384 } else { 5 };
            assert!(
                last < size && last + u64::from(run.stride) >= size,
                "{run:?}"
            );
            assert_eq!(run.stride % 2, 1, "{run:?}");
        }
    }

    #[test]
    fn equal_pages_of_one_process_are_found_though_one_is_indexed() {
        use uksm_policy::params::{Governor, Params};
        let page = |hash, state| Page {
            hash,
            frame: 0,
            state,
            flags: PageFlags(0),
        };
        let anon = |hash| page(hash, PageState::Anon);
        let pages = [
            anon(1),
            anon(2),
            anon(1),
            page(2, PageState::Frame),
            anon(3),
        ];
        for (merge, least_spaces, partner) in [
            (Contents::All, 1, Partner::Page),
            (Contents::All, 2, Partner::TooFew),
            (Contents::Between, 1, Partner::OwnOnly),
            (Contents::Zero, 1, Partner::Unknown),
        ] {
            let params = Params {
                merge,
                merge_spaces: least_spaces,
                ..Params::governor(Governor::Full)
            };
            let engine = Engine::new(params, 1).unwrap();
            let twins = Twins::among(&pages, &engine);
            assert_eq!(twins.hashes, BTreeSet::from([1]));
            let run = Run {
                start: 0,
                space: SpaceId(1),
                count: 5,
                stride: 1,
            };
            let seen = sightings(&engine, &run, &pages, &twins);
            let own = |partner| {
                let found = seen
                    .iter()
                    .find(|s| s.what == PageKind::Own && s.partner == partner);
                found.map_or(0, |sighting| sighting.pages)
            };
            if partner == Partner::Unknown {
                assert_eq!(own(partner), 4);
            } else {
                assert_eq!((own(partner), own(Partner::Unknown)), (2, 2), "{merge:?}");
            }
        }
    }

    #[test]
    fn reason_against_merging_comes_before_the_kind_of_page() {
        let page = |state, flags| Page {
            hash: 0,
            frame: 0,
            state,
            flags,
        };
        let anon = |flags| page(PageState::Anon, flags);
        let all = PageFlags(PageFlags::LOCKED | PageFlags::PINNED | PageFlags::HUGE);
        assert_eq!(seen(&anon(all), false), PageKind::Locked);
        assert_eq!(seen(&anon(all), true), PageKind::Pinned);
        assert_eq!(
            seen(&anon(PageFlags(PageFlags::HUGE)), false),
            PageKind::Huge
        );
        assert_eq!(seen(&anon(PageFlags(0)), false), PageKind::Own);
        assert_eq!(seen(&page(PageState::Zero, all), false), PageKind::Zero);
        assert_eq!(
            seen(&page(PageState::Dead, PageFlags(0)), false),
            PageKind::Unclear
        );
    }
}
