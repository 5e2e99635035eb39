//! Which objects of the picture may have changed, so that who watches it looks at those alone.
//!
//! Both halves of the picture, the sources' and the reports', tell here what they changed once it
//! can be seen. While nobody watches nothing is gathered.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_event::{EntryKey, NodeName, ResourceKey, StreamId};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::interest::Affected;

/// Keys that are told at once by name. A group of more says that anything may have changed: to
/// look at everything is then little more than to look at them one by one.
const KEYS_MAX: usize = 1_024;

/// Groups kept for a watch that does not ask just now; one that missed some looks at everything.
const KEPT_MAX: usize = 64;

/// Keys of a group; `None`: anything may have changed.
type Group = Option<Arc<[ResourceKey]>>;

/// What may have changed since it was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These, and nothing else.
    Keys(BTreeSet<ResourceKey>),
    /// Anything.
    Everything,
}

/// Hears what changes from when it was asked for.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Group>);

/// Where changes are told.
#[derive(Clone, Debug)]
pub(crate) struct Teller(broadcast::Sender<Group>);

/// Changes that cannot be seen yet.
#[derive(Debug)]
pub(crate) struct Gathered(Option<Vec<ResourceKey>>);

impl Changes {
    /// Waits for a change; gives all that there are by then. `None`: there will be no more. To
    /// give up the wait loses nothing.
    pub async fn next(&mut self) -> Option<Changed> {
        let mut changed = Changed::Keys(BTreeSet::new());
        changed.add(match self.0.recv().await {
            Ok(group) => group,
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => return None,
        });
        loop {
            changed.add(match self.0.try_recv() {
                Ok(group) => group,
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Some(changed),
            });
        }
    }
}

impl Changed {
    fn add(&mut self, group: Group) {
        match (group, self) {
            (Some(group), Self::Keys(keys)) => keys.extend(group.iter().cloned()),
            (Some(_), Self::Everything) => {}
            (None, changed) => *changed = Self::Everything,
        }
    }
}

impl Teller {
    /// Nobody listens yet.
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_MAX))
    }

    /// Hears what is told from now on.
    pub(crate) fn listen(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    /// Begins to gather changes, before the first is made.
    pub(crate) fn gather(&self) -> Gathered {
        // Who comes in between hears that anything may have changed.
        Gathered((self.0.receiver_count() > 0).then(Vec::new))
    }

    /// Tells what was gathered, now that it can be seen.
    pub(crate) fn tell(&self, gathered: Gathered) {
        if gathered.0.as_ref().is_none_or(|keys| !keys.is_empty()) {
            // Without anybody who listens there is nobody to tell.
            let _ = self.0.send(gathered.0.map(Arc::from));
        }
    }

    /// Tells that anything may have changed.
    pub(crate) fn tell_everything(&self) {
        self.tell(Gathered(None));
    }
}

impl Gathered {
    /// The object at `key` may have changed.
    pub(crate) fn object(&mut self, key: &ResourceKey) {
        match &mut self.0 {
            Some(keys) if keys.len() < KEYS_MAX => keys.push(key.clone()),
            keys => *keys = None,
        }
    }

    /// What is shown of `node` may have changed.
    pub(crate) fn node(&mut self, node: &NodeName) {
        // Every node name makes a key.
        if self.0.is_some()
            && let Ok(key) = ResourceKey::new(None, "node", node.as_str())
        {
            self.object(&key);
        }
    }

    /// The nodes whose streams came or went by a change: they are shown for as long.
    pub(crate) fn nodes_of(&mut self, affected: &[Affected]) {
        for entry in affected {
            if let (StreamId::Node(node), EntryKey::Streams) = (&entry.stream, &entry.key) {
                self.node(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(name: &str) -> ResourceKey {
        format!("d/pod/{name}").parse().expect("a key")
    }

    fn tell(teller: &Teller, names: &[&str]) {
        let mut gathered = teller.gather();
        names.iter().for_each(|name| gathered.object(&key(name)));
        teller.tell(gathered);
    }

    fn heard(changes: &mut Changes) -> Option<Changed> {
        changes.next().now_or_never().map(|changed| changed.expect("the teller is there"))
    }

    #[test]
    fn all_that_changed_meanwhile_is_heard_at_once() {
        let teller = Teller::new();
        tell(&teller, &["nobody-hears"]);
        let mut changes = teller.listen();
        assert_eq!(heard(&mut changes), None);
        tell(&teller, &["a", "b"]);
        tell(&teller, &[]);
        tell(&teller, &["b", "c"]);
        let keys = ["a", "b", "c"].map(key).into();
        assert_eq!(heard(&mut changes), Some(Changed::Keys(keys)));
        assert_eq!(heard(&mut changes), None);
        drop(teller);
        assert_eq!(changes.next().now_or_never(), Some(None));
    }

    #[test]
    fn who_comes_while_changes_are_gathered_misses_none() {
        let teller = Teller::new();
        let mut gathered = teller.gather();
        gathered.object(&key("a"));
        let mut changes = teller.listen();
        teller.tell(gathered);
        assert_eq!(heard(&mut changes), Some(Changed::Everything));
    }

    #[test]
    fn more_than_is_kept_is_anything() {
        let teller = Teller::new();
        let mut changes = teller.listen();
        let names: Vec<String> = (0..=KEYS_MAX).map(|number| format!("p{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tell(&teller, &names[1..]);
        let all = names[1..].iter().map(|name| key(name)).collect();
        assert_eq!(heard(&mut changes), Some(Changed::Keys(all)));
        tell(&teller, &names);
        tell(&teller, &["a"]);
        assert_eq!(heard(&mut changes), Some(Changed::Everything));
        (0..=KEPT_MAX).for_each(|_| tell(&teller, &["a"]));
        assert_eq!(heard(&mut changes), Some(Changed::Everything));
        tell(&teller, &["a"]);
        assert_eq!(heard(&mut changes), Some(Changed::Keys([key("a")].into())));
    }
}
