//! The pod worker's own files of pods: the record of every pod on this node, and the status that was
//! last reported of it. They are the same for every runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use headwater_event::ResourceKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::RwLock;

use super::durable_file;
use super::file_error::{FileError, blocking};
use super::mounts::check_none_below;
use super::paths::{Paths, entries};
use crate::pod::{GRACE_DEFAULT, PodRecord, PodUid};
use crate::worker::CrashRecord;

mod ending;
mod former_runs;

/// The records of the pods on this node.
#[derive(Debug)]
pub(crate) struct PodStore {
    /// `None`: the runtime's pods end with this process, and so do their records.
    paths: Option<Paths>,
    pods: Mutex<BTreeMap<PodUid, PodRecord>>,
    /// The pods whose records could not be read: only the names of their logs are known of them.
    unread: Mutex<BTreeSet<PodUid>>,
    /// One worker writes the record of a pod, and many write those of their pods at a time. What is recovered is written while
    /// no worker writes: both may have the same pod.
    writing: RwLock<()>,
}

impl PodStore {
    /// A store without files, for pods that end with this process.
    pub(crate) fn in_memory() -> Self {
        Self::new(None, BTreeMap::new(), BTreeSet::new())
    }

    fn new(
        paths: Option<Paths>,
        pods: BTreeMap<PodUid, PodRecord>,
        unread: BTreeSet<PodUid>,
    ) -> Self {
        Self {
            paths,
            pods: Mutex::new(pods),
            unread: Mutex::new(unread),
            writing: RwLock::default(),
        }
    }

    /// Opens the store in the pod worker's directory and reads all records.
    ///
    /// # Errors
    /// The directory cannot be made or listed. A pod directory that cannot be read is logged and
    /// left alone.
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        let dir = std::path::absolute(dir).map_err(FileError::new("resolve", dir))?;
        let paths = Paths::new(dir);
        let path = paths.pods();
        create_pods(paths.above(), &path).map_err(FileError::new("create", &path))?;
        let (mut pods, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for entry in entries(&path).map_err(FileError::new("list", &path))? {
            match read(&paths, &entry.path()) {
                Ok(Some(record)) => {
                    pods.insert(record.uid.clone(), record);
                }
                Ok(None) => {}
                Err(error) => {
                    let path = entry.path();
                    let Some(record) = recover(&paths, &path) else {
                        let path = path.display();
                        tracing::warn!(%path, %error, "a pod directory is left alone");
                        continue;
                    };
                    tracing::warn!(
                        path = %path.display(), pod = %record.key, %error,
                        "a pod's record cannot be read; its logs name the pod"
                    );
                    unread.insert(record.uid.clone());
                    pods.insert(record.uid.clone(), record);
                }
            }
        }
        Ok(Self::new(Some(paths), pods, unread))
    }

    /// The records of all pods.
    pub(crate) fn pods(&self) -> Vec<PodRecord> {
        self.with(|pods| pods.values().cloned().collect())
    }

    /// Whether the pod has a record.
    pub(crate) fn contains(&self, pod: &PodUid) -> bool {
        self.with(|pods| pods.contains_key(pod))
    }

    /// Makes the pod's directory, which only the owner may enter, and writes its record durably.
    /// Does nothing if the pod has a record.
    ///
    /// # Errors
    /// The errors of the file system. The pod has no record.
    pub(crate) async fn insert(&self, record: &PodRecord) -> Result<(), FileError> {
        let _writing = self.writing.read().await;
        if self.contains(&record.uid) {
            return Ok(());
        }
        self.write_record(record).await
    }

    /// Writes a record that was recovered: of a pod that has none, or whose record could not be read. Does nothing if the
    /// pod's record is known.
    ///
    /// # Errors
    /// The errors of the file system. The pod has the record of before, if it had one.
    pub(crate) async fn insert_recovered(&self, record: &PodRecord) -> Result<(), FileError> {
        let _writing = self.writing.write().await;
        let is_unread = self.with_unread(|unread| unread.contains(&record.uid));
        if self.contains(&record.uid) && !is_unread {
            return Ok(());
        }
        self.write_record(record).await?;
        self.with_unread(|unread| unread.remove(&record.uid));
        Ok(())
    }

    /// The pods whose records could not be read.
    pub(crate) fn unread(&self) -> BTreeSet<PodUid> {
        self.with_unread(|unread| unread.clone())
    }

    /// Nothing more will be known of these pods than the names of their logs.
    pub(crate) fn settle(&self, pods: &BTreeSet<PodUid>) {
        self.with_unread(|unread| unread.retain(|pod| !pods.contains(pod)));
    }

    async fn write_record(&self, record: &PodRecord) -> Result<(), FileError> {
        if let Some(paths) = self.paths.clone() {
            let record = record.clone();
            blocking(move || {
                let (dir, path) = (paths.pod(&record.uid), paths.record(&record.uid));
                durable_file::create_dir(&paths.pods(), &dir)
                    .map_err(FileError::new("create", &dir))?;
                durable_file::write(&path, &record).map_err(FileError::new("write", &path))
            })
            .await?;
        }
        self.with(|pods| pods.insert(record.uid.clone(), record.clone()));
        Ok(())
    }

    /// The status that was last reported of the pod. Without one the status is reported once more.
    pub(crate) fn status(&self, pod: &PodUid) -> Option<PodStatus> {
        self.read(pod, Paths::status)
    }

    /// Writes the status that was reported of the pod. Does nothing if the pod has no record.
    ///
    /// # Errors
    /// The errors of the file system. The former status stays.
    pub(crate) async fn write_status(
        &self,
        pod: &PodUid,
        status: &PodStatus,
    ) -> Result<(), FileError> {
        self.write(pod, Paths::status, status).await
    }

    /// The waits of the pod's failing containers, by name.
    pub(crate) fn waits(&self, pod: &PodUid) -> BTreeMap<String, CrashRecord> {
        self.read(pod, Paths::waits).unwrap_or_default()
    }

    /// Writes the waits of the pod's failing containers. Does nothing if the pod has no record.
    ///
    /// # Errors
    /// The errors of the file system. The former waits stay.
    pub(crate) async fn write_waits(
        &self,
        pod: &PodUid,
        waits: &BTreeMap<String, CrashRecord>,
    ) -> Result<(), FileError> {
        self.write(pod, Paths::waits, waits).await
    }

    /// The latest run of each container from before the pod's last restart of all containers, by name.
    pub(crate) fn restart(&self, pod: &PodUid) -> BTreeMap<String, u32> {
        self.read(pod, Paths::restart).unwrap_or_default()
    }

    /// Writes the runs from before a restart of all containers. Does nothing if the pod has no record.
    ///
    /// # Errors
    /// The errors of the file system. The former runs stay.
    pub(crate) async fn write_restart(
        &self,
        pod: &PodUid,
        runs: &BTreeMap<String, u32>,
    ) -> Result<(), FileError> {
        self.write(pod, Paths::restart, runs).await
    }

    /// Removes what is known of the runs of the pod's containers: they are counted from 0 again.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) async fn forget_runs(&self, pod: &PodUid) -> Result<(), FileError> {
        let Some(paths) = &self.paths else { return Ok(()) };
        let files = [paths.waits(pod), paths.restart(pod)];
        blocking(move || {
            files.into_iter().try_for_each(|path| {
                durable_file::remove(&path).map_err(FileError::new("remove", &path))
            })
        })
        .await
    }

    /// Reads a file of a pod. One that cannot be read is taken for absent: it is written anew.
    fn read<T: DeserializeOwned>(
        &self,
        pod: &PodUid,
        path: impl FnOnce(&Paths, &PodUid) -> PathBuf,
    ) -> Option<T> {
        durable_file::read(&path(self.paths.as_ref()?, pod)).ok().flatten()
    }

    /// Writes a file of a pod that has a record.
    async fn write<T: Clone + Serialize + Send + 'static>(
        &self,
        pod: &PodUid,
        path: impl FnOnce(&Paths, &PodUid) -> PathBuf,
        content: &T,
    ) -> Result<(), FileError> {
        let Some(paths) = self.paths.as_ref().filter(|_| self.contains(pod)) else { return Ok(()) };
        let (path, content) = (path(paths, pod), content.clone());
        let write =
            move || durable_file::write(&path, &content).map_err(FileError::new("write", &path));
        blocking(write).await
    }

    /// Removes the pod's directory, then its record from memory. It can be repeated.
    ///
    /// # Errors
    /// The errors of the file system. A part of the directory may be removed.
    pub(crate) async fn remove(&self, pod: &PodUid) -> Result<(), FileError> {
        if let Some(paths) = &self.paths {
            let path = paths.pod(pod);
            blocking(move || {
                let removed = check_none_below(&path).and_then(|()| fs::remove_dir_all(&path));
                durable_file::or_absent(removed).map_err(FileError::new("remove", &path))
            })
            .await?;
        }
        self.with(|pods| pods.remove(pod));
        self.with_unread(|unread| unread.remove(pod));
        Ok(())
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PodUid, PodRecord>) -> T) -> T {
        // No code under this lock panics half-way: the map is whole even if a thread died.
        work(&mut self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_unread<T>(&self, work: impl FnOnce(&mut BTreeSet<PodUid>) -> T) -> T {
        // As in `with`.
        work(&mut self.unread.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Makes the directory of pods. `above` belongs to the caller of the pod worker and exists as a
/// rule.
fn create_pods(above: &Path, pods: &Path) -> io::Result<()> {
    if !above.as_os_str().is_empty() {
        fs::create_dir_all(above)?;
    }
    durable_file::create_dir(above, pods)
}

/// The record in a pod's directory. A directory without one is removed if no container has a run in
/// it: a crash interrupted its creation before anything could run.
fn read(paths: &Paths, dir: &Path) -> io::Result<Option<PodRecord>> {
    let uid = uid_of(dir)?;
    match durable_file::read::<PodRecord>(&paths.record(&uid))? {
        // The directory's name is the pod's UID, whatever the file states.
        Some(record) => Ok(Some(PodRecord { uid, ..record })),
        None if !entries(&paths.containers(&uid))?.is_empty() => {
            Err(io::Error::new(io::ErrorKind::NotFound, "it has runs and no record"))
        }
        None => check_none_below(dir).and_then(|()| fs::remove_dir_all(dir)).map(|()| None),
    }
}

fn uid_of(dir: &Path) -> io::Result<PodUid> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    PodUid::try_from(name.to_owned()).map_err(invalid)
}

/// The record of a pod that cannot be read, from the name of its logs. The pod ends in its turn, and
/// nothing runs beside its successor. A runtime that keeps names has more of it: see
/// [`PodStore::unread`].
fn recover(paths: &Paths, dir: &Path) -> Option<PodRecord> {
    let uid = uid_of(dir).ok()?;
    let key = entries(&paths.all_logs()).ok()?.iter().find_map(|entry| {
        let name = entry.file_name();
        // Kubernetes' names have no underscore.
        let key = name.to_str()?.strip_suffix(uid.as_str())?.strip_suffix('_')?;
        let (namespace, name) = key.split_once('_')?;
        ResourceKey::new(Some(namespace), "pod", name).ok()
    })?;
    Some(PodRecord {
        uid,
        key,
        grace_seconds: GRACE_DEFAULT.as_secs(),
        seen_at: Timestamp::now(),
        seen_in_boot: None,
        is_static: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> PodRecord {
        PodRecord {
            uid: PodUid::try_from(uid.to_owned()).expect("a UID"),
            key: "shop/pod/web".parse().expect("a key"),
            grace_seconds: 30,
            seen_at: Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        }
    }

    #[tokio::test]
    async fn a_store_that_is_opened_again_has_the_records_and_statuses_of_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = PodStore::open(dir.path()).expect("opens");
        let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        store.write_status(&record("u1").uid, &status).await.expect("ignored");
        for uid in ["u1", "u2"] {
            store.insert(&record(uid)).await.expect("written");
        }
        store.write_status(&record("u1").uid, &status).await.expect("written");
        let waits = BTreeMap::from([("main".to_owned(), CrashRecord { attempt: 3, wait_ms: 20 })]);
        store.write_waits(&record("u1").uid, &waits).await.expect("written");
        let runs = BTreeMap::from([("main".to_owned(), 4)]);
        store.write_restart(&record("u1").uid, &runs).await.expect("written");
        store.remove(&record("u2").uid).await.expect("removed");
        store.remove(&record("u2").uid).await.expect("removed again");
        // A crash interrupted the creation of this one.
        fs::create_dir(dir.path().join("pods/u3")).expect("a directory");
        fs::create_dir(dir.path().join("pods/..bad")).expect("a directory");

        let again = PodStore::open(dir.path()).expect("opens");
        assert_eq!(again.pods(), [record("u1")]);
        assert_eq!(again.status(&record("u1").uid), Some(status));
        assert_eq!(again.waits(&record("u1").uid), waits);
        assert_eq!(again.restart(&record("u1").uid), runs);
        assert_eq!(again.status(&record("u2").uid), None);
        assert!(!dir.path().join("pods/u3").exists(), "nothing ran in it");
        assert!(dir.path().join("pods/..bad").exists(), "it is left alone");
    }

    #[test]
    fn a_record_that_cannot_be_read_never_removes_a_run_and_is_recovered_from_the_logs() {
        let dir = tempfile::tempdir().expect("a directory");
        for (uid, text) in [("u1", Some("torn")), ("u2", None), ("u3", Some("torn"))] {
            let pod = dir.path().join("pods").join(uid);
            fs::create_dir_all(pod.join("containers/main/0")).expect("a run");
            if let Some(text) = text {
                fs::write(pod.join("pod.json"), text).expect("written");
            }
        }
        for logs in ["shop_web_u1", "shop_web_u2"] {
            fs::create_dir_all(dir.path().join("logs").join(logs)).expect("logs");
        }
        let pods = PodStore::open(dir.path()).expect("opens").pods();
        let found: Vec<_> =
            pods.iter().map(|pod| (pod.uid.as_str(), pod.key.to_string())).collect();
        let web = || "shop/pod/web".to_owned();
        assert_eq!(found, [("u1", web()), ("u2", web())], "the third has no logs to name it");
        for uid in ["u1", "u2", "u3"] {
            assert!(dir.path().join("pods").join(uid).join("containers/main/0").is_dir(), "{uid}");
        }
    }

    #[tokio::test]
    async fn a_recovered_record_takes_the_place_of_one_that_cannot_be_read_and_of_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        PodStore::open(dir.path()).expect("opens").insert(&record("u2")).await.expect("written");
        fs::create_dir_all(dir.path().join("pods/u1/containers/main/0")).expect("a run");
        fs::write(dir.path().join("pods/u1/pod.json"), "torn").expect("written");
        fs::create_dir_all(dir.path().join("logs/shop_web_u1")).expect("logs");

        let store = PodStore::open(dir.path()).expect("opens");
        let torn = record("u1").uid;
        assert_eq!(store.unread(), BTreeSet::from([torn.clone()]));
        // What a worker has of the pod comes from the record that is known.
        store.insert(&record("u1")).await.expect("ignored");
        assert_eq!(store.unread(), BTreeSet::from([torn]));
        let recovered = |uid: &str| PodRecord { is_static: true, grace_seconds: 5, ..record(uid) };
        for uid in ["u1", "u2", "u3"] {
            store.insert_recovered(&recovered(uid)).await.expect("inserted");
        }
        let expected = [recovered("u1"), record("u2"), recovered("u3")];
        assert_eq!(store.pods(), expected);
        assert_eq!(store.unread(), BTreeSet::new());
        let again = PodStore::open(dir.path()).expect("opens");
        assert_eq!((again.pods(), again.unread()), (expected.to_vec(), BTreeSet::new()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_and_a_recovery_never_write_the_record_of_one_pod_both() {
        /// So often both begin at a time.
        const ROUNDS: usize = 20;
        let dir = tempfile::tempdir().expect("a directory");
        let store = std::sync::Arc::new(PodStore::open(dir.path()).expect("opens"));
        for round in 0..ROUNDS {
            let own = record(&format!("u{round}"));
            let recovered = PodRecord { grace_seconds: 5, ..own.clone() };
            let worker = tokio::spawn({
                let store = store.clone();
                async move { store.insert(&own).await }
            });
            store.insert_recovered(&recovered).await.expect("inserted");
            worker.await.expect("it ends").expect("inserted");
        }
        let again = PodStore::open(dir.path()).expect("opens");
        assert_eq!(again.pods(), store.pods(), "the disk and the memory have the same records");
        assert_eq!(again.pods().len(), ROUNDS);
    }

    #[tokio::test]
    async fn a_store_in_memory_writes_no_file() {
        let store = PodStore::in_memory();
        store.insert(&record("u1")).await.expect("inserted");
        store.write_status(&record("u1").uid, &PodStatus::default()).await.expect("ignored");
        assert_eq!(store.pods(), [record("u1")]);
        assert_eq!(store.status(&record("u1").uid), None);
        store.remove(&record("u1").uid).await.expect("removed");
        assert_eq!(store.pods(), []);
    }
}
