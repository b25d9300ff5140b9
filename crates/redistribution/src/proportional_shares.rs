//! Divides bytes among claims.
//!
//! # Problem
//! Freed memory is divided by parts: equal ones, weights, or contributions. A member that may not
//! grow further leaves its part to the others. The order of members must not matter, and the sum
//! must not exceed the bytes.
//!
//! # Approach
//! Water filling: all claims whose part reaches their limit get the limit at once; the rest is
//! divided anew among the others. Divisions are rounded down, so the last few bytes stay undivided.
//!
//! # Units
//! Bytes; parts have none, only their proportion counts.

/// A claim to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its part, in proportion to the parts of others.
    pub part: u64,
    /// The limit of its bytes.
    pub most: u64,
}

/// The bytes of each claim, in their order. The sum is at most `bytes`.
#[must_use]
pub fn share(bytes: u64, claims: &[Claim]) -> Vec<u64> {
    let mut shares = vec![0; claims.len()];
    let mut rest = bytes;
    let mut open: Vec<usize> = (0..claims.len())
        .filter(|&at| claims[at].part > 0)
        .collect();
    // In each round at least one claim reaches its limit, or all are served.
    loop {
        let parts: u128 = open.iter().map(|&at| u128::from(claims[at].part)).sum();
        if parts == 0 {
            return shares;
        }
        let part_of = |at: usize| {
            let part = u128::from(rest) * u128::from(claims[at].part) / parts;
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let (full, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&at| part_of(at) >= claims[at].most);
        if full.is_empty() {
            for at in others {
                shares[at] = part_of(at);
            }
            return shares;
        }
        for at in full {
            shares[at] = claims[at].most;
            rest -= claims[at].most;
        }
        open = others;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let claim = (0..1000_u64, prop_oneof![0..1_u64 << 30, Just(u64::MAX)]);
        prop::collection::vec(claim.prop_map(|(part, most)| Claim { part, most }), 1..12)
    }

    #[test]
    fn equal_parts_of_those_who_may_grow() {
        let claim = |most| Claim { part: 1, most };
        let claims = [claim(u64::MAX), claim(10), claim(u64::MAX)];
        assert_eq!(share(310, &claims), [150, 10, 150]);
    }

    #[test]
    fn who_has_no_part_gets_nothing_and_huge_parts_do_not_overflow() {
        let claim = |part| Claim {
            part,
            most: u64::MAX,
        };
        assert_eq!(share(100, &[claim(0), claim(0)]), [0, 0]);
        let half = u64::MAX / 2;
        assert_eq!(
            share(u64::MAX, &[claim(u64::MAX), claim(u64::MAX)]),
            [half, half]
        );
    }

    proptest! {
        #[test]
        fn no_more_is_divided_than_there_is_and_nobody_gets_more_than_it_takes(
            bytes in any::<u64>(), claims in claims()
        ) {
            let shares = share(bytes, &claims);
            let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            prop_assert!(sum <= u128::from(bytes));
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(*share <= claim.most);
            }
        }

        #[test]
        fn all_is_divided_but_less_than_a_byte_a_claim(bytes in 0..1_u64 << 40, claims in claims()) {
            let takes = |claim: &Claim| if claim.part > 0 { u128::from(claim.most) } else { 0 };
            let taken: u128 = claims.iter().map(takes).sum();
            let sum: u128 = share(bytes, &claims).iter().map(|&share| u128::from(share)).sum();
            let due = taken.min(u128::from(bytes));
            prop_assert!(due - sum < claims.len() as u128);
        }

        #[test]
        fn more_to_divide_is_less_for_nobody(
            bytes in 0..1_u64 << 40, more in 0..1_u64 << 30, claims in claims()
        ) {
            for (less, more) in share(bytes, &claims).iter().zip(share(bytes + more, &claims)) {
                prop_assert!(*less <= more);
            }
        }

        #[test]
        fn the_order_of_claims_changes_nothing(
            (claims, order) in claims().prop_flat_map(|claims| {
                let order: Vec<usize> = (0..claims.len()).collect();
                (Just(claims), Just(order).prop_shuffle())
            }),
            bytes in any::<u64>(),
        ) {
            let shares = share(bytes, &claims);
            let shuffled: Vec<Claim> = order.iter().map(|&at| claims[at]).collect();
            let expected: Vec<u64> = order.iter().map(|&at| shares[at]).collect();
            prop_assert_eq!(share(bytes, &shuffled), expected);
        }
    }
}
