//! `uksm top`: what the daemon does and saves, as it changes.
//!
//! # Problem
//! Who has just started uksm, or wonders about a group, wants to see figures move without a monitoring system. A terminal may be
//! small, without colours, or none at all, and must be as it was when this ends, however it ends.
//!
//! # Approach
//! A thread asks the daemon for its status, which has all groups, once an interval. The [`View`] keeps the last answer, what was saved before, and what
//! keys have chosen; the [`screen`] is made of nothing else. ratatui and crossterm keep the terminal: it is given back at the end, at an error, at a panic
//! and at signals. `--once` is the same picture as text.
//!
//! # Units
//! MiB, percent of one core, pages of 4 KiB.

mod screen;
mod view;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;
use crate::cli::TopArgs;
use crate::control::{self, NoAnswer, Request};

use screen::Look;
use view::{Answered, View};

/// So long the daemon may take to answer before that is said.
const PATIENCE: Duration = Duration::from_secs(8);

/// Signals and answers are looked for so often.
const TICK: Duration = Duration::from_millis(100);

/// Columns where there is no terminal: as many as nothing is cut in.
const WIDE: u16 = 240;

/// Shows it until `q`, or once.
///
/// # Errors
/// No daemon, no terminal, or one that fails.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    if !args.once {
        if !is_terminal {
            return Err(anyhow!("top: standard output is no terminal: take --once").into());
        }
        if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return Err(
                anyhow!("top: TERM names no terminal that can be drawn on: take --once").into(),
            );
        }
    }
    let answer = crate::asked(&args.socket, &Request::Status)?;
    let answer = Answered::of(answer).map_err(|line| anyhow!(line))?;
    let mut view = View::of(answer);
    if args.once {
        let size = is_terminal.then(ratatui::crossterm::terminal::size);
        let width = size.and_then(Result::ok).map_or(WIDE, |(width, _)| width);
        let _closed = std::io::stdout().write_all(screen::text(&view, width).as_bytes());
        return Ok(());
    }
    let stopped = signals().context("top: cannot wait for signals")?;
    let answers =
        answers(args.socket.clone(), args.interval).context("top: cannot start a thread")?;
    let look = Look {
        is_coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let restored = Restored;
    let mut terminal = ratatui::try_init().context("top: cannot use the terminal")?;
    let shown = show(&mut terminal, &mut view, look, &answers, &stopped);
    drop(restored);
    shown.context("top: the terminal failed")?;
    Ok(())
}

/// Gives the terminal back when it goes.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // A terminal that is gone takes nothing back.
        let _gone = ratatui::try_restore();
    }
}

/// Whether a signal asked for the end. A second one ends the program at once. SIGHUP does so by itself: the terminal is gone, nothing
/// can be given back to it, and waiting for its keys never ends.
fn signals() -> std::io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stopped))?;
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    Ok(stopped)
}

/// What the daemon answers, once an interval. The thread ends with the program.
fn answers(
    socket: PathBuf,
    interval: Duration,
) -> std::io::Result<Receiver<Result<Answered, String>>> {
    let (sender, receiver) = sync_channel(1);
    let ask = move || {
        loop {
            std::thread::sleep(interval);
            let answer = match control::ask_within(&socket, &Request::Status, PATIENCE) {
                Ok(answer) => Answered::of(answer),
                Err(NoAnswer::NotRunning) => Err("no daemon answers".to_owned()),
                Err(NoAnswer::Failed(line)) => Err(line),
            };
            if sender.send(answer).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("uksm-asks".to_owned());
    thread.spawn(ask)?;
    Ok(receiver)
}

/// Draws what has changed, until the end is asked for.
fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    look: Look,
    answers: &Receiver<Result<Answered, String>>,
    stopped: &AtomicBool,
) -> std::io::Result<()> {
    let mut is_changed = true;
    while !stopped.load(Ordering::Relaxed) {
        for answer in answers.try_iter() {
            view.take(answer);
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| screen::draw(view, look, frame.area(), frame.buffer_mut()))?;
        }
        is_changed = event::poll(TICK)?;
        if !is_changed {
            continue;
        }
        // Another size is drawn at the next turn.
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
