//! The sockets by which plugins register: which are new, which come again, which have gone. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

/// The first wait after a plugin was not registered.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest one, as a kubelet's.
const RETRY_MAX: Duration = Duration::from_secs(122);

/// The sockets that are looked at. Every one costs calls.
pub const SOCKETS_MAX: usize = 128;

/// The identity of a socket: a plugin that starts again makes another one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId {
    /// The number of its file.
    pub inode: u64,
    /// When it was made, in nanoseconds.
    pub made_ns: i128,
}

/// What to do about a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The plugin has gone, or is about to register again.
    Forget(PathBuf),
    /// Ask it which driver it is.
    Register(PathBuf, SocketId),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Sockets(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
struct Entry {
    id: SocketId,
    step: Step,
    failures: u32,
}

#[derive(Debug)]
enum Step {
    Asked,
    Registered,
    Failed { retry_at: Instant },
}

impl Sockets {
    /// Compares what is in the folder with what is known.
    pub fn look(&mut self, found: &BTreeMap<PathBuf, SocketId>, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        self.0.retain(|path, known| {
            let stays = found.get(path) == Some(&known.id);
            if !stays {
                changes.push(Change::Forget(path.clone()));
            }
            stays
        });
        for (path, id) in found {
            if let Some(known) = self.0.get_mut(path) {
                if matches!(known.step, Step::Failed { retry_at } if retry_at <= now) {
                    known.step = Step::Asked;
                    changes.push(Change::Register(path.clone(), *id));
                }
            } else if self.0.len() < SOCKETS_MAX {
                let known = Entry { id: *id, step: Step::Asked, failures: 0 };
                self.0.insert(path.clone(), known);
                changes.push(Change::Register(path.clone(), *id));
            }
        }
        changes
    }

    /// Notes the outcome of a registration. Returns whether the socket is still the same.
    pub fn end(&mut self, path: &PathBuf, id: SocketId, is_registered: bool, now: Instant) -> bool {
        let Some(known) = self.0.get_mut(path).filter(|known| known.id == id) else { return false };
        if is_registered {
            (known.step, known.failures) = (Step::Registered, 0);
        } else {
            known.step = Step::Failed { retry_at: now + wait_after(known.failures) };
            known.failures = known.failures.saturating_add(1);
        }
        true
    }
}

/// The wait after so many failures before this one: it doubles.
pub(crate) fn wait_after(failures: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << failures.min(16)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(all: &[(&str, u64)]) -> BTreeMap<PathBuf, SocketId> {
        let id = |inode| SocketId { inode, made_ns: 0 };
        all.iter().map(|(path, inode)| (PathBuf::from(path), id(*inode))).collect()
    }

    #[test]
    fn a_socket_registers_once_goes_and_comes_again() {
        let (mut sockets, now) = (Sockets::default(), Instant::now());
        let register = |inode| Change::Register("a".into(), SocketId { inode, made_ns: 0 });
        assert_eq!(sockets.look(&found(&[("a", 1)]), now), [register(1)]);
        assert_eq!(sockets.look(&found(&[("a", 1)]), now), [], "it is asked");
        assert!(sockets.end(&"a".into(), SocketId { inode: 1, made_ns: 0 }, true, now));
        assert_eq!(sockets.look(&found(&[("a", 1)]), now), []);
        let again = sockets.look(&found(&[("a", 2)]), now);
        assert_eq!(again, [Change::Forget("a".into()), register(2)]);
        assert!(
            !sockets.end(&"a".into(), SocketId { inode: 1, made_ns: 0 }, true, now),
            "an answer of the former one is none"
        );
        assert_eq!(sockets.look(&found(&[]), now), [Change::Forget("a".into())]);
    }

    #[test]
    fn a_failure_is_tried_again_with_growing_waits() {
        let (mut sockets, mut now) = (Sockets::default(), Instant::now());
        let (path, id) = (PathBuf::from("a"), SocketId { inode: 1, made_ns: 0 });
        sockets.look(&found(&[("a", 1)]), now);
        for wait in [1, 2, 4, 8, 16, 32, 64, 122, 122] {
            assert!(sockets.end(&path, id, false, now));
            let wait = Duration::from_secs(wait);
            let early = now + wait - Duration::from_millis(1);
            assert_eq!(sockets.look(&found(&[("a", 1)]), early), []);
            now += wait;
            assert_eq!(sockets.look(&found(&[("a", 1)]), now).len(), 1);
        }
    }

    #[test]
    fn a_folder_full_of_sockets_is_bounded() {
        let mut sockets = Sockets::default();
        let all: Vec<String> = (0..SOCKETS_MAX + 9).map(|number| number.to_string()).collect();
        let all: Vec<(&str, u64)> = all.iter().map(|name| (name.as_str(), 1)).collect();
        assert_eq!(sockets.look(&found(&all), Instant::now()).len(), SOCKETS_MAX);
    }
}
