//! What is looked at: the last answers, what was saved before, and what keys have chosen.
//!
//! # Approach
//! One thing is looked at: the groups, the processes of a daemon or of a group, why a process
//! stands as it does, or a status in full; each is opened from the one before and closed to it.
//! Groups and processes come and go between answers and change places in the lists, so that the
//! chosen one is known by its name or id. What keys ask of the daemon is kept as [`Wish`]es until
//! somebody takes them. Nothing here knows of a terminal's size.
//!
//! # Units
//! MiB.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::asking::{Answered, Said, Whose, Wish};
use super::list::{List, Row, Sort};
use crate::status::Status;
use crate::status::groups::GroupStatus;

/// As many answers back as a wide terminal has columns.
const LONGEST: usize = 512;

/// Lines of a page.
const PAGE: u16 = 10;

/// What was saved at each answer; none if there was no answer.
pub(super) type History = VecDeque<Option<f64>>;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// The list of groups.
    Groups,
    /// The list of processes.
    Processes,
    /// What is explained of a process.
    Explained,
    /// The status, as `uksm status` prints it.
    Status,
}

/// A process that is explained.
#[derive(Debug)]
pub(super) struct Explained {
    /// Its id.
    pub(super) pid: u32,
    /// Name of its program.
    pub(super) comm: String,
    /// Whether an answer is waited for.
    pub(super) is_asked: bool,
    /// The last answer, or why there is none.
    pub(super) text: Option<Result<String, String>>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct View {
    /// The last status.
    pub(super) answered: Answered,
    /// Why there is no newer one.
    pub(super) fault: Option<String>,
    /// The order of lists.
    pub(super) sort: Sort,
    /// Lines that were scrolled past.
    pub(super) scrolled: u16,
    /// The processes that are looked at.
    pub(super) processes: List,
    /// The process that is explained.
    pub(super) explained: Option<Explained>,
    is_status: bool,
    open: Option<String>,
    chosen_group: Option<String>,
    chosen_process: Option<u32>,
    wishes: Vec<Wish>,
    /// By group; of all together under the empty name.
    histories: BTreeMap<String, History>,
}

impl View {
    /// Of a first answer.
    pub(super) fn of(answered: Answered) -> View {
        let whose = match answered {
            Answered::One(_) => Whose::Daemon,
            Answered::Groups(_) => Whose::Nobody,
        };
        let mut view = View {
            answered,
            fault: None,
            sort: Sort::Saved,
            scrolled: 0,
            processes: List::of(whose.clone()),
            explained: None,
            is_status: false,
            open: None,
            chosen_group: None,
            chosen_process: None,
            wishes: vec![Wish::Follow(whose)],
            histories: BTreeMap::new(),
        };
        view.remember(true);
        view
    }

    /// Takes what the daemon said, or why it said nothing.
    pub(super) fn take(&mut self, said: Said) {
        match said {
            Said::Status(Ok(answered)) => {
                self.answered = answered;
                self.fault = None;
                self.remember(true);
                self.keep_to_what_is_there();
            }
            Said::Status(Err(line)) => {
                self.fault = Some(line);
                self.remember(false);
            }
            // What was asked before another was opened is passed over.
            Said::Processes(whose, answer) if whose == self.processes.whose => {
                self.processes.take(answer);
            }
            Said::Explained(pid, text) => {
                if let Some(explained) = self.explained.as_mut().filter(|it| it.pid == pid) {
                    explained.is_asked = false;
                    explained.text = Some(text);
                }
            }
            Said::Processes(..) => {}
        }
    }

    /// What the daemon is to be asked because of keys, each once.
    pub(super) fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
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

    /// A group that is gone is not looked at any more; and another daemon may have groups, or none.
    fn keep_to_what_is_there(&mut self) {
        let has_groups = matches!(self.answered, Answered::Groups(_));
        let is_there = match &self.processes.whose {
            Whose::Daemon => !has_groups,
            Whose::Nobody => has_groups,
            Whose::Group(_) => self.open().is_some(),
        };
        if !is_there {
            self.follow(match has_groups {
                true => Whose::Nobody,
                false => Whose::Daemon,
            });
        }
    }

    /// Looks at these processes from now on.
    fn follow(&mut self, whose: Whose) {
        self.open = match &whose {
            Whose::Group(name) => Some(name.clone()),
            _ => None,
        };
        self.wishes.push(Wish::Follow(whose.clone()));
        self.processes = List::of(whose);
        (self.explained, self.chosen_process) = (None, None);
        (self.is_status, self.scrolled) = (false, 0);
    }

    /// What is looked at.
    pub(super) fn page(&self) -> Page {
        if self.is_status {
            Page::Status
        } else if self.explained.is_some() {
            Page::Explained
        } else if self.processes.whose == Whose::Nobody {
            Page::Groups
        } else {
            Page::Processes
        }
    }

    /// What was saved, of what is looked at.
    pub(super) fn history(&self) -> Option<&History> {
        self.histories.get(self.open.as_deref().unwrap_or(""))
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
                Sort::Potential => Some(status.merged.duplicates.left as f64),
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

    /// The processes in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        self.processes.sorted(self.sort)
    }

    /// Where the chosen one is in the list that is looked at: the first one, if none was chosen or
    /// it is gone.
    pub(super) fn chosen(&self) -> usize {
        let at = match self.page() {
            Page::Groups => {
                let is_it = |group: &&GroupStatus| Some(&group.name) == self.chosen_group.as_ref();
                self.groups().iter().position(is_it)
            }
            _ => {
                let is_it = |row: &&Row| Some(row.process.pid) == self.chosen_process;
                self.rows().iter().position(is_it)
            }
        };
        at.unwrap_or(0)
    }

    /// The group that is open.
    pub(super) fn open(&self) -> Option<&GroupStatus> {
        let Answered::Groups(status) = &self.answered else {
            return None;
        };
        let name = self.open.as_ref()?;
        status.groups.iter().find(|group| group.name == *name)
    }

    /// The status of the daemon without groups, or of the group that is open.
    pub(super) fn status(&self) -> Option<&Status> {
        match &self.answered {
            Answered::One(status) => Some(status),
            Answered::Groups(_) => self.open()?.status.as_deref(),
        }
    }

    /// The text that is looked at, if it is one: a status as `uksm status` prints it, or what `uksm
    /// explain` says.
    pub(super) fn text(&self) -> Option<String> {
        match self.page() {
            Page::Groups | Page::Processes => None,
            Page::Status => Some(match (&self.answered, self.open()) {
                (Answered::Groups(status), None) => status.to_string(),
                _ => self.status().map_or_else(String::new, ToString::to_string),
            }),
            Page::Explained => {
                let explained = self.explained.as_ref()?;
                Some(match &explained.text {
                    None => String::new(),
                    Some(Ok(text)) => text.clone(),
                    Some(Err(line)) => format!("{}: {line}", explained.pid),
                })
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
            KeyCode::Char('p') => self.sort = Sort::Potential,
            KeyCode::Char('c') => self.sort = Sort::Cpu,
            KeyCode::Char('n') => self.sort = Sort::Name,
            KeyCode::Char('t') => (self.is_status, self.scrolled) = (!self.is_status, 0),
            KeyCode::Char('r') if self.page() == Page::Explained => self.ask_again(),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-i32::from(PAGE)),
            KeyCode::PageDown => self.step(i32::from(PAGE)),
            KeyCode::Home => self.step(i32::MIN),
            KeyCode::End => self.step(i32::MAX),
            KeyCode::Enter | KeyCode::Right => self.enter(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.leave(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Opens what is chosen.
    fn enter(&mut self) {
        match self.page() {
            Page::Groups => {
                let groups = self.groups();
                let name = groups.get(self.chosen()).map(|group| group.name.clone());
                if let Some(name) = name {
                    // It stays this one when the order changes.
                    self.chosen_group = Some(name.clone());
                    self.follow(Whose::Group(name));
                }
            }
            Page::Processes => {
                let rows = self.rows();
                let process = rows.get(self.chosen()).map(|row| row.process.clone());
                if let Some(process) = process {
                    self.chosen_process = Some(process.pid);
                    self.explained = Some(Explained {
                        pid: process.pid,
                        comm: process.comm,
                        is_asked: false,
                        text: None,
                    });
                    self.scrolled = 0;
                    self.ask_again();
                }
            }
            Page::Explained | Page::Status => {}
        }
    }

    /// Closes it.
    fn leave(&mut self) {
        match self.page() {
            Page::Status => self.is_status = false,
            Page::Explained => self.explained = None,
            Page::Processes if self.open.is_some() => self.follow(Whose::Nobody),
            Page::Groups | Page::Processes => {}
        }
        self.scrolled = 0;
    }

    /// Has the process that is looked at explained, unless that is under way.
    fn ask_again(&mut self) {
        if let Some(explained) = self.explained.as_mut().filter(|it| !it.is_asked) {
            explained.is_asked = true;
            self.wishes.push(Wish::Explain(explained.pid));
        }
    }

    /// Moves by so many lines of a list or of a text.
    fn step(&mut self, by: i32) {
        let lines = match self.page() {
            Page::Groups => self.groups().len(),
            Page::Processes => self.rows().len(),
            Page::Explained | Page::Status => self.text().map_or(0, |text| text.lines().count()),
        };
        let last = i32::try_from(lines).unwrap_or(i32::MAX).saturating_sub(1);
        let moved = |from: i32| from.saturating_add(by).clamp(0, last.max(0));
        let from_list = |at: usize| {
            let to = moved(i32::try_from(at).unwrap_or(0));
            usize::try_from(to).unwrap_or(0)
        };
        match self.page() {
            Page::Groups => {
                let to = from_list(self.chosen());
                self.chosen_group = self.groups().get(to).map(|group| group.name.clone());
            }
            Page::Processes => {
                let to = from_list(self.chosen());
                self.chosen_process = self.rows().get(to).map(|row| row.process.pid);
            }
            Page::Explained | Page::Status => {
                let to = moved(i32::from(self.scrolled));
                self.scrolled = u16::try_from(to).unwrap_or(u16::MAX);
            }
        }
    }
}
