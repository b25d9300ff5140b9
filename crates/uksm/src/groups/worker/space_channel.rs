//! A worker's channel for messages about spaces.
//!
//! # Approach
//! A thread reads the channel (`supervisor_requests.rs`) and puts messages about spaces into the
//! inbox. An event file is readable while the inbox is not empty, so that a sleep ends. The worker
//! sends its own messages about spaces directly.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::event::{EventfdFlags, eventfd};
use uksm_linux::supervised_spaces::{SpaceNotice, SpaceReport, Supervisor};

use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SpaceAnswer, SpaceNote, WorkerMessage};

/// Maximum number of reports in one message.
const MAX_BATCH: usize = 512;

/// The end for the thread that reads the channel.
#[derive(Debug)]
pub(crate) struct SpaceInbox {
    notices: Sender<SpaceNotice>,
    event: Arc<OwnedFd>,
}

/// The end for the machine.
#[derive(Debug)]
pub(crate) struct SpaceChannel {
    notices: Receiver<SpaceNotice>,
    event: Arc<OwnedFd>,
    channel: Channel,
}

/// Both ends; the worker sends its messages by `channel`.
///
/// # Errors
/// No more file descriptors.
pub(crate) fn space_channel(channel: Channel) -> std::io::Result<(SpaceInbox, SpaceChannel)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let event = Arc::new(eventfd(0, flags)?);
    let (sender, receiver) = mpsc::channel();
    let inbox = SpaceInbox {
        notices: sender,
        event: Arc::clone(&event),
    };
    let spaces = SpaceChannel {
        notices: receiver,
        event,
        channel,
    };
    Ok((inbox, spaces))
}

impl SpaceInbox {
    /// Puts these notes into the inbox. A worker that has ended is ignored.
    pub(crate) fn push(&self, notes: Vec<SpaceNote>) {
        for note in notes {
            let _gone = self.notices.send(note.into());
        }
        // A full counter is readable.
        let _full = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl Supervisor for SpaceChannel {
    fn receive(&mut self) -> Option<SpaceNotice> {
        if let Ok(notice) = self.notices.try_recv() {
            return Some(notice);
        }
        // Later notes make it readable again.
        let _empty = rustix::io::read(&self.event, &mut [0; 8]);
        self.notices.try_recv().ok()
    }

    fn send(&mut self, reports: &[SpaceReport]) -> bool {
        reports.chunks(MAX_BATCH).all(|reports| {
            let reports = reports
                .iter()
                .map(|&report| SpaceAnswer::from(report))
                .collect();
            self.channel
                .send(&WorkerMessage::Spaces(reports), None)
                .is_ok()
        })
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use uksm_policy::command::SpaceId;

    fn is_readable(spaces: &SpaceChannel) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let events = spaces.events();
        let mut watched = [PollFd::from_borrowed_fd(events, PollFlags::IN)];
        poll(&mut watched, Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_notice_is_received_once_and_a_report_arrives() {
        let (ours, theirs) = Channel::pair().unwrap();
        let (inbox, mut spaces) = space_channel(ours).unwrap();
        assert!(!is_readable(&spaces) && spaces.receive().is_none());
        let left = |space| SpaceNotice::Left {
            space: SpaceId(space),
            lives: true,
        };
        inbox.push(vec![left(1).into(), left(2).into()]);
        assert!(is_readable(&spaces));
        assert_eq!(
            [spaces.receive(), spaces.receive(), spaces.receive()],
            [Some(left(1)), Some(left(2)), None]
        );
        assert!(!is_readable(&spaces));
        let words = [
            SpaceReport::Dead(SpaceId(3)),
            SpaceReport::Detached(SpaceId(4)),
        ];
        assert!(spaces.send(&words));
        let Some((WorkerMessage::Spaces(reports), _)) = theirs.receive(None).unwrap() else {
            panic!("no report about spaces was sent");
        };
        let reports: Vec<SpaceReport> = reports.into_iter().map(Into::into).collect();
        assert_eq!(reports, words);
        drop(theirs);
        assert!(!spaces.send(&reports));
    }
}
