//! The decisions about the mirror of a static pod.
//!
//! | stated | the API shows | request |
//! |---|---|---|
//! | a pod | nothing | create |
//! | a pod | a mirror of this file | |
//! | a pod | a mirror of another file, or one under deletion | delete; then create |
//! | no pod, by a complete statement | a mirror | delete |
//! | | a pod that is no mirror | |
//!
//! A mirror decides nothing, so its deletion waits for no container.

use super::memory::Purpose;
use super::plan::{Facts, NO_CONTENT, PUT_RIGHT_MS, Step};
use crate::cluster_view::{Deletion, PodView};
use crate::mirror_pod::StaticPod;

/// The next request for a mirror. `is_gone`: the node states that no file has the pod.
pub(super) fn plan_mirror(
    stated: Option<&StaticPod>,
    is_gone: bool,
    view: Option<&PodView>,
    facts: &Facts<'_>,
) -> Step {
    if facts.now_ms < facts.memory.not_before_ms {
        return Step::Wait { until_ms: facts.memory.not_before_ms };
    }
    if !facts.presence.is_present {
        return Step::Rest;
    }
    let is_open = |purpose, content, order| !facts.memory.is_settled(purpose, content, order);
    match (stated, view) {
        (Some(pod), None) if is_open(Purpose::CreateMirror, pod.digest(), None) => {
            Step::Call(Purpose::CreateMirror)
        }
        (stated, Some(view)) => {
            let Some(hash) = view.mirrored.as_deref() else { return Step::Rest };
            let is_wanted = match stated {
                Some(pod) => *pod.hash == *hash && view.deletion == Deletion::None,
                None => !is_gone,
            };
            if is_wanted || !is_open(Purpose::DeleteMirror, *NO_CONTENT, view.order) {
                return Step::Rest;
            }
            // It was created with this hash, and another writer changed it.
            let written = facts.memory.written(Purpose::CreateMirror);
            let is_changed =
                |pod: &StaticPod| written.filter(|written| written.desired == pod.digest());
            match stated.and_then(is_changed).map(|written| written.at_ms + PUT_RIGHT_MS) {
                Some(until_ms) if facts.now_ms < until_ms && view.deletion == Deletion::None => {
                    Step::Wait { until_ms }
                }
                _ => Step::Call(Purpose::DeleteMirror),
            }
        }
        _ => Step::Rest,
    }
}

#[cfg(test)]
mod tests {
    use headwater_controller::NodePresence;
    use serde_json::json;

    use super::super::memory::ObjectMemory;
    use super::*;
    use crate::cluster_view::ClusterView;
    use crate::kind::Kind;
    use crate::mirror_pod::StatedPods;
    use crate::raw_object::RawObject;
    use crate::reflector;

    fn stated(hash: &str) -> StatedPods {
        let annotations = json!({"kubernetes.io/config.hash": hash});
        let pod = json!({
            "metadata": {"name": "web-gw", "namespace": "d", "annotations": annotations},
            "spec": {"nodeName": "gw"},
        });
        let text = json!({"complete": true, "pods": [pod]}).to_string();
        StatedPods::parse(&text, "gw").expect("a statement")
    }

    /// A pod of the API, with the annotation of a mirror if `hash` is one.
    fn shown(hash: Option<&str>, is_deleting: bool) -> PodView {
        let view = ClusterView::default();
        let node = json!({"metadata": {"name": "gw", "uid": "n", "resourceVersion": "1"}});
        let mut pod = json!({
            "metadata": {"name": "web-gw", "namespace": "d", "uid": "u", "resourceVersion": "2"},
            "spec": {"nodeName": "gw"},
        });
        if let Some(hash) = hash {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": hash});
        }
        if is_deleting {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        view.step(Kind::Node, &reflector::Step::Apply(RawObject::new(node)));
        view.step(Kind::Pod, &reflector::Step::Apply(RawObject::new(pod)));
        let key = "d/pod/web-gw".parse().expect("a key");
        view.lock().pod(&key).cloned().expect("a pod")
    }

    fn plan(hash: Option<&str>, is_gone: bool, view: Option<&PodView>) -> Step {
        let memory = ObjectMemory::default();
        let presence = NodePresence { is_present: true, has_drained: true };
        let stated = hash.map(stated).and_then(|stated| stated.pods.into_values().next());
        let facts = Facts { presence, memory: &memory, now_ms: 0 };
        plan_mirror(stated.as_deref(), is_gone, view, &facts)
    }

    #[test]
    fn each_row_of_the_table_has_its_request() {
        let (create, delete) =
            (Step::Call(Purpose::CreateMirror), Step::Call(Purpose::DeleteMirror));
        let (of_file, of_other) = (shown(Some("h"), false), shown(Some("other"), false));
        let (deleting, pod) = (shown(Some("h"), true), shown(None, false));
        for (hash, is_gone, view, step) in [
            (Some("h"), false, None, create),
            (Some("h"), false, Some(&of_file), Step::Rest),
            (Some("h"), false, Some(&of_other), delete),
            (Some("h"), false, Some(&deleting), delete),
            (None, true, Some(&of_file), delete),
            (None, false, Some(&of_file), Step::Rest),
            (None, true, None, Step::Rest),
            (Some("h"), false, Some(&pod), Step::Rest),
            (None, true, Some(&pod), Step::Rest),
        ] {
            assert_eq!(plan(hash, is_gone, view), step, "{hash:?} {is_gone} {view:?}");
        }
    }

    #[test]
    fn nothing_is_written_of_a_node_that_is_away_and_what_is_refused_waits() {
        let pod = stated("h").pods.into_values().next().expect("a pod");
        let mut memory = ObjectMemory::default();
        let away = NodePresence { is_present: false, has_drained: false };
        let facts = Facts { presence: away, memory: &memory, now_ms: 0 };
        assert_eq!(plan_mirror(Some(&pod), false, None, &facts), Step::Rest);
        memory.note_settled(Purpose::CreateMirror, pod.digest(), None);
        let presence = NodePresence { is_present: true, has_drained: true };
        let facts = Facts { presence, memory: &memory, now_ms: 0 };
        assert_eq!(plan_mirror(Some(&pod), false, None, &facts), Step::Rest);
        let other = stated("h2").pods.into_values().next().expect("a pod");
        let create = Step::Call(Purpose::CreateMirror);
        assert_eq!(plan_mirror(Some(&other), false, None, &facts), create);
    }
}
