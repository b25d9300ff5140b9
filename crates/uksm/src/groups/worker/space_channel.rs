//! A worker's end of the channel, as far as spaces go.
//!
//! # Approach
//! A thread of its own reads the channel ([`Control`](crate::control::Control)) and passes on what it hears of spaces; an event file is readable while there is
//! some of it, so that a sleep ends. What the worker has to say it sends by itself.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::event::{EventfdFlags, eventfd};
use uksm_linux::handed_over::{SpaceNews, SpaceWord, Supervisor};

use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SpaceAnswer, SpaceNote, WorkerMessage};

/// Most that are said with one message.
const BATCH: usize = 512;

/// Where the thread that reads puts what it hears.
#[derive(Debug)]
pub(crate) struct SpaceInbox {
    news: Sender<SpaceNews>,
    event: Arc<OwnedFd>,
}

/// The supervisor, for the machine.
#[derive(Debug)]
pub(crate) struct SpaceChannel {
    news: Receiver<SpaceNews>,
    event: Arc<OwnedFd>,
    channel: Channel,
}

/// Both ends; the channel is for what is said.
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
    let line = SpaceChannel {
        news: receiver,
        event,
        channel,
    };
    Ok((inbox, line))
}

impl SpaceInbox {
    /// Passes this on. A worker that has ended is ignored.
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
        // What comes from now on makes it readable again.
        let _empty = rustix::io::read(&self.event, &mut [0; 8]);
        self.news.try_recv().ok()
    }

    fn tell(&mut self, words: &[SpaceWord]) -> bool {
        words.chunks(BATCH).all(|words| {
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

    fn is_readable(line: &SpaceChannel) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let events = line.events();
        let mut watched = [PollFd::from_borrowed_fd(events, PollFlags::IN)];
        poll(&mut watched, Some(&now)).unwrap() > 0
    }

    #[test]
    fn what_is_heard_is_taken_once_and_what_is_said_arrives() {
        let (ours, theirs) = Channel::pair().unwrap();
        let (inbox, mut line) = space_channel(ours).unwrap();
        assert!(!is_readable(&line) && line.take().is_none());
        let left = |space| SpaceNews::Left {
            space: SpaceId(space),
            lives: true,
        };
        inbox.push(vec![left(1).into(), left(2).into()]);
        assert!(is_readable(&line));
        assert_eq!(
            [line.take(), line.take(), line.take()],
            [Some(left(1)), Some(left(2)), None]
        );
        assert!(!is_readable(&line));
        let words = [SpaceWord::Dead(SpaceId(3)), SpaceWord::Detached(SpaceId(4))];
        assert!(line.tell(&words));
        let Some((WorkerMessage::Spaces(said), _)) = theirs.receive(None).unwrap() else {
            panic!("nothing of spaces was said");
        };
        let said: Vec<SpaceWord> = said.into_iter().map(Into::into).collect();
        assert_eq!(said, words);
        drop(theirs);
        assert!(!line.tell(&words));
    }
}
