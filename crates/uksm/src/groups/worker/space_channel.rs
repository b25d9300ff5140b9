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
use uksm_linux::handed_over::{SpaceNews, SpaceWord, Supervisor};

use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SpaceAnswer, SpaceNote, WorkerMessage};

/// Maximum number of reports in one message.
const MAX_BATCH: usize = 512;

/// The end for the thread that reads the channel.
#[derive(Debug)]
pub(crate) struct SpaceInbox {
    news: Sender<SpaceNews>,
    event: Arc<OwnedFd>,
}

/// The end for the machine.
#[derive(Debug)]
pub(crate) struct SpaceChannel {
    news: Receiver<SpaceNews>,
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
        news: sender,
        event: Arc::clone(&event),
    };
    let spaces = SpaceChannel {
        news: receiver,
        event,
        channel,
    };
    Ok((inbox, spaces))
}

impl SpaceInbox {
    /// Puts these notes into the inbox. A worker that has ended is ignored.
    pub(crate) fn push(&self, notes: Vec<SpaceNote>) {
        for note in notes {
            let _gone = self.news.send(note.into());
        }
        // A full counter is readable.
        let _full = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl Supervisor for SpaceChannel {
    fn take(&mut self) -> Option<SpaceNews> {
        if let Ok(news) = self.news.try_recv() {
            return Some(news);
        }
        // Later notes make it readable again.
        let _empty = rustix::io::read(&self.event, &mut [0; 8]);
        self.news.try_recv().ok()
    }

    fn tell(&mut self, words: &[SpaceWord]) -> bool {
        words.chunks(MAX_BATCH).all(|words| {
            let words = words.iter().map(|&word| SpaceAnswer::from(word)).collect();
            self.channel
                .send(&WorkerMessage::Spaces(words), None)
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
    fn a_note_is_taken_once_and_a_word_arrives() {
        let (ours, theirs) = Channel::pair().unwrap();
        let (inbox, mut spaces) = space_channel(ours).unwrap();
        assert!(!is_readable(&spaces) && spaces.take().is_none());
        let left = |space| SpaceNews::Left {
            space: SpaceId(space),
            lives: true,
        };
        inbox.push(vec![left(1).into(), left(2).into()]);
        assert!(is_readable(&spaces));
        assert_eq!(
            [spaces.take(), spaces.take(), spaces.take()],
            [Some(left(1)), Some(left(2)), None]
        );
        assert!(!is_readable(&spaces));
        let words = [SpaceWord::Dead(SpaceId(3)), SpaceWord::Detached(SpaceId(4))];
        assert!(spaces.tell(&words));
        let Some((WorkerMessage::Spaces(reports), _)) = theirs.receive(None).unwrap() else {
            panic!("no report about spaces was sent");
        };
        let reports: Vec<SpaceWord> = reports.into_iter().map(Into::into).collect();
        assert_eq!(reports, words);
        drop(theirs);
        assert!(!spaces.tell(&words));
    }
}
