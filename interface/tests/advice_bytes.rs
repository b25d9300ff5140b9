//! Any bytes as messages of daemon and agent: each side reads what the other, or anybody else,
//! sends.

use proptest::prelude::*;
use uksm_interface::advice::{LONGEST, MAGIC, MAX_RANGES, Message, Outcomes};

/// Bytes that come far: often with the right beginning, a plausible verb and count, and whole
/// items.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let head = (any::<bool>(), 0_u16..4, any::<bool>(), 0_u16..40);
    let rest = proptest::collection::vec(any::<u8>(), 0..LONGEST + 40);
    (head, rest, any::<bool>()).prop_map(|((is_ours, verb, is_answer, count), rest, is_cut)| {
        let magic = if is_ours { MAGIC } else { 7 };
        let verb = if is_answer { 0x8000 | (verb & 1) } else { verb };
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend(verb.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        let item = if is_answer { 4 } else { 16 };
        let length = usize::from(count) * item;
        bytes.extend(
            rest.iter()
                .cycle()
                .take(if rest.is_empty() { 0 } else { length }),
        );
        if is_cut {
            bytes.truncate(rest.len());
        }
        // Whole pages, so that ranges are parsed.
        if let Some(items) = bytes.get_mut(8..) {
            for word in items.chunks_exact_mut(8) {
                word[0] = 0;
                word[1] &= 0xf0;
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn what_is_taken_for_a_message_is_one(bytes in bytes()) {
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert!((1..=MAX_RANGES).contains(&message.ranges().len()));
            for range in message.ranges() {
                prop_assert!(range.start < range.end && range.start % 4096 == 0 && range.end % 4096 == 0);
            }
            let sent = message.bytes();
            prop_assert_eq!(sent.as_slice(), bytes.as_slice());
        }
    }

    #[test]
    fn what_is_taken_for_outcomes_is_some(bytes in bytes()) {
        if let Ok(outcomes) = Outcomes::parse(&bytes) {
            prop_assert!((1..=MAX_RANGES).contains(&outcomes.as_slice().len()));
            let sent = outcomes.bytes();
            prop_assert_eq!(sent.as_slice(), bytes.as_slice());
        }
    }
}
