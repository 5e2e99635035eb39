//! The highest identity of a node among those that a hub has seen.
//!
//! An edge that lost its disk raises its boot number past the highest one that its hub knows. While
//! the log is away, that hub does not know all of them, so the edge may take a number that another
//! start of the node has already had. The ids of the reports of both are then in one order, and what
//! the log has first does not count. So neither start keeps the number: each of them raises it again.

use headwater_event::{Boot, Identity};

/// The nonce of a boot number that several starts have had. It differs from the nonces of all of
/// them, so the number is outranked for each.
const SHARED_NONCE: u64 = 0;

/// The highest identity after `seen`, if it is no longer `known`.
pub fn highest_after(known: Option<&Identity>, seen: &Identity) -> Option<Identity> {
    let Some(known) = known else { return Some(seen.clone()) };
    if seen.rank() > known.rank() {
        return Some(seen.clone());
    }
    let is_shared = seen.rank() == known.rank() && seen.boot.nonce != known.boot.nonce;
    (is_shared && known.boot.nonce != SHARED_NONCE).then(|| {
        let boot = Boot { nonce: SHARED_NONCE, ..known.boot };
        Identity { boot, ..known.clone() }
    })
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;

    fn identity(number: u64, nonce: u64) -> Identity {
        let node = "a".parse().expect("well-formed");
        Identity { node, incarnation: Incarnation(1), boot: Boot { number, nonce } }
    }

    #[test]
    fn a_higher_identity_replaces_a_known_one() {
        assert_eq!(highest_after(None, &identity(1, 7)), Some(identity(1, 7)));
        let known = identity(2, 7);
        assert_eq!(highest_after(Some(&known), &identity(3, 1)), Some(identity(3, 1)));
        for seen in [identity(1, 1), known.clone()] {
            assert_eq!(highest_after(Some(&known), &seen), None);
        }
    }

    #[test]
    fn two_starts_with_one_number_must_both_raise_it() {
        let (one, other) = (identity(2, 7), identity(2, 9));
        let known = highest_after(Some(&one), &other).expect("a change");
        assert!(known.outranks(&one) && known.outranks(&other));
        for seen in [&one, &other, &identity(2, 11)] {
            assert_eq!(highest_after(Some(&known), seen), None, "it stays");
        }
        assert_eq!(highest_after(Some(&known), &identity(3, 9)), Some(identity(3, 9)));
    }
}
