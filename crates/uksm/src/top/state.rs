//! The state of `uksm top`: the last answers, the history of savings, and the choices made by keys.
//!
//! # Approach
//! One page is shown: the groups, the processes of a daemon or of a group, the explanation of a
//! process, or a status in full; each is opened from the one before and closed to it. Groups and
//! processes come and go between answers and change places in the lists, so the chosen one is kept
//! by its name or id. Requests to the daemon because of keys are kept as [`PollerRequest`]es until
//! they are taken. Nothing here depends on a terminal's size.
//!
//! # Units
//! MiB.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::list::{List, ProcessRow, Sort};
use super::poller::{PollerAnswer, PollerRequest, StatusAnswer, Whose};
use crate::status::Status;
use crate::status::groups::GroupStatus;

/// Answers kept: as many as a wide terminal has columns.
const MAX_HISTORY: usize = 512;

/// Lines of a page.
const PAGE: u16 = 10;

/// MiB saved at each answer; none for a missing answer.
pub(super) type History = VecDeque<Option<f64>>;

/// The page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// The list of groups.
    Groups,
    /// The list of processes.
    Processes,
    /// The explanation of a process.
    Explained,
    /// The status, as `uksm status` prints it.
    Status,
}

/// A process that is explained.
#[derive(Debug)]
pub(super) struct ProcessExplanation {
    /// Its id.
    pub(super) pid: u32,
    /// Name of its program.
    pub(super) comm: String,
    /// Whether an answer is missing.
    pub(super) is_asked: bool,
    /// The last answer, or why there is none.
    pub(super) text: Option<Result<String, String>>,
}

/// The state of the program.
#[derive(Debug)]
pub(super) struct ScreenState {
    /// The last status.
    pub(super) answered: StatusAnswer,
    /// Why there is no newer status.
    pub(super) fault: Option<String>,
    /// The order of lists.
    pub(super) sort: Sort,
    /// Number of lines scrolled past.
    pub(super) scrolled: u16,
    /// The list of processes.
    pub(super) processes: List,
    /// The process that is explained.
    pub(super) explained: Option<ProcessExplanation>,
    is_status: bool,
    open: Option<String>,
    chosen_group: Option<String>,
    chosen_process: Option<u32>,
    wishes: Vec<PollerRequest>,
    /// By group; the sum of all under the empty name.
    histories: BTreeMap<String, History>,
}

impl ScreenState {
    /// The state after a first answer.
    pub(super) fn of(answered: StatusAnswer) -> ScreenState {
        let whose = match answered {
            StatusAnswer::One(_) => Whose::Daemon,
            StatusAnswer::Groups(_) => Whose::Nobody,
        };
        let mut state = ScreenState {
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
            wishes: vec![PollerRequest::Follow(whose)],
            histories: BTreeMap::new(),
        };
        state.remember(true);
        state
    }

    /// Takes an answer of the daemon, or why there is none.
    pub(super) fn take(&mut self, answer: PollerAnswer) {
        match answer {
            PollerAnswer::Status(Ok(answered)) => {
                self.answered = answered;
                self.fault = None;
                self.remember(true);
                self.keep_to_what_is_there();
            }
            PollerAnswer::Status(Err(line)) => {
                self.fault = Some(line);
                self.remember(false);
            }
            // Answers for a list that is no longer open are dropped.
            PollerAnswer::Processes(whose, answer) if whose == self.processes.whose => {
                self.processes.take(answer);
            }
            PollerAnswer::Explained(pid, text) => {
                if let Some(explained) = self.explained.as_mut().filter(|it| it.pid == pid) {
                    explained.is_asked = false;
                    explained.text = Some(text);
                }
            }
            PollerAnswer::Processes(..) => {}
        }
    }

    /// Requests to the daemon because of keys, each once.
    pub(super) fn take_wishes(&mut self) -> Vec<PollerRequest> {
        std::mem::take(&mut self.wishes)
    }

    fn remember(&mut self, is_new: bool) {
        let mut now = BTreeMap::from([(String::new(), Some(self.answered.net_mib()))]);
        if let StatusAnswer::Groups(status) = &self.answered {
            let saved = |group: &GroupStatus| {
                let status = group.status.as_ref();
                (
                    group.name.clone(),
                    status.map(|status| status.saved.net_mib),
                )
            };
            now.extend(status.groups.iter().map(saved));
        }
        // Groups that are gone are forgotten.
        self.histories.retain(|name, _| now.contains_key(name));
        for (name, saved) in now {
            let history = self.histories.entry(name).or_default();
            history.push_back(saved.filter(|_| is_new));
            if history.len() > MAX_HISTORY {
                history.pop_front();
            }
        }
    }

    /// Closes a group that is gone; and after a restart the daemon may have groups, or none.
    fn keep_to_what_is_there(&mut self) {
        let has_groups = matches!(self.answered, StatusAnswer::Groups(_));
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

    /// Shows these processes from now on.
    fn follow(&mut self, whose: Whose) {
        self.open = match &whose {
            Whose::Group(name) => Some(name.clone()),
            _ => None,
        };
        self.wishes.push(PollerRequest::Follow(whose.clone()));
        self.processes = List::of(whose);
        (self.explained, self.chosen_process) = (None, None);
        (self.is_status, self.scrolled) = (false, 0);
    }

    /// The page that is shown.
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

    /// The history of savings of the open group, or of all.
    pub(super) fn history(&self) -> Option<&History> {
        self.histories.get(self.open.as_deref().unwrap_or(""))
    }

    /// The groups in their order; none of a daemon without groups.
    pub(super) fn groups(&self) -> Vec<&GroupStatus> {
        let StatusAnswer::Groups(status) = &self.answered else {
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
    pub(super) fn rows(&self) -> Vec<&ProcessRow> {
        self.processes.sorted(self.sort)
    }

    /// The position of the chosen entry in the list that is shown: the first one, if none was
    /// chosen or it is gone.
    pub(super) fn chosen(&self) -> usize {
        let at = match self.page() {
            Page::Groups => {
                let is_it = |group: &&GroupStatus| Some(&group.name) == self.chosen_group.as_ref();
                self.groups().iter().position(is_it)
            }
            _ => {
                let is_it = |row: &&ProcessRow| Some(row.process.pid) == self.chosen_process;
                self.rows().iter().position(is_it)
            }
        };
        at.unwrap_or(0)
    }

    /// The group that is open.
    pub(super) fn open(&self) -> Option<&GroupStatus> {
        let StatusAnswer::Groups(status) = &self.answered else {
            return None;
        };
        let name = self.open.as_ref()?;
        status.groups.iter().find(|group| group.name == *name)
    }

    /// The status of the daemon without groups, or of the group that is open.
    pub(super) fn status(&self) -> Option<&Status> {
        match &self.answered {
            StatusAnswer::One(status) => Some(status),
            StatusAnswer::Groups(_) => self.open()?.status.as_deref(),
        }
    }

    /// The text that is shown, if the page is one: a status as `uksm status` prints it, or the
    /// output of `uksm explain`.
    pub(super) fn text(&self) -> Option<String> {
        match self.page() {
            Page::Groups | Page::Processes => None,
            Page::Status => Some(match (&self.answered, self.open()) {
                (StatusAnswer::Groups(status), None) => status.to_string(),
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

    /// Performs the action of a key; breaks at the end.
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

    /// Opens the chosen entry.
    fn enter(&mut self) {
        match self.page() {
            Page::Groups => {
                let groups = self.groups();
                let name = groups.get(self.chosen()).map(|group| group.name.clone());
                if let Some(name) = name {
                    // The same one stays chosen when the order changes.
                    self.chosen_group = Some(name.clone());
                    self.follow(Whose::Group(name));
                }
            }
            Page::Processes => {
                let rows = self.rows();
                let process = rows.get(self.chosen()).map(|row| row.process.clone());
                if let Some(process) = process {
                    self.chosen_process = Some(process.pid);
                    self.explained = Some(ProcessExplanation {
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

    /// Closes the page.
    fn leave(&mut self) {
        match self.page() {
            Page::Status => self.is_status = false,
            Page::Explained => self.explained = None,
            Page::Processes if self.open.is_some() => self.follow(Whose::Nobody),
            Page::Groups | Page::Processes => {}
        }
        self.scrolled = 0;
    }

    /// Requests an explanation of the open process, unless one is under way.
    fn ask_again(&mut self) {
        if let Some(explained) = self.explained.as_mut().filter(|it| !it.is_asked) {
            explained.is_asked = true;
            self.wishes.push(PollerRequest::Explain(explained.pid));
        }
    }

    /// Moves by this number of lines in a list or a text.
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
