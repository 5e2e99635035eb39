//! Which pod uses which volume, and what is staged on the node. Pure.
//!
//! ```text
//!   begin_use -> begin_stage -> staged -> published      a pod comes
//!   end_use ... (no user is left) ... end_stage          the last pod goes
//! ```
//!
//! A pod is a user before its volume is staged: what is staged and has no user is to be taken back. What a call with an
//! unknown outcome has left is there until its counterpart has succeeded.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::inline_handle;

/// A volume of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// Its driver.
    pub driver: String,
    /// The driver's name of it.
    pub handle: String,
}

/// A volume of a pod: the pod's UID, and the name by which its folder goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodVolume {
    /// The pod's UID.
    pub pod: String,
    /// The name.
    pub spec_name: String,
}

/// What was done, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The call may have acted.
    Begun,
    /// The call has succeeded.
    Done,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    uses: BTreeMap<PodVolume, (VolumeId, Progress)>,
    staged: BTreeMap<VolumeId, Progress>,
}

impl Ledger {
    /// Notes that the pod uses the volume. Returns whether it did not before.
    pub fn begin_use(&mut self, place: PodVolume, id: VolumeId) -> bool {
        self.uses.insert(place, (id, Progress::Begun)).is_none()
    }

    /// Notes that the volume is about to be staged. Returns whether it was not before.
    pub fn begin_stage(&mut self, id: VolumeId) -> bool {
        self.staged.insert(id, Progress::Begun).is_none()
    }

    /// The volume is staged.
    pub fn set_staged(&mut self, id: &VolumeId) {
        if let Some(progress) = self.staged.get_mut(id) {
            *progress = Progress::Done;
        }
    }

    /// The volume is published for the pod.
    pub fn set_published(&mut self, place: &PodVolume) {
        if let Some((_, progress)) = self.uses.get_mut(place) {
            *progress = Progress::Done;
        }
    }

    /// The pod uses the volume no longer.
    pub fn end_use(&mut self, place: &PodVolume) {
        self.uses.remove(place);
    }

    /// The volume is not staged any more.
    pub fn end_stage(&mut self, id: &VolumeId) {
        self.staged.remove(id);
    }

    /// Whether the volume is staged, as far as it is known.
    pub fn stage_of(&self, id: &VolumeId) -> Option<Progress> {
        self.staged.get(id).copied()
    }

    /// The volume that the pod has there.
    pub fn use_of(&self, place: &PodVolume) -> Option<(&VolumeId, Progress)> {
        self.uses.get(place).map(|(id, progress)| (id, *progress))
    }

    /// The volumes of a pod.
    pub fn of_pod(&self, pod: &str) -> Vec<(PodVolume, VolumeId)> {
        let own = self.uses.iter().filter(|(place, _)| place.pod == pod);
        own.map(|(place, (id, _))| (place.clone(), id.clone())).collect()
    }

    /// Whether a pod uses the volume.
    pub fn is_used(&self, id: &VolumeId) -> bool {
        self.uses.values().any(|(used, _)| used == id)
    }

    /// The volumes that exist without a pod: those that a pod uses, and those that are staged.
    pub fn persistent(&self) -> BTreeSet<&VolumeId> {
        let used = self
            .uses
            .iter()
            .filter(|(place, (id, _))| id.handle != inline_handle(&place.pod, &place.spec_name));
        used.map(|(_, (id, _))| id).chain(self.staged.keys()).collect()
    }

    /// The staged volumes that no pod uses.
    pub fn unused(&self) -> Vec<VolumeId> {
        self.staged.keys().filter(|id| !self.is_used(id)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> VolumeId {
        VolumeId { driver: "d".to_owned(), handle: "h".to_owned() }
    }

    fn place(pod: &str) -> PodVolume {
        PodVolume { pod: pod.to_owned(), spec_name: "pv".to_owned() }
    }

    #[test]
    fn a_volume_is_taken_back_after_its_last_pod() {
        let mut ledger = Ledger::default();
        assert!(ledger.begin_use(place("a"), id()));
        assert!(ledger.begin_stage(id()));
        assert_eq!(ledger.unused(), []);
        ledger.set_staged(&id());
        ledger.set_published(&place("a"));
        assert!(ledger.begin_use(place("b"), id()));
        ledger.end_use(&place("a"));
        assert_eq!(ledger.unused(), [], "the other pod uses it");
        assert_eq!(ledger.of_pod("a"), []);
        ledger.end_use(&place("b"));
        assert_eq!(ledger.unused(), [id()]);
        ledger.end_stage(&id());
        assert_eq!((ledger.unused(), ledger.stage_of(&id())), (Vec::new(), None));
    }

    #[test]
    fn a_volume_is_in_use_until_it_is_not_staged_any_more_and_one_of_a_pod_alone_never() {
        let mut ledger = Ledger::default();
        let inline = VolumeId { handle: inline_handle("a", "pv"), ..id() };
        ledger.begin_use(place("a"), inline);
        assert_eq!(ledger.persistent(), BTreeSet::new());
        ledger.begin_use(place("b"), id());
        ledger.begin_stage(id());
        ledger.end_use(&place("b"));
        assert_eq!(ledger.persistent(), BTreeSet::from([&id()]));
        ledger.end_stage(&id());
        assert_eq!(ledger.persistent(), BTreeSet::new());
    }

    #[test]
    fn a_use_that_begins_again_is_uncertain_again() {
        let mut ledger = Ledger::default();
        ledger.begin_use(place("a"), id());
        ledger.set_published(&place("a"));
        assert_eq!(ledger.use_of(&place("a")), Some((&id(), Progress::Done)));
        assert!(!ledger.begin_use(place("a"), id()));
        assert_eq!(ledger.use_of(&place("a")), Some((&id(), Progress::Begun)));
    }
}
