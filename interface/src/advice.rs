//! What the daemon and the agent in a cooperating process say to each other.
//!
//! # Problem
//! No process can offer memory of another one to in-kernel KSM. So an agent inside a process takes
//! advice from the daemon by a socket. Each side must be safe from anything that the other may
//! send.
//!
//! # Approach
//! A socket of kind `SOCK_SEQPACKET` keeps messages apart. The daemon sends a message, the agent
//! answers it with one outcome for each range, in order. Both begin with the same eight bytes:
//! [`MAGIC`], a verb, a count. A message that is not exactly of this form is [`Malformed`], and
//! ends the connection. Nothing here allocates: the agent runs in a process that is not its own.
//!
//! # Units
//! Addresses in bytes, multiples of 4096; ranges half-open. Numbers are little-endian.

/// Begins each message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"uksA");
/// Where the agent finds the socket, in the environment.
pub const SOCKET_VARIABLE: &str = "UKSM_AGENT_SOCKET";
/// Most ranges of a message.
pub const MAX_RANGES: usize = 32;
/// Longest message, in bytes.
pub const LONGEST: usize = HEAD + MAX_RANGES * RANGE;
/// The range is no private anonymous memory of the process.
pub const NOT_ANONYMOUS: u32 = 0x8000_0001;
/// Nothing was wrong.
pub const DONE: u32 = 0;

const HEAD: usize = 8;
const RANGE: usize = 16;
const OUTCOME: usize = 4;
const PAGE: u64 = 4096;
/// Set in the verb of an answer.
const ANSWER: u16 = 0x8000;

/// What is to be done with ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Advice {
    /// KSM may merge them.
    Merge = 1,
    /// It may not any more; what is merged gets its own copies.
    Unmerge = 2,
}

/// Memory of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// A message that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Some ranges, and what is to be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// What.
    pub advice: Advice,
    ranges: [Range; MAX_RANGES],
    count: usize,
}

/// The outcomes of a message: [`DONE`], [`NOT_ANONYMOUS`] or an errno each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    outcomes: [u32; MAX_RANGES],
    count: usize,
}

/// A message as it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Bytes {
    fn begun(verb: u16, count: usize) -> Bytes {
        let mut bytes = Bytes {
            bytes: [0; LONGEST],
            length: 0,
        };
        bytes.put(&MAGIC.to_le_bytes());
        bytes.put(&verb.to_le_bytes());
        bytes.put(&u16::try_from(count).unwrap_or(0).to_le_bytes());
        bytes
    }

    fn put(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(part);
            self.length = end;
        }
    }

    /// What is to be sent.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Message {
    /// Of the first ranges, as many as fit.
    #[must_use]
    pub fn new(advice: Advice, ranges: &[Range]) -> Message {
        let mut message = Message {
            advice,
            ranges: [Range::default(); MAX_RANGES],
            count: ranges.len().min(MAX_RANGES),
        };
        for (place, range) in message.ranges.iter_mut().zip(ranges) {
            *place = *range;
        }
        message
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        self.ranges.get(..self.count).unwrap_or_default()
    }

    /// As it is sent.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::begun(self.advice as u16, self.count);
        for range in self.ranges() {
            bytes.put(&range.start.to_le_bytes());
            bytes.put(&range.end.to_le_bytes());
        }
        bytes
    }

    /// What was received.
    ///
    /// # Errors
    /// It is none: another beginning, verb or length, no range at all, or one that is empty or not
    /// of whole pages.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let (verb, count, rest) = head(bytes, RANGE)?;
        let advice = match verb {
            1 => Advice::Merge,
            2 => Advice::Unmerge,
            _ => return Err(Malformed),
        };
        let mut message = Message::new(advice, &[]);
        for (place, words) in message.ranges.iter_mut().zip(rest.chunks_exact(RANGE)) {
            let (start, end) = words.split_at(RANGE / 2);
            let word = |bytes: &[u8]| Ok(u64::from_le_bytes(bytes.try_into().or(Err(Malformed))?));
            let range = Range {
                start: word(start)?,
                end: word(end)?,
            };
            let is_whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
            if !is_whole || range.start >= range.end {
                return Err(Malformed);
            }
            *place = range;
        }
        message.count = count;
        Ok(message)
    }
}

impl Outcomes {
    /// The first outcomes, as many as fit.
    #[must_use]
    pub fn new(outcomes: &[u32]) -> Outcomes {
        let mut all = [DONE; MAX_RANGES];
        for (place, outcome) in all.iter_mut().zip(outcomes) {
            *place = *outcome;
        }
        Outcomes {
            outcomes: all,
            count: outcomes.len().min(MAX_RANGES),
        }
    }

    /// They, in the order of the ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        self.outcomes.get(..self.count).unwrap_or_default()
    }

    /// As they are sent.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::begun(ANSWER, self.count);
        for outcome in self.as_slice() {
            bytes.put(&outcome.to_le_bytes());
        }
        bytes
    }

    /// What was received.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8]) -> Result<Outcomes, Malformed> {
        let (verb, count, rest) = head(bytes, OUTCOME)?;
        if verb != ANSWER {
            return Err(Malformed);
        }
        let mut outcomes = Outcomes::new(&[]);
        for (place, word) in outcomes.outcomes.iter_mut().zip(rest.chunks_exact(OUTCOME)) {
            *place = u32::from_le_bytes(word.try_into().or(Err(Malformed))?);
        }
        outcomes.count = count;
        Ok(outcomes)
    }
}

/// The verb, the count, and then the items, each of this size.
fn head(bytes: &[u8], item: usize) -> Result<(u16, usize, &[u8]), Malformed> {
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or(Malformed)?;
    let (magic, head) = head.split_at(4);
    let (verb, count) = head.split_at(2);
    let short = |bytes: &[u8]| Ok(u16::from_le_bytes(bytes.try_into().or(Err(Malformed))?));
    let (verb, count) = (short(verb)?, usize::from(short(count)?));
    let is_whole = (1..=MAX_RANGES).contains(&count) && rest.len() == count * item;
    match magic == MAGIC.to_le_bytes() && is_whole {
        true => Ok((verb, count, rest)),
        false => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(count: u64) -> Vec<Range> {
        let range = |at: u64| Range {
            start: at * 2 * PAGE,
            end: (at * 2 + 1) * PAGE,
        };
        (1..=count).map(range).collect()
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        for count in [1, 2, 32] {
            for advice in [Advice::Merge, Advice::Unmerge] {
                let message = Message::new(advice, &ranges(count));
                let bytes = message.bytes();
                assert_eq!(Message::parse(bytes.as_slice()), Ok(message));
                assert_eq!(Outcomes::parse(bytes.as_slice()), Err(Malformed));
            }
            let outcomes: Vec<u32> = (0..u32::try_from(count).unwrap()).collect();
            let outcomes = Outcomes::new(&outcomes);
            let bytes = outcomes.bytes();
            assert_eq!(Outcomes::parse(bytes.as_slice()), Ok(outcomes));
            assert_eq!(Message::parse(bytes.as_slice()), Err(Malformed));
        }
        assert_eq!(Message::new(Advice::Merge, &ranges(40)).ranges().len(), 32);
    }

    #[test]
    fn a_message_of_another_form_is_none() {
        let good = Message::new(Advice::Merge, &ranges(2)).bytes();
        let good = good.as_slice();
        for length in 0..good.len() {
            assert_eq!(Message::parse(&good[..length]), Err(Malformed), "{length}");
        }
        let longer = [good, &[0]].concat();
        assert_eq!(Message::parse(&longer), Err(Malformed));
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            Message::parse(&bytes)
        };
        assert_eq!(changed(0, b'x'), Err(Malformed), "magic");
        assert_eq!(changed(4, 3), Err(Malformed), "verb");
        assert_eq!(changed(6, 1), Err(Malformed), "count");
        assert_eq!(changed(6, 0), Err(Malformed), "no range");
        assert_eq!(changed(8, 1), Err(Malformed), "no whole page");
        assert_eq!(changed(9, 0xf0), Err(Malformed), "ends before it begins");
        let many = [&good[..6], &[33, 0], &[0; 33 * 16]].concat();
        assert_eq!(Message::parse(&many), Err(Malformed), "too long");
    }
}
