//! The mirrors of static pods.

use headwater_event::{NodeName, ResourceKey};

use super::super::draft::mirror_request;
use super::super::mirror_plan::plan_mirror;
use super::SinkRun;
use crate::cluster_view::ObjectId;
use crate::mirror_pod::StatedPods;

impl SinkRun {
    /// Takes the static pods that a node states. Their mirrors are compared, because its Node may have changed, too.
    pub(super) fn set_static_pods(&mut self, node: &NodeName, stated: Option<StatedPods>) {
        let mut pods = self.mirrors.set(node, stated);
        {
            let objects = self.view.lock();
            let shown = objects
                .pods_of(node)
                .filter(|pod| objects.pod(pod).is_some_and(|view| view.mirrored.is_some()));
            pods.extend(shown.cloned());
        }
        for pod in pods {
            self.mark(ObjectId::Mirror(pod));
        }
    }

    /// The API shows a pod otherwise than before, which may be a mirror, or have the name of one.
    pub(super) fn note_mirror(&mut self, pod: &ResourceKey) {
        let is_shown = self.view.lock().pod(pod).is_some_and(|view| view.mirrored.is_some());
        if !is_shown && self.mirrors.of(pod).is_none() {
            return;
        }
        let id = ObjectId::Mirror(pod.clone());
        if let Some(memory) = self.memories.get_mut(&id) {
            memory.end_pause();
        }
        self.mark(id);
    }

    pub(super) fn compare_mirror(&mut self, key: &ResourceKey) {
        let id = ObjectId::Mirror(key.clone());
        let stated = self.mirrors.of(key).map(|(node, pod)| (node.clone(), pod));
        let (mut view, node) = {
            let objects = self.view.lock();
            let view = objects.pod(key).cloned();
            let node = stated.as_ref().map(|(node, _)| node).or(view.as_ref().map(|it| &it.node));
            let node = node.and_then(|node| Some((node.clone(), objects.node(node)?.uid.clone())));
            (view, node)
        };
        let Some((node, node_uid)) = node else { return self.forget(&id) };
        // The mirror of another node is a pod as any other.
        if let Some(view) = view.as_mut().filter(|view| view.node != node) {
            view.mirrored = None;
        }
        let pod = stated.as_ref().map(|(_, pod)| &**pod);
        let is_gone = self.mirrors.is_complete(&node);
        let facts = self.facts(&id, &node_uid, &node);
        let step = plan_mirror(pod, is_gone, view.as_ref(), &facts);
        let hash = view.as_ref().and_then(|view| view.mirrored.as_deref());
        match (pod, view.as_ref(), hash) {
            (Some(_), Some(_), None) => {
                self.troubles.refuse(&id, "another pod has its name");
            }
            (Some(pod), _, Some(hash)) if *pod.hash == *hash => self.troubles.clear(&id),
            (None, None, _) => self.forget(&id),
            _ => {}
        }
        self.take_step(id, &node, step, |purpose| {
            mirror_request(purpose, key, pod, view.as_ref(), (&node, &node_uid))
        });
    }
}
