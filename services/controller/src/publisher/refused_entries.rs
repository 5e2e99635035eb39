//! The entries that the log does not take, because their objects are too large.
//!
//! Such an entry is left out, and the log keeps an older version of it or none. It is named for as long as that
//! holds: until a comparison finds that it is as it should be, or the log takes it.

use std::collections::BTreeMap;

use headwater_event::{EntryKey, StreamId};

/// The most objects that are named. The others are counted.
const NAMED_MAX: usize = 20;

/// The entries that the log did not take when they were compared last.
#[derive(Debug, Default)]
pub(super) struct RefusedEntries {
    /// Of each object, the streams that lack it.
    objects: BTreeMap<String, BTreeMap<StreamId, RecordSize>>,
    /// Whether entries came or went since they were shown.
    has_changed: bool,
}

/// The size of a refused record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordSize {
    pub(super) bytes: usize,
    /// The most that the log takes.
    pub(super) bytes_max: usize,
}

impl RefusedEntries {
    /// Notes that the log did not take an entry.
    pub(super) fn note(&mut self, stream: StreamId, key: String, size: RecordSize) {
        self.objects.entry(key).or_default().insert(stream, size);
        self.has_changed = true;
    }

    /// Forgets an entry, which is compared now: the log refuses it again if it is as large as before.
    pub(super) fn forget(&mut self, stream: &StreamId, key: &EntryKey) {
        let Some(streams) = self.objects.get_mut(key.as_str()) else { return };
        self.has_changed |= streams.remove(stream).is_some();
        if streams.is_empty() {
            self.objects.remove(key.as_str());
        }
    }

    /// Forgets the entries of a stream, which is compared now.
    pub(super) fn forget_stream(&mut self, stream: &StreamId) {
        let has_changed = &mut self.has_changed;
        self.objects.retain(|_, streams| {
            *has_changed |= streams.remove(stream).is_some();
            !streams.is_empty()
        });
    }

    /// Whether there is something to show that was not shown.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// What is wrong, in sentences: the first [`NAMED_MAX`] objects, and the number of the others.
    pub(super) fn sentences(&self) -> Vec<String> {
        let named = self.objects.iter().take(NAMED_MAX).filter_map(|(key, streams)| {
            let (stream, RecordSize { bytes, bytes_max }) = streams.first_key_value()?;
            let others = match streams.len() - 1 {
                0 => String::new(),
                others => format!(" and of {others} more streams"),
            };
            Some(format!(
                "{key} has {bytes} bytes in the log, which takes {bytes_max}, and is left out of \
                 {stream}{others}; make it smaller"
            ))
        });
        let more = self.objects.len().saturating_sub(NAMED_MAX);
        let rest = (more > 0).then(|| format!("{more} more objects are too large for the log"));
        named.chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: RecordSize = RecordSize { bytes: 70, bytes_max: 60 };

    fn stream(name: &str) -> StreamId {
        name.parse().expect("a stream")
    }

    fn key(name: &str) -> EntryKey {
        name.parse().expect("a key")
    }

    #[test]
    fn an_object_is_named_once_until_no_stream_lacks_it() {
        let mut refused = RefusedEntries::default();
        assert!(!refused.take_change() && refused.sentences().is_empty());
        for node in ["node/b", "node/a"] {
            refused.note(stream(node), "d/configmap/c".to_owned(), SIZE);
        }
        assert!(refused.take_change() && !refused.take_change());
        let both = "d/configmap/c has 70 bytes in the log, which takes 60, and is left out of \
                    node/a and of 1 more streams; make it smaller";
        assert_eq!((refused.sentences(), refused.objects()), (vec![both.to_owned()], 1));
        refused.forget(&stream("node/a"), &key("d/configmap/other"));
        refused.forget_stream(&stream("node/c"));
        assert!(!refused.take_change());
        refused.forget(&stream("node/a"), &key("d/configmap/c"));
        assert!(refused.take_change() && refused.sentences()[0].contains("out of node/b; make"));
        refused.forget_stream(&stream("node/b"));
        assert!(refused.take_change() && refused.objects() == 0);
    }

    #[test]
    fn the_first_objects_are_named_and_the_others_are_counted() {
        let mut refused = RefusedEntries::default();
        for number in 0..NAMED_MAX + 3 {
            refused.note(stream("node/a"), format!("d/configmap/c-{number:02}"), SIZE);
        }
        let sentences = refused.sentences();
        assert_eq!(sentences.len(), NAMED_MAX + 1);
        assert_eq!(sentences[NAMED_MAX], "3 more objects are too large for the log");
    }
}
