//! The supervisor's requests to its worker.
//!
//! # Approach
//! A thread of its own reads the channel: it passes on requests and shares to the worker, and
//! messages about spaces to the inbox of the machine.

use std::sync::mpsc::{self, Sender};

use uksm_linux::sleeper::Waker;

use crate::control::{Answer, Control, PendingRequest, hand_over};
use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SupervisorMessage, WorkerMessage};
use crate::groups::worker::space_channel::SpaceInbox;

/// Receives the supervisor's requests, and puts its notes about spaces into the inbox; the end of
/// the supervisor stops the worker.
///
/// # Errors
/// No thread can be started: one line.
pub(crate) fn control(
    channel: Channel,
    inbox: SpaceInbox,
    waker: Waker,
) -> Result<Control, String> {
    let (sender, requests) = mpsc::channel();
    let (share_sender, shares) = mpsc::channel();
    std::thread::Builder::new()
        .name("uksm-control".to_owned())
        .stack_size(512 << 10)
        .spawn(move || {
            let worker = (sender, share_sender);
            if let Err(error) = obey(&channel, &inbox, &worker, &waker) {
                tracing::warn!("cannot read from the supervisor: {error}");
            }
            waker.stop();
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Control::of_channels(requests, shares))
}

/// Passes on messages of a supervisor, until it ends or the worker does.
fn obey(
    channel: &Channel,
    inbox: &SpaceInbox,
    (worker, shares): &(Sender<PendingRequest>, Sender<f64>),
    waker: &Waker,
) -> std::io::Result<()> {
    while let Some((order, _)) = channel.receive(None)? {
        let (number, request) = match order {
            SupervisorMessage::Ask(number, request) => (number, request),
            SupervisorMessage::Spaces(notes) => {
                inbox.push(notes);
                continue;
            }
            SupervisorMessage::Share(share) => {
                // A worker that has ended is ignored.
                let _gone = shares.send(share);
                waker.wake();
                continue;
            }
            // The worker has begun long ago.
            SupervisorMessage::Setup(_) | SupervisorMessage::Hints => continue,
        };
        let Some(answer) = hand_over(request, worker, waker) else {
            break;
        };
        if let Err(error) = channel.send(&WorkerMessage::Answer(number, answer), None) {
            let line = Answer::Error(format!("the answer cannot be sent: {error}"));
            channel.send(&WorkerMessage::Answer(number, line), None)?;
        }
    }
    Ok(())
}
