//! Messages between supervisor and worker, and the file of a domain with them.
//!
//! # Problem
//! A worker that cannot open the device receives the file of its domain; a new worker opens one in
//! the control group that pays, and sends it to the supervisor.
//!
//! # Approach
//! A pair of sockets that keep the bounds of messages (`SOCK_SEQPACKET`); a message is one line of
//! JSON, and a file may come with it. When one side ends, the other reads the end of messages.
//!
//! # Units
//! Bytes; sending a message longer than [`MAX_MESSAGE_BYTES`] is an error.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a message.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// No more file descriptors.
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let flags = SocketFlags::CLOEXEC;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(a), Channel(b)))
    }

    /// The end that this file is.
    pub(crate) fn of(file: OwnedFd) -> Channel {
        Channel(file)
    }

    /// The file of this end.
    pub(crate) fn into_file(self) -> OwnedFd {
        self.0
    }

    /// Another handle of the same end.
    ///
    /// # Errors
    /// No more file descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Channel> {
        Ok(Channel(self.0.try_clone()?))
    }

    /// Sends a message, and a file with it.
    ///
    /// # Errors
    /// The other end is gone or does not read; the message is too long.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(too_long(text.len()));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A confined worker can send no files, and make no other call than this one.
        let Some(file) = file else {
            send(&self.0, &text, flags)?;
            return Ok(());
        };
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&self.0, &[IoSlice::new(&text)], &mut ancillary, flags)?;
        Ok(())
    }

    /// The next message, and the file that came with it; waits until the timeout, or for ever. None
    /// at the end of all messages.
    ///
    /// # Errors
    /// No message came in time, or an invalid one.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        timeout: Option<Duration>,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        self.wait(timeout)?;
        // Allocating the maximum length would take longer than reading most messages.
        let length = match self.length()? {
            0 => return Ok(None),
            length if length > MAX_MESSAGE_BYTES => return Err(too_long(length)),
            length => length,
        };
        let mut text = vec![0; length];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut text)];
        let received = loop {
            match recvmsg(
                &self.0,
                &mut slices,
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(Errno::INTR) => {}
                // The other side died with messages unread.
                Err(Errno::CONNRESET) => return Ok(None),
                answer => break answer?,
            }
        };
        let mut file = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                file = files.next();
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        Ok(Some((
            serde_json::from_slice(&text[..received.bytes])?,
            file,
        )))
    }

    /// Length of the next message, which stays; 0 at the end of all messages.
    fn length(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::TRUNC;
        loop {
            match recv(&self.0, &mut [0_u8; 1], flags) {
                Err(Errno::INTR) => {}
                // The other side died with messages unread.
                Err(Errno::CONNRESET) => return Ok(0),
                answer => return Ok(answer?.1),
            }
        }
    }

    /// Waits until there is something to receive.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout
            .map(Timespec::try_from)
            .transpose()
            .map_err(|_| Errno::INVAL)?;
        loop {
            let mut here = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut here, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                // The timeout begins again: signals are few.
                Err(Errno::INTR) => {}
                answer => return answer.map(|_| ()).map_err(io::Error::from),
            }
        }
    }
}

fn too_long(length: usize) -> io::Error {
    let what = format!("a message of {length} bytes is too long");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::groups::wire::messages::WorkerMessage;

    #[test]
    fn a_message_arrives_whole_and_its_file_with_it() {
        let (a, b) = Channel::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(&vec!["x".repeat(100_000)], Some(file.as_fd()))
            .unwrap();
        a.send(&vec!["y"], None).unwrap();
        let (first, with) = b.receive::<Vec<String>>(None).unwrap().unwrap();
        assert_eq!((first[0].len(), with.is_some()), (100_000, true));
        let (second, with) = b.receive::<Vec<String>>(None).unwrap().unwrap();
        assert_eq!((second[0].as_str(), with.is_some()), ("y", false));
    }

    #[test]
    fn silence_ends_in_time_and_a_closed_end_at_once() {
        let (a, b) = Channel::pair().unwrap();
        let waited = b.receive::<u32>(Some(Duration::from_millis(5)));
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(a);
        assert!(b.receive::<u32>(None).unwrap().is_none());
        assert!(b.send(&1, None).is_err());
    }

    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// A worker may be compromised: its messages must be read as a value, an error, or the end.
        #[test]
        fn any_bytes_of_a_worker_are_a_word_or_an_error(
            at in 0_usize..200,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            which in 0_usize..5,
        ) {
            let words = [
                r#"{"spaces":[{"detached":1},{"dead":4294967295}]}"#,
                r#"{"answer":[18446744073709551615,{"error":"x"}]}"#,
                r#"{"failed":"no"}"#,
                r#""domain""#,
                "",
            ];
            let mut text = words[which].as_bytes().to_vec();
            let at = at.min(text.len());
            text.splice(at..(at + bytes.len() / 2).min(text.len()), bytes);
            let (ours, theirs) = Channel::pair().unwrap();
            rustix::net::send(&theirs, &text, SendFlags::NOSIGNAL).unwrap();
            let received = ours.receive::<WorkerMessage>(Some(Duration::ZERO));
            prop_assert!(received.is_ok() || !text.is_empty());
        }

        #[test]
        fn a_message_that_is_deep_or_long_is_refused(depth in 1_usize..60_000) {
            let (ours, theirs) = Channel::pair().unwrap();
            let text = "[".repeat(depth);
            rustix::net::send(&theirs, text.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            prop_assert!(ours.receive::<WorkerMessage>(Some(Duration::ZERO)).is_err());
        }
    }

    #[test]
    fn files_that_nobody_asked_for_are_closed() {
        let (ours, theirs) = Channel::pair().unwrap();
        let files: Vec<OwnedFd> = (0..20)
            .map(|_| tempfile::tempfile().unwrap().into())
            .collect();
        for count in [0, 1, 2, 20] {
            let before = open_files();
            let borrowed: Vec<BorrowedFd<'_>> = files[..count].iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if count > 0 {
                ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
            }
            let text = [IoSlice::new(br#""domain""#)];
            sendmsg(&theirs, &text, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            let (word, file) = ours.receive::<WorkerMessage>(None).unwrap().unwrap();
            assert!(matches!(word, WorkerMessage::Domain));
            assert_eq!(file.is_some(), count > 0);
            drop(file);
            // Other tests open files meanwhile.
            assert!(open_files() < before + 10, "{count}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let (a, b) = Channel::pair().unwrap();
        assert!(a.send(&"x".repeat(MAX_MESSAGE_BYTES), None).is_err());
        a.send(&1, None).unwrap();
        assert_eq!(b.receive::<u32>(None).unwrap().unwrap().0, 1);
    }
}
