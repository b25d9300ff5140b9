//! What is looked at: the last answer, what was saved before, and what keys have chosen.
//!
//! # Approach
//! Groups come and go between answers and change places in the list, so that the chosen one is known by its name. Nothing here knows of a
//! terminal's size.
//!
//! # Units
//! MiB.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::control::Answer;
use crate::status::Status;
use crate::status::groups::{GroupStatus, GroupsStatus};

/// As many answers back as a wide terminal has columns.
const LONGEST: usize = 512;

/// Lines of a page.
const PAGE: u16 = 10;

/// What a daemon answers when it is asked for its status.
#[derive(Debug, Clone)]
pub(super) enum Answered {
    /// One without groups.
    One(Box<Status>),
    /// One with groups.
    Groups(Box<GroupsStatus>),
}

impl Answered {
    /// Of a status.
    ///
    /// # Errors
    /// It is none: one line.
    pub(super) fn of(answer: Answer) -> Result<Answered, String> {
        match answer {
            Answer::Status(status) => Ok(Answered::One(status)),
            Answer::Groups(status) => Ok(Answered::Groups(status)),
            Answer::Error(line) => Err(line),
            Answer::Ksm(_) => Err("the daemon drives in-kernel KSM: see `uksm status`".to_owned()),
            _ => Err("the daemon answered another question".to_owned()),
        }
    }

    fn net_mib(&self) -> f64 {
        match self {
            Answered::One(status) => status.saved.net_mib,
            Answered::Groups(status) => status.net_mib,
        }
    }
}

/// What groups are in the order of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// What is saved, most first.
    Saved,
    /// CPU lately, most first.
    Cpu,
    /// The name.
    Name,
}

/// What was saved at each answer; none if there was no answer.
pub(super) type History = VecDeque<Option<f64>>;

/// All of it.
#[derive(Debug)]
pub(super) struct View {
    /// The last answer.
    pub(super) answered: Answered,
    /// Why there is no newer one.
    pub(super) fault: Option<String>,
    /// The order of groups.
    pub(super) sort: Sort,
    /// Whether all of the chosen group is shown.
    pub(super) is_open: bool,
    /// Lines that were scrolled past.
    pub(super) scrolled: u16,
    chosen: Option<String>,
    /// By group; of all together under the empty name.
    histories: BTreeMap<String, History>,
}

impl View {
    /// Of a first answer.
    pub(super) fn of(answered: Answered) -> View {
        let mut view = View {
            answered,
            fault: None,
            sort: Sort::Saved,
            is_open: false,
            scrolled: 0,
            chosen: None,
            histories: BTreeMap::new(),
        };
        view.remember(true);
        view
    }

    /// Takes what the daemon said, or why it said nothing.
    pub(super) fn take(&mut self, answer: Result<Answered, String>) {
        match answer {
            Ok(answered) => {
                self.answered = answered;
                self.fault = None;
                self.remember(true);
            }
            Err(line) => {
                self.fault = Some(line);
                self.remember(false);
            }
        }
    }

    fn remember(&mut self, is_new: bool) {
        let mut now = BTreeMap::from([(String::new(), Some(self.answered.net_mib()))]);
        if let Answered::Groups(status) = &self.answered {
            let saved = |group: &GroupStatus| {
                let status = group.status.as_ref();
                (
                    group.name.clone(),
                    status.map(|status| status.saved.net_mib),
                )
            };
            now.extend(status.groups.iter().map(saved));
        }
        // What is gone is forgotten.
        self.histories.retain(|name, _| now.contains_key(name));
        for (name, saved) in now {
            let history = self.histories.entry(name).or_default();
            history.push_back(saved.filter(|_| is_new));
            if history.len() > LONGEST {
                history.pop_front();
            }
        }
    }

    /// What was saved, of what is looked at.
    pub(super) fn history(&self) -> Option<&History> {
        let name = match self.open() {
            Some(group) => group.name.as_str(),
            None => "",
        };
        self.histories.get(name)
    }

    /// The groups in their order; none of a daemon without groups.
    pub(super) fn groups(&self) -> Vec<&GroupStatus> {
        let Answered::Groups(status) = &self.answered else {
            return Vec::new();
        };
        let figure = |group: &GroupStatus| {
            let status = group.status.as_ref()?;
            match self.sort {
                Sort::Saved => Some(status.saved.net_mib),
                Sort::Cpu => Some(status.cpu.policy.recent_share),
                Sort::Name => None,
            }
        };
        let mut groups: Vec<&GroupStatus> = status.groups.iter().collect();
        groups.sort_by(|one, other| {
            let least = f64::NEG_INFINITY;
            let (a, b) = (figure(one).unwrap_or(least), figure(other).unwrap_or(least));
            b.total_cmp(&a).then_with(|| one.name.cmp(&other.name))
        });
        groups
    }

    /// Where the chosen group is in the list: the first one, if none was chosen or it is gone.
    pub(super) fn chosen(&self) -> usize {
        let groups = self.groups();
        let is_it = |group: &&GroupStatus| Some(&group.name) == self.chosen.as_ref();
        groups.iter().position(is_it).unwrap_or(0)
    }

    /// The group of which all is shown.
    pub(super) fn open(&self) -> Option<&GroupStatus> {
        let groups = self.groups();
        groups.get(self.chosen()).copied().filter(|_| self.is_open)
    }

    /// All of the group that is shown, or of a daemon without groups, as `uksm status` prints it.
    pub(super) fn details(&self) -> Option<String> {
        match &self.answered {
            Answered::One(status) => Some(status.to_string()),
            Answered::Groups(_) => {
                let status = self.open()?.status.as_ref();
                Some(status.map_or_else(String::new, ToString::to_string))
            }
        }
    }

    /// Does what a key says; breaks at the end.
    pub(super) fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_interrupt => return ControlFlow::Break(()),
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('s') => self.sort = Sort::Saved,
            KeyCode::Char('c') => self.sort = Sort::Cpu,
            KeyCode::Char('n') => self.sort = Sort::Name,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-i32::from(PAGE)),
            KeyCode::PageDown => self.step(i32::from(PAGE)),
            KeyCode::Home => self.step(i32::MIN),
            KeyCode::Enter | KeyCode::Right if !self.is_open => {
                let groups = self.groups();
                let name = groups.get(self.chosen()).map(|group| group.name.clone());
                // It stays this one when the order changes.
                self.is_open = name.is_some();
                self.chosen = name;
                self.scrolled = 0;
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => {
                self.is_open = false;
                self.scrolled = 0;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Moves by so many groups, or lines if there is one thing to see only.
    fn step(&mut self, by: i32) {
        if let Some(text) = self.details() {
            let last = text.lines().count().saturating_sub(1);
            let last = i32::try_from(last).unwrap_or(i32::MAX);
            let scrolled = i32::from(self.scrolled).saturating_add(by).clamp(0, last);
            self.scrolled = u16::try_from(scrolled).unwrap_or(u16::MAX);
            return;
        }
        let groups = self.groups();
        let last = i32::try_from(groups.len()).unwrap_or(i32::MAX) - 1;
        let at = i32::try_from(self.chosen()).unwrap_or(0);
        let to = at.saturating_add(by).clamp(0, last.max(0));
        let to = usize::try_from(to).unwrap_or(0);
        self.chosen = groups.get(to).map(|group| group.name.clone());
    }
}
