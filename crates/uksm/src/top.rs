//! `uksm top`: the daemon's work and savings, live.
//!
//! # Problem
//! An operator who has just started uksm, or wonders about a group or a process, wants to see live
//! figures without a monitoring system. A terminal may be small, without colours, or missing, and
//! must be restored when the program ends, however it ends.
//!
//! # Approach
//! A thread asks the daemon ([`poller`]): once an interval for its status, which has all groups,
//! and for the processes that are shown; on request for the explanation of a process. The
//! [`ScreenState`] keeps the last answers, the history of savings, and the choices made by keys;
//! the [`drawing`] is drawn from that alone. ratatui and crossterm handle the terminal: it is
//! restored at the end, at an error, at a panic and at signals. `--once` prints the same as text
//! ([`plain_text`]).
//!
//! # Units
//! MiB, percent of one core, pages of 4 KiB.

mod drawing;
mod list;
mod plain_text;
mod poller;
mod state;
mod tables;
mod terminal_style;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::TopArgs;
use crate::control::Request;
use crate::failure::Failure;

use poller::{PollerAnswer, PollerRequest, StatusAnswer};
use state::ScreenState;
use terminal_style::TerminalStyle;

/// Interval of checks for signals and answers.
const TICK: Duration = Duration::from_millis(100);

/// Shows the view until `q`, or prints it once.
///
/// # Errors
/// No daemon, no terminal, or one that fails.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    if !args.once {
        can_draw(is_terminal)?;
    }
    let answer = crate::control::client::asked(&args.socket, &Request::Status)?;
    let answer = StatusAnswer::of(answer).map_err(|line| anyhow!(line))?;
    if args.once {
        let columns = std::env::var("COLUMNS").ok();
        let width = match is_terminal {
            true => plain_text::width(terminal::size().map_or(0, |it| it.0), columns.as_deref()),
            false => plain_text::WIDTH_WITHOUT_TERMINAL,
        };
        let whose = plain_text::whose(&answer).into_iter();
        let answers = whose.filter_map(|whose| poller::processes(&args.socket, &whose));
        let text = plain_text::text(&ScreenState::of(answer), answers.collect(), width);
        return Ok(crate::log::print_exactly(&text)?);
    }
    let mut state = ScreenState::of(answer);
    let stopped = signals().context("top: cannot wait for signals")?;
    let asker = poller::start(args.socket.clone(), args.interval);
    let asker = asker.context("top: cannot start a thread")?;
    let styles = TerminalStyle::of_environment(|name| std::env::var_os(name));
    let restored = TerminalRestorer;
    let mut terminal = ratatui::try_init().context("top: cannot use the terminal")?;
    let shown = show(&mut terminal, &mut state, styles, &asker, &stopped);
    drop(restored);
    shown.context("top: the terminal failed")?;
    Ok(())
}

/// Whether there is a terminal that can be drawn on.
///
/// # Errors
/// There is none, or it has no size: the remedy.
fn can_draw(is_terminal: bool) -> anyhow::Result<()> {
    if !is_terminal {
        return Err(anyhow!(
            "top: standard output is not a terminal: use --once"
        ));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(anyhow!(
            "top: the terminal named by TERM cannot be drawn on: use --once"
        ));
    }
    if let Ok((0, _) | (_, 0)) = terminal::size() {
        return Err(anyhow!(
            "top: the terminal does not know its size: set it with `stty cols 80 rows 24`, or \
             use --once"
        ));
    }
    Ok(())
}

/// Restores the terminal when it is dropped.
struct TerminalRestorer;

impl Drop for TerminalRestorer {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _gone = ratatui::try_restore();
    }
}

/// The flag that a signal sets to stop the program. A second signal ends the program at once.
/// SIGHUP does so by itself: the terminal is gone, cannot be restored, and waiting for its keys
/// would never end.
fn signals() -> std::io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stopped))?;
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    Ok(stopped)
}

/// Draws changes until the program is stopped.
fn show(
    terminal: &mut DefaultTerminal,
    state: &mut ScreenState,
    styles: TerminalStyle,
    (wishes, answers): &(Sender<PollerRequest>, Receiver<PollerAnswer>),
    stopped: &AtomicBool,
) -> std::io::Result<()> {
    let mut is_changed = true;
    while !stopped.load(Ordering::Relaxed) {
        for wish in state.take_wishes() {
            // The thread ends with the program.
            let _ended = wishes.send(wish);
        }
        for answer in answers.try_iter() {
            state.take(answer);
            is_changed = true;
        }
        if is_changed {
            terminal
                .draw(|frame| drawing::draw(state, styles, frame.area(), frame.buffer_mut()))?;
        }
        is_changed = event::poll(TICK)?;
        if !is_changed {
            continue;
        }
        // A change of size is drawn at the next turn.
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && state.press(key).is_break()
        {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
