//! Pods by the labels of what runs for them: the record of a pod of which nothing else is left.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use headwater_edged::pod::{GRACE_DEFAULT, PodRecord, PodUid};
use headwater_event::ResourceKey;
use jiff::Timestamp;

use crate::client::CallError;
use crate::facts::{pod_uid, time};
use crate::inner::Inner;
use crate::spec::{GRACE, POD_NAME, POD_NAMESPACE, POD_UID};

/// Where the object of a pod comes from, and the word for a file of the node.
const SOURCE: &str = "kubernetes.io/config.source";
const FILE: &str = "file";

/// The labels or annotations of a sandbox or container.
type StringMap = HashMap<String, String>;

impl Inner {
    /// The records of these pods, as far as they have a sandbox or a container of this node.
    pub(crate) async fn records(
        &self,
        pods: &BTreeSet<PodUid>,
    ) -> Result<Vec<PodRecord>, CallError> {
        let own = self.labels();
        let sandboxes = self.list_sandboxes(None).await?;
        let containers = self.list_containers(None, None).await?;
        let sandboxes =
            sandboxes.iter().map(|it| own_record(&it.labels, &it.annotations, it.created_at, &own));
        let containers = containers
            .iter()
            .map(|it| own_record(&it.labels, &it.annotations, it.created_at, &own));
        let mut records = BTreeMap::<PodUid, PodRecord>::new();
        for found in sandboxes.chain(containers).flatten().filter(|it| pods.contains(&it.uid)) {
            let known = records.entry(found.uid.clone());
            known.and_modify(|known| merge(known, &found)).or_insert(found);
        }
        Ok(records.into_values().collect())
    }
}

/// The record of the pod of a sandbox or container with these labels; `None` unless it has all labels of `own`: a runtime that
/// takes no notice of a filter lists what other agents run.
fn own_record(
    labels: &StringMap,
    annotations: &StringMap,
    created_at: i64,
    own: &StringMap,
) -> Option<PodRecord> {
    let is_own = own.iter().all(|(name, value)| labels.get(name) == Some(value));
    is_own.then(|| record(labels, annotations, created_at)).flatten()
}

/// The record of the pod of a sandbox or container with these labels; `None` if they are not those of a pod.
pub(crate) fn record(
    labels: &StringMap,
    annotations: &StringMap,
    created_at: i64,
) -> Option<PodRecord> {
    let text = |name: &str| labels.get(name).map(String::as_str);
    let grace = annotations.get(GRACE).and_then(|seconds| seconds.parse::<u64>().ok());
    Some(PodRecord {
        uid: pod_uid(text(POD_UID)?)?,
        key: ResourceKey::new(Some(text(POD_NAMESPACE)?), "pod", text(POD_NAME)?).ok()?,
        grace_seconds: grace.unwrap_or(GRACE_DEFAULT.as_secs()),
        seen_at: time(created_at).unwrap_or_else(Timestamp::now),
        seen_in_boot: None,
        is_static: annotations.get(SOURCE).is_some_and(|source| source == FILE),
    })
}

/// Adds what another part of the pod says: a sandbox names the source, and a container the grace period.
fn merge(record: &mut PodRecord, other: &PodRecord) {
    if record.grace_seconds == GRACE_DEFAULT.as_secs() {
        record.grace_seconds = other.grace_seconds;
    }
    record.seen_at = record.seen_at.min(other.seen_at);
    record.is_static |= other.is_static;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DIR_LABEL, NODE_LABEL};

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn labels(node: &str, dir: &str) -> StringMap {
        let pod = [(POD_NAME, "web"), (POD_NAMESPACE, "shop"), (POD_UID, "u1")];
        let own = [(NODE_LABEL, node), (DIR_LABEL, dir)];
        map(&[&pod[..], &own[..]].concat())
    }

    #[test]
    fn a_pod_is_named_by_the_labels_of_this_node_and_of_no_other() {
        let own = map(&[(NODE_LABEL, "gw-1"), (DIR_LABEL, "/d")]);
        let second = 1_000_000_000;
        let file = map(&[(SOURCE, FILE)]);
        let mut found =
            own_record(&labels("gw-1", "/d"), &file, 7 * second, &own).expect("a record");
        assert_eq!((found.uid.as_str(), found.key.to_string()), ("u1", "shop/pod/web".to_owned()));
        let container = map(&[(GRACE, "2")]);
        let container = own_record(&labels("gw-1", "/d"), &container, 9 * second, &own);
        merge(&mut found, &container.expect("a record"));
        assert_eq!((found.grace_seconds, found.seen_at.as_second()), (2, 7));
        assert!(found.is_static);
        for others in [labels("gw-2", "/d"), labels("gw-1", "/e"), map(&[(POD_UID, "u1")])] {
            assert_eq!(own_record(&others, &file, second, &own), None, "{others:?}");
        }
    }
}
