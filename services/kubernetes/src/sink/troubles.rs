//! What keeps the sink from writing, in sentences for a person.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{NodeName, ResourceKey};

use super::memory::Purpose;
use crate::cluster_view::ObjectId;

/// The most objects that are named.
const OBJECTS_MAX: usize = 100;

/// The most labels of a node that are named.
const NAMES_MAX: usize = 8;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    /// The rights that are missing.
    forbidden: BTreeMap<Purpose, String>,
    /// The objects that are not written, and why.
    objects: BTreeMap<ObjectId, String>,
    /// The labels that nodes report and may not set.
    labels: BTreeMap<NodeName, String>,
    /// A pod of another node of which a node reports a status, and that node.
    statuses: BTreeMap<NodeName, (ResourceKey, NodeName)>,
    /// The last Event of a node that is not written, and why.
    events: BTreeMap<NodeName, String>,
    /// Why there is no answer, of the last request.
    unanswered: Option<String>,
}

impl Troubles {
    /// A right is missing.
    pub(crate) fn forbid(&mut self, purpose: Purpose, message: String) {
        self.forbidden.insert(purpose, message);
    }

    /// The API server does what a purpose needs: its right is there.
    pub(crate) fn allow(&mut self, purpose: Purpose) {
        self.forbidden.remove(&purpose);
    }

    /// An object is not written. Returns whether the reason is new.
    pub(crate) fn refuse(&mut self, id: &ObjectId, reason: &str) -> bool {
        let is_new = self.objects.get(id).is_none_or(|named| named != reason);
        if self.objects.len() < OBJECTS_MAX || self.objects.contains_key(id) {
            self.objects.insert(id.clone(), reason.to_owned());
        }
        is_new
    }

    /// The labels that a node reports and may not set; none: nothing is wrong with them.
    pub(crate) fn set_refused_labels(&mut self, node: &NodeName, labels: &BTreeSet<String>) {
        if labels.is_empty() {
            self.labels.remove(node);
        } else if self.labels.len() < OBJECTS_MAX || self.labels.contains_key(node) {
            let names: Vec<&str> = labels.iter().map(String::as_str).take(NAMES_MAX).collect();
            self.labels.insert(node.clone(), names.join(", "));
        }
    }

    /// A node reports the status of a pod that is bound to another node; `None`: of no such pod.
    pub(crate) fn set_foreign_status(
        &mut self,
        node: &NodeName,
        foreign: Option<(&ResourceKey, &NodeName)>,
    ) {
        match foreign {
            None => drop(self.statuses.remove(node)),
            Some((pod, of))
                if self.statuses.len() < OBJECTS_MAX || self.names_statuses_of(node) =>
            {
                self.statuses.insert(node.clone(), (pod.clone(), of.clone()));
            }
            Some(_) => {}
        }
    }

    /// Whether a node is named because of a status.
    pub(crate) fn names_statuses_of(&self, node: &NodeName) -> bool {
        self.statuses.contains_key(node)
    }

    /// Nothing is known of the statuses of the other nodes any more.
    pub(crate) fn retain_statuses(&mut self, is_there: impl Fn(&NodeName) -> bool) {
        self.statuses.retain(|node, _| is_there(node));
    }

    /// An Event of a node is not written.
    pub(crate) fn refuse_event(&mut self, node: &NodeName, event: &ResourceKey, reason: &str) {
        if self.events.len() < OBJECTS_MAX || self.events.contains_key(node) {
            let namespace = event.namespace().unwrap_or_default();
            let sentence = format!(
                "Event {namespace}/{} of node {node} is not written to the cluster: {reason}",
                event.name()
            );
            self.events.insert(node.clone(), sentence);
        }
    }

    /// A later Event of a node is written.
    pub(crate) fn accept_event(&mut self, node: &NodeName) {
        self.events.remove(node);
    }

    /// Nothing is wrong with an object any more.
    pub(crate) fn clear(&mut self, id: &ObjectId) {
        self.objects.remove(id);
    }

    /// The API server has answered; or why it has not.
    pub(crate) fn set_unanswered(&mut self, reason: Option<String>) {
        self.unanswered = reason;
    }

    /// The sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let forbidden = self.forbidden.iter().map(|(purpose, message)| {
            format!(
                "the API server does not let the controller {}: {message}; grant this right to its \
                 role; it is tried again every minute",
                purpose.right()
            )
        });
        let objects = self.objects.iter().map(|(id, reason)| match id {
            ObjectId::Node(node) => format!("Node {node} is not written to the cluster: {reason}"),
            ObjectId::Pod(pod) => format!(
                "the status of Pod {}/{} is not written to the cluster: {reason}",
                pod.namespace().unwrap_or_default(),
                pod.name()
            ),
            ObjectId::Mirror(pod) => format!(
                "the mirror of the static Pod {}/{} is not written to the cluster: {reason}",
                pod.namespace().unwrap_or_default(),
                pod.name()
            ),
        });
        let unanswered = self.unanswered.iter().map(|reason| {
            format!("statuses wait for the API server and are tried again: {reason}")
        });
        let labels = self.labels.iter().map(|(node, labels)| {
            format!(
                "Node {node} reports labels that a node may not set; they are left out: {labels}"
            )
        });
        let statuses = self.statuses.iter().map(|(node, (pod, of))| {
            format!(
                "Node {node} reports the status of Pod {}/{}, which is bound to node {of}; it is not written to the cluster",
                pod.namespace().unwrap_or_default(),
                pod.name()
            )
        });
        let events = self.events.values().cloned();
        let of_nodes = labels.chain(statuses).chain(events);
        forbidden.chain(objects).chain(of_nodes).chain(unanswered).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_names_the_object_or_the_right_until_it_is_gone() {
        let mut troubles = Troubles::default();
        let pod = ObjectId::Pod("d/pod/web".parse().expect("a key"));
        troubles.forbid(Purpose::PodStatus, "no".into());
        assert!(troubles.refuse(&pod, "too long") && troubles.refuse(&pod, "too large"));
        assert!(!troubles.refuse(&pod, "too large"), "is named already");
        let sentences = troubles.sentences();
        assert!(sentences[0].contains("patch pods/status: no; grant this right"), "{sentences:?}");
        assert!(sentences[1].contains("Pod d/web is not written"), "{sentences:?}");
        let node: NodeName = "gw".parse().expect("a name");
        troubles.refuse_event(&node, &"d/event/e.1".parse().expect("a key"), "not its own");
        let sentence = troubles.sentences().remove(2);
        assert!(sentence.contains("Event d/e.1 of node gw is not written"), "{sentence}");
        let other: NodeName = "other".parse().expect("a name");
        let foreign = "d/pod/web".parse().expect("a key");
        troubles.set_foreign_status(&node, Some((&foreign, &other)));
        let sentence = troubles.sentences().remove(2);
        let named = "Node gw reports the status of Pod d/web, which is bound to node other";
        assert!(sentence.starts_with(named), "{sentence}");
        troubles.retain_statuses(|of| *of == node);
        assert!(troubles.names_statuses_of(&node));
        troubles.set_foreign_status(&node, None);
        troubles.allow(Purpose::PodStatus);
        troubles.clear(&pod);
        troubles.accept_event(&node);
        assert_eq!(troubles, Troubles::default());
    }
}
