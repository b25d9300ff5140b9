//! `uksm top`: the daemon's work and savings, live.
//!
//! # Problem
//! An operator who has just started uksm, or wonders about a group or a process, wants to see live
//! figures without a monitoring system. A terminal may be small, without colours, or missing, and
//! must be restored when the program ends, however it ends.
//!
//! # Approach
//! A thread asks the daemon ([`asking`]): once an interval for its status, which has all groups,
//! and for the processes that are shown; on request for the explanation of a process. The [`View`]
//! keeps the last answers, the history of savings, and the choices made by keys; the [`screen`] is
//! drawn from that alone. ratatui and crossterm handle the terminal: it is restored at the end, at
//! an error, at a panic and at signals. `--once` prints the same as text ([`once`]).
//!
//! # Units
//! MiB, percent of one core, pages of 4 KiB.

mod asking;
mod list;
mod look;
mod once;
mod screen;
mod tables;
mod view;

use std::io::{IsTerminal as _, Write as _};
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

use asking::{Answered, Said, Wish};
use look::Look;
use view::View;

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
    let answer = Answered::of(answer).map_err(|line| anyhow!(line))?;
    if args.once {
        let told = std::env::var("COLUMNS").ok();
        let width = match is_terminal {
            true => once::width(terminal::size().map_or(0, |it| it.0), told.as_deref()),
            false => once::WIDE,
        };
        let whose = once::whose(&answer).into_iter();
        let said = whose.filter_map(|whose| asking::processes(&args.socket, &whose));
        let text = once::text(&View::of(answer), said.collect(), width);
        let _closed = std::io::stdout().write_all(text.as_bytes());
        return Ok(());
    }
    let mut view = View::of(answer);
    let stopped = signals().context("top: cannot wait for signals")?;
    let asker = asking::start(args.socket.clone(), args.interval);
    let asker = asker.context("top: cannot start a thread")?;
    let look = Look::of_environment(|name| std::env::var_os(name));
    let restored = Restored;
    let mut terminal = ratatui::try_init().context("top: cannot use the terminal")?;
    let shown = show(&mut terminal, &mut view, look, &asker, &stopped);
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
struct Restored;

impl Drop for Restored {
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
    view: &mut View,
    look: Look,
    (wishes, said): &(Sender<Wish>, Receiver<Said>),
    stopped: &AtomicBool,
) -> std::io::Result<()> {
    let mut is_changed = true;
    while !stopped.load(Ordering::Relaxed) {
        for wish in view.take_wishes() {
            // The thread ends with the program.
            let _ended = wishes.send(wish);
        }
        for word in said.try_iter() {
            view.take(word);
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| screen::draw(view, look, frame.area(), frame.buffer_mut()))?;
        }
        is_changed = event::poll(TICK)?;
        if !is_changed {
            continue;
        }
        // A change of size is drawn at the next turn.
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && view.press(key).is_break()
        {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
