//! The number of pages that were merged, and that their processes wrote or unmapped since.
//!
//! # Problem
//! No hook reports a write to a merged page. A page that is read again shows it, but that can take
//! hours; a listing of frames shows that mappings are gone, but neither whose nor why.
//!
//! # Approach
//! Both are used, and no page counts twice. A page that is read and no longer merged counts at
//! once. Mappings that a listing misses count when the next listing ends, unless a cause is known
//! by then: they were read already, were given back, or their process ended. The engine still
//! believes these pages merged (*unplaced*), so that many do not count when they are read.
//!
//! Mappings that appear without a merge (*untracked*) are those of forked processes, or of an
//! earlier engine; as many may go without being counted. A page of them that is found merged is
//! tracked from then on.
//!
//! So the count is late by two listings at most, and a lower bound: it lacks writes to the zero
//! page and to pages of forked processes that were not read in between. It cannot distinguish a
//! write from `munmap` or `MADV_DONTNEED`.
//!
//! # Units
//! Pages, each mapped once.

/// The count.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteCount {
    written: u64,
    /// Of these, pages that the engine still believes merged.
    unplaced: u64,
    untracked: i64,
    /// Mappings known to be gone that no listing has missed, and those of them that went before
    /// the listing under way.
    gone: u64,
    gone_before: u64,
    /// Mappings that listings have missed, without a known cause: this listing, and the last one.
    missed: u64,
    missed_before: u64,
}

impl WriteCount {
    /// The count. It never falls.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// A page was read that is no longer merged; the engine believes `merged` pages merged, this
    /// one included.
    pub(crate) fn found_written(&mut self, merged: u64) {
        self.unplaced = self.unplaced.min(merged);
        if self.unplaced > 0 {
            self.unplaced -= 1;
            return;
        }
        self.written += 1;
        self.explain(1);
    }

    /// The cause is known for which `pages` mappings are gone.
    pub(crate) fn explain(&mut self, pages: u64) {
        let before = pages.min(self.missed_before);
        self.missed_before -= before;
        let now = (pages - before).min(self.missed);
        self.missed -= now;
        self.gone += pages - before - now;
    }

    /// A page that the engine did not merge was found to map a frame.
    pub(crate) fn found_merged(&mut self) {
        self.untracked -= 1;
    }

    /// A piece of a listing, from one cursor to the next, found `now` mappings instead of `before`.
    pub(super) fn listed(&mut self, before: u64, now: u64, (from, to): (u32, u32)) {
        if from == 0 {
            self.gone_before = self.gone;
        }
        self.recount(before, now);
        if to == 0 {
            self.end_listing();
        }
    }

    /// Frames have `now` mappings instead of `before`, for another reason than a merge.
    pub(super) fn recount(&mut self, before: u64, now: u64) {
        let Some(missed) = before.checked_sub(now) else {
            let more = i64::try_from(now - before).unwrap_or(i64::MAX);
            self.untracked = self.untracked.saturating_add(more);
            return;
        };
        let explained = missed.min(self.gone);
        self.gone -= explained;
        self.gone_before = self.gone_before.saturating_sub(explained);
        let untracked = u64::try_from(self.untracked).unwrap_or(0);
        let forked = (missed - explained).min(untracked);
        self.untracked -= i64::try_from(forked).unwrap_or(i64::MAX);
        self.missed += missed - explained - forked;
    }

    /// A listing is complete.
    fn end_listing(&mut self) {
        // It should have missed these: they were missed before, or map the zero page.
        self.gone -= std::mem::take(&mut self.gone_before);
        self.untracked = self.untracked.max(0);
        self.written += self.missed_before;
        self.unplaced += self.missed_before;
        self.missed_before = std::mem::take(&mut self.missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page of a frame: whether it is mapped, and whether the engine believes that it is.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum ModelPage {
        Merged,
        Written,
        /// Not merged, and known not to be.
        Plain,
    }

    /// Pages of processes, the count, and what it should be.
    struct Model {
        count: WriteCount,
        processes: [Vec<ModelPage>; 4],
        listed: u64,
        written: u64,
    }

    impl Model {
        fn new() -> Model {
            Model {
                count: WriteCount::default(),
                processes: std::array::from_fn(|_| vec![ModelPage::Plain; 16]),
                listed: 0,
                written: 0,
            }
        }

        fn believed(&self) -> u64 {
            let pages = self.processes.iter().flatten();
            pages.filter(|&&page| page != ModelPage::Plain).count() as u64
        }

        fn merge(&mut self, process: usize, page: usize) {
            let page = &mut self.processes[process][page];
            if *page == ModelPage::Plain {
                *page = ModelPage::Merged;
                self.listed += 1;
            }
        }

        fn write(&mut self, process: usize, page: usize) {
            let page = &mut self.processes[process][page];
            if *page == ModelPage::Merged {
                *page = ModelPage::Written;
                self.written += 1;
            }
        }

        fn read(&mut self, process: usize, page: usize) {
            if self.processes[process][page] == ModelPage::Written {
                self.count.found_written(self.believed());
                self.processes[process][page] = ModelPage::Plain;
            }
        }

        /// The engine believes of written pages, too, that they end with their process.
        fn exit(&mut self, process: usize) {
            let pages = std::mem::replace(&mut self.processes[process], vec![ModelPage::Plain; 16]);
            let believed = pages.iter().filter(|&&page| page != ModelPage::Plain);
            self.count.explain(believed.count() as u64);
        }

        fn list(&mut self) {
            let pages = self.processes.iter().flatten();
            let mapped = pages.filter(|&&page| page == ModelPage::Merged).count() as u64;
            self.count.listed(self.listed, mapped, (0, 0));
            self.listed = mapped;
        }

        /// A few steps; processes end only if `exits`.
        fn step(&mut self, (kind, process, page): (u8, usize, usize), exits: bool) {
            match kind {
                0..3 => self.merge(process, page),
                3..5 => self.write(process, page),
                5..7 => self.read(process, page),
                7 if exits => self.exit(process),
                _ => self.list(),
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
        prop::collection::vec((0..9_u8, 0..4_usize, 0..16_usize), 0..400)
    }

    proptest! {
        /// However pages are written, read and listed.
        #[test]
        fn each_written_page_counts_once(steps in steps()) {
            let mut model = Model::new();
            for step in steps {
                let before = model.count.written();
                model.step(step, false);
                let counted = model.count.written();
                prop_assert!(counted >= before && counted <= model.written);
            }
            (0..2).for_each(|_| model.list());
            prop_assert_eq!(model.count.written(), model.written);
        }

        /// Written pages of processes that end may be missing.
        #[test]
        fn the_end_of_a_process_is_no_write(steps in steps()) {
            let mut model = Model::new();
            for step in steps {
                model.step(step, true);
                prop_assert!(model.count.written() <= model.written);
            }
        }

        /// All mappings that a fork adds go again.
        #[test]
        fn the_end_of_a_forked_process_is_no_write(
            merged in 0..100_u64, forked in 1..100_u64, read in 0..100_u64, written in 0..100_u64,
        ) {
            let (read, written) = (read.min(forked), written.min(merged));
            let mut count = WriteCount::default();
            count.listed(merged, merged + forked, (0, 0));
            (0..read).for_each(|_| count.found_merged());
            // It ends, and pages of its parent are written.
            count.explain(read);
            count.listed(merged + forked, merged - written, (0, 0));
            count.listed(merged - written, merged - written, (0, 0));
            prop_assert_eq!(count.written(), written);
        }
    }

    #[test]
    fn a_process_whose_end_is_noticed_after_the_listing_has_written_nothing() {
        let mut model = Model::new();
        (0..16).for_each(|page| model.merge(1, page));
        let ended = std::mem::replace(&mut model.processes[1], vec![ModelPage::Plain; 16]);
        model.list();
        model.count.explain(ended.len() as u64);
        (0..3).for_each(|_| model.list());
        assert_eq!(model.count.written(), 0);
    }

    #[test]
    fn a_page_that_was_merged_by_an_earlier_engine_counts_once_it_was_found() {
        let mut count = WriteCount::default();
        let mut list = |before, now, found| {
            (0..found).for_each(|_| count.found_merged());
            count.listed(before, now, (0, 0));
            count.written()
        };
        list(0, 100, 0);
        assert_eq!(list(100, 90, 60), 0);
        // 30 mappings are unknown: these may have gone.
        assert_eq!(list(90, 50, 0), 0);
        assert_eq!(list(50, 50, 0), 10);
    }
}
