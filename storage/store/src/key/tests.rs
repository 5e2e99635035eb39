//! Keys: round trips, and the order of bytes is the order of values.

use std::cmp::Ordering;
use std::fmt::Debug;

use proptest::prelude::*;

use super::*;

fn encoded(key: &impl Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_key(&mut bytes);
    bytes
}

/// Checks the contract of [`Key`] for two values whose order is `order`.
fn check<K: Key + PartialEq + Debug>(a: &K, b: &K, order: Ordering) -> Result<(), TestCaseError> {
    let (a_bytes, b_bytes) = (encoded(a), encoded(b));
    prop_assert_eq!(a_bytes.cmp(&b_bytes), order, "{:?} and {:?}", a, b);
    if order != Ordering::Equal {
        prop_assert!(!b_bytes.starts_with(&a_bytes), "{:?} begins {:?}", a, b);
        prop_assert!(!a_bytes.starts_with(&b_bytes), "{:?} begins {:?}", b, a);
    }
    for (key, bytes) in [(a, a_bytes), (b, b_bytes)] {
        let mut rest = bytes.as_slice();
        prop_assert_eq!(&K::decode_key(&mut rest).expect("just encoded"), key);
        prop_assert!(rest.is_empty(), "{} bytes remain", rest.len());
    }
    Ok(())
}

/// Texts that share beginnings and hold the bytes that the encoding treats specially.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            "[ab/]",
            Just("\0".to_owned()),
            Just("\u{1}".to_owned()),
            any::<char>().prop_map(String::from)
        ],
        0..6,
    )
    .prop_map(|parts| parts.concat())
}

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..6)
        .prop_map(Bytes::from)
}

fn resource() -> impl Strategy<Value = ResourceKey> {
    "[ab]{1,2}/[ab]{1,2}/[ab.-]{1,3}".prop_map(|text| text.parse().expect("well-formed"))
}

fn entry() -> impl Strategy<Value = EntryKey> {
    prop_oneof![
        Just(EntryKey::Streams),
        Just(EntryKey::SnapshotRequest),
        resource().prop_map(EntryKey::from)
    ]
}

fn stream() -> impl Strategy<Value = StreamId> {
    prop_oneof![
        Just(StreamId::Cluster),
        "[ab]{1,3}".prop_map(|name| StreamId::Node(name.parse().expect("well-formed")))
    ]
}

fn report() -> impl Strategy<Value = ReportId> {
    (0u64..3, 0u64..3, any::<u64>()).prop_map(|(incarnation, boot, seq)| ReportId {
        incarnation: Incarnation(incarnation),
        boot,
        seq,
    })
}

proptest! {
    #[test]
    fn numbers_keep_their_order(a: u64, b: u64, c: i64, d: i64, e: u32, f: u32) {
        check(&a, &b, a.cmp(&b))?;
        check(&c, &d, c.cmp(&d))?;
        check(&e, &f, e.cmp(&f))?;
        check(&Seq(a), &Seq(b), a.cmp(&b))?;
        check(&Offset(a), &Offset(b), a.cmp(&b))?;
        check(&Partition(e), &Partition(f), e.cmp(&f))?;
    }

    #[test]
    fn texts_and_bytes_keep_their_order(a in text(), b in text(), c in bytes(), d in bytes()) {
        check(&a, &b, a.as_bytes().cmp(b.as_bytes()))?;
        check(&c, &d, c.cmp(&d))?;
    }

    #[test]
    fn words_of_the_vocabulary_are_ordered_as_their_text(a in entry(), b in entry(), c in stream(), d in stream(), e in resource(), f in resource()) {
        check(&a, &b, a.as_str().cmp(b.as_str()))?;
        check(&c, &d, c.cmp(&d))?;
        check(&e, &f, e.cmp(&f))?;
    }

    #[test]
    fn reports_keep_their_order(a in report(), b in report()) {
        check(&a, &b, a.cmp(&b))?;
    }

    #[test]
    fn tuples_are_ordered_by_their_first_difference(a in (text(), any::<u64>()), b in (text(), any::<u64>()), c in (stream(), 0u64..3, text()), d in (stream(), 0u64..3, text())) {
        check(&a, &b, a.cmp(&b))?;
        check(&c, &d, c.cmp(&d))?;
    }

    #[test]
    fn a_first_part_is_a_prefix_of_its_own_keys_alone(a in text(), b in text(), seq: u64) {
        let mut prefix = Vec::new();
        PrefixOf::<(String, u64)>::encode_prefix(&a, &mut prefix);
        prop_assert_eq!(encoded(&(b.clone(), seq)).starts_with(&prefix), a == b);
    }

    #[test]
    fn the_start_of_a_text_is_a_prefix_of_what_starts_with_it(a in text(), b in text()) {
        let mut prefix = Vec::new();
        PrefixOf::<String>::encode_prefix(&TextStart(&a), &mut prefix);
        prop_assert_eq!(encoded(&b).starts_with(&prefix), b.starts_with(&a));
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = <(StreamId, EntryKey)>::decode_key(&mut bytes.as_slice());
        let _ = <(String, u64, i64)>::decode_key(&mut bytes.as_slice());
        let _ = ReportId::decode_key(&mut bytes.as_slice());
    }
}

#[test]
fn the_bytes_of_a_key_never_change() {
    // Fixed by the format: a change here would orphan every existing database.
    let stream: StreamId = "node/gw-1".parse().expect("well-formed");
    assert_eq!(encoded(&(stream, Seq(258))), b"node/gw-1\0\0\0\0\0\0\0\0\x01\x02");
    assert_eq!(encoded(&"a\0b".to_owned()), b"a\0\x01b\0\0");
    assert_eq!(encoded(&-1i64), b"\x7f\xff\xff\xff\xff\xff\xff\xff");
}
