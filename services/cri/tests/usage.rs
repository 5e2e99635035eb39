//! What pods take of the machine, whether they run or not.

use std::collections::BTreeMap;

use headwater_cri::{CriSettings, open};
use headwater_cri_lab::Twin;
use headwater_edged::container::volume::{Volume, VolumeContent, VolumeFile};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::{NOTICES_MAX, Settings};
use tokio::sync::mpsc;

/// The size of the pod's file.
const FILE_BYTES: usize = 1 << 20;

fn record(name: &str) -> PodRecord {
    PodRecord {
        uid: PodUid::try_from(format!("usage-{name}")).expect("a UID"),
        key: format!("shop/pod/{name}").parse().expect("a key"),
        grace_seconds: 30,
        seen_at: jiff::Timestamp::UNIX_EPOCH,
        seen_in_boot: None,
        is_static: false,
    }
}

/// A container that fails again and again keeps its volumes between its runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_which_nothing_runs_is_measured_by_what_it_has_on_the_disk() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let twin = Twin::start(&dir.path().join("cri.sock")).expect("a twin");
    let (notices, _noticed) = mpsc::channel(NOTICES_MAX);
    let node = "edge-1".parse().expect("a name");
    let cri = CriSettings::new(twin.socket().to_owned());
    let (own, settings) = (dir.path().join("edged"), Settings::default());
    let runtime = open(&cri, &node, &own, &settings, notices).await.expect("the runtime opens");
    let file = VolumeFile { bytes: Some(vec![7; FILE_BYTES]), mode: 0o644, owner: None };
    let volume = Volume {
        name: "own".to_owned(),
        content: VolumeContent::Files(BTreeMap::from([("file".to_owned(), file)])),
        is_secret: false,
    };
    let (waits, other) = (record("waits"), record("other"));
    runtime.write_volumes(&waits, &[volume]).await.expect("the volume");

    let usage = runtime.usage().expect("it is measured");
    let measured = usage.pods().await.expect("a usage");
    let [pod] = &measured[..] else { panic!("one pod is here: {measured:?}") };
    assert_eq!((&pod.pod, pod.containers.len()), (&waits.uid, 0));
    assert!(pod.volumes.bytes >= FILE_BYTES as u64, "{pod:?}");
    let names = ["own".to_owned()];
    let disk = usage.disk(&waits.uid, &names).await.expect("a usage").expect("it is here");
    assert!(disk.volumes["own"].bytes >= FILE_BYTES as u64, "{disk:?}");
    assert_eq!(usage.disk(&other.uid, &names).await.expect("a usage"), None);

    runtime.remove(&waits).await.expect("it is removed");
    assert_eq!(usage.pods().await.expect("a usage"), []);
    assert_eq!(usage.disk(&waits.uid, &names).await.expect("a usage"), None);
}
