//! The ends of containers in a runtime that the node had before.

use super::PodStore;
use crate::disk::durable_file;
use crate::disk::file_error::{FileError, blocking};
use crate::disk::paths::Paths;
use crate::pod::PodUid;
use crate::worker::FormerRuns;

impl PodStore {
    /// The ends of the pod's containers in the former runtime; none if there are none.
    pub(crate) fn former_runs(&self, pod: &PodUid) -> FormerRuns {
        self.read(pod, Paths::former_runs).unwrap_or_default()
    }

    /// Writes the ends of the pod's containers in the former runtime. Does nothing if the pod has no record, or if they are
    /// written already: a removal that was cut off has left only a part of the containers, and has lost which of them were
    /// stopped.
    ///
    /// # Errors
    /// The errors of the file system. There are no ends.
    pub(crate) async fn write_former_runs(
        &self,
        pod: &PodUid,
        runs: &FormerRuns,
    ) -> Result<(), FileError> {
        if self.paths.as_ref().is_some_and(|paths| paths.former_runs(pod).exists()) {
            return Ok(());
        }
        self.write(pod, Paths::former_runs, runs).await
    }

    /// Removes the ends durably. Succeeds if there are none.
    ///
    /// # Errors
    /// The errors of the file system. The ends may stay.
    pub(crate) async fn remove_former_runs(&self, pod: &PodUid) -> Result<(), FileError> {
        let Some(path) = self.paths.as_ref().map(|paths| paths.former_runs(pod)) else {
            return Ok(());
        };
        let remove =
            move || durable_file::remove_durably(&path).map_err(FileError::new("remove", &path));
        blocking(remove).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::container::termination::StopSignal;
    use crate::pod::PodRecord;
    use crate::runtime::{Exit, PodState, RunHistory, RunState};
    use crate::worker::ends_that_count;

    /// The ends of these containers, which have ended by themselves with these codes.
    fn ends(codes: &[(&str, i32)]) -> FormerRuns {
        let history = |code: i32| RunHistory {
            attempt: 0,
            sandbox_attempt: 0,
            state: RunState::Exited(Exit::observed(code, None, Timestamp::UNIX_EPOCH)),
            previous: None,
            image_id: None,
            stop_signal: StopSignal::default(),
        };
        let containers = codes.iter().map(|(name, code)| ((*name).to_owned(), history(*code)));
        let state = PodState { containers: containers.collect(), ..PodState::default() };
        ends_that_count(&state, &BTreeMap::new())
    }

    #[tokio::test]
    async fn the_first_ends_stay_until_they_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = PodStore::open(dir.path()).expect("opens");
        let uid = PodUid::try_from("u1".to_owned()).expect("a UID");
        let record = PodRecord {
            uid: uid.clone(),
            key: "shop/pod/web".parse().expect("a key"),
            grace_seconds: 30,
            seen_at: Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        };
        store.insert(&record).await.expect("written");
        let both = ends(&[("main", 3), ("init", 0)]);
        store.write_former_runs(&uid, &both).await.expect("written");
        // An earlier removal has left one of the containers, and no word of why it ended.
        store.write_former_runs(&uid, &ends(&[("main", 137)])).await.expect("not written");
        assert_eq!(store.former_runs(&uid), both);
        for _ in 0..2 {
            store.remove_former_runs(&uid).await.expect("removed");
            assert_eq!(store.former_runs(&uid), FormerRuns::new());
        }
        let later = ends(&[("main", 4)]);
        store.write_former_runs(&uid, &later).await.expect("written");
        assert_eq!(PodStore::open(dir.path()).expect("opens").former_runs(&uid), later);
    }
}
