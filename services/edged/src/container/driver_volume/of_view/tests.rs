//! Volumes of drivers, from the objects of a view.

use headwater_object::TokenClaim;
use serde_json::{Value, json};

use super::*;
use crate::container::driver_volume::VolumeSource;
use crate::container::token::{Token, TokenFile};
use crate::container::volume::VolumeContent;
use crate::container::volume_content::resolve;

const DRIVER: &str = "disk.example.com";

fn view(all: &[(&str, Value)]) -> Objects {
    let mut objects = Objects::default();
    for (key, object) in all {
        let key = key.parse().expect("a key");
        objects.insert(&key, "", object.to_string().as_bytes()).expect("an object");
    }
    objects
}

/// A bound claim, its volume and the volume's secret.
fn claimed(driver: Option<Value>, attachment: Option<Value>) -> Objects {
    let csi = json!({
        "driver": DRIVER, "volumeHandle": "h-1", "fsType": "ext4",
        "volumeAttributes": {"tier": "fast"},
        "nodeStageSecretRef": {"name": "disk", "namespace": "storage"},
    });
    let spec = json!({"csi": csi, "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"]});
    let mut all = vec![
        (
            "shop/persistentvolumeclaim/data",
            json!({
            "metadata": {"name": "data", "uid": "c1"}, "spec": {"volumeName": "pv-1"}}),
        ),
        ("null/persistentvolume/pv-1", json!({"metadata": {"name": "pv-1"}, "spec": spec})),
        ("storage/secret/disk", json!({"metadata": {"name": "disk"}, "stringData": {"key": "s"}})),
    ];
    if let Some(spec) = driver {
        all.push((
            "null/csidriver/disk.example.com",
            json!({"metadata": {"name": DRIVER}, "spec": spec}),
        ));
    }
    if let Some(attachment) = attachment {
        all.push(("null/volumeattachment/csi-1", attachment));
    }
    view(&all)
}

fn attachment(status: Value) -> Value {
    json!({
        "metadata": {"name": "csi-1"},
        "spec": {"attacher": DRIVER, "nodeName": "gw-1", "source": {"persistentVolumeName": "pv-1"}},
        "status": status,
    })
}

fn of(volume: Value, objects: &Objects) -> Result<DriverVolume, String> {
    of_pod(json!({"name": "c"}), volume, objects)
}

/// The volume of a pod with this container.
fn of_pod(container: Value, volume: Value, objects: &Objects) -> Result<DriverVolume, String> {
    let security = json!({"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"});
    let spec = json!({"containers": [container], "volumes": [volume], "securityContext": security});
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1"});
    let pod: Pod =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
    let fields = FieldSource::on_a_test_node(&pod);
    let fields = FieldSource { node: "gw-1", ..fields };
    let tokens = |claim: &TokenClaim| match claim.audience.as_deref() {
        Some("vault") => Ok(TokenFile::Token(Token::new("SECRET", "2026-01-01T00:00:00Z"))),
        Some("kept") => Ok(TokenFile::Kept),
        _ => Err("no cloud".to_owned()),
    };
    let found = resolve(&fields, objects, &tokens);
    let found = found.map_err(|reason| reason.message)?.remove(0).content;
    let VolumeContent::Driver(volume) = found else { panic!("{found:?}") };
    Ok(*volume)
}

fn of_claim(objects: &Objects) -> Result<DriverVolume, String> {
    of(json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}), objects)
}

#[test]
fn a_claim_leads_to_the_volume_its_driver_and_its_secrets() {
    let driver = json!({"attachRequired": false, "podInfoOnMount": true});
    let volume = of_claim(&claimed(Some(driver), None)).expect("whole");
    assert_eq!((&*volume.volume, &*volume.spec_name), ("v", "pv-1"));
    assert_eq!(volume.source, VolumeSource::Persistent { handle: "h-1".to_owned() });
    assert_eq!(volume.access_mode, AccessMode::ReadWriteOnce);
    assert_eq!(
        (&*volume.fs_type, &volume.mount_options[..]),
        ("ext4", &["noatime".to_owned()][..])
    );
    assert_eq!(volume.stage_secrets.0["key"], "s");
    assert_eq!(volume.publish_secrets, DriverSecrets::default());
    assert_eq!(volume.attributes["tier"], "fast");
    assert_eq!(volume.pod_info["csi.storage.k8s.io/pod.uid"], "u1");
    assert_eq!(volume.pod_info["csi.storage.k8s.io/serviceAccount.name"], "default");
    assert_eq!(volume.pod_info["csi.storage.k8s.io/ephemeral"], "false");
    let group = VolumeGroup { id: 7, gives_files: true, only_on_mismatch: true };
    assert_eq!(volume.group, Some(group));
    let shown = format!("{:?}", DriverSecrets([("key".to_owned(), "SECRET".to_owned())].into()));
    assert!(shown.contains("key") && !shown.contains("SECRET"), "{shown}");
}

#[test]
fn a_driver_that_attaches_waits_for_the_attachment_and_gets_its_words() {
    for (found, word) in [
        (None, "it has no VolumeAttachment"),
        (Some(attachment(json!({"attached": false}))), "VolumeAttachment says so"),
        (
            Some(attachment(json!({"attached": false, "attachError": {"message": "no room"}}))),
            "no room",
        ),
    ] {
        for driver in [None, Some(json!({"attachRequired": true}))] {
            let why = of_claim(&claimed(driver, found.clone())).expect_err(word);
            assert!(why.contains("volume pv-1 is not attached") && why.contains(word), "{why}");
        }
    }
    let status = json!({"attached": true, "attachmentMetadata": {"device": "/dev/x"}});
    let volume = of_claim(&claimed(None, Some(attachment(status.clone())))).expect("attached");
    assert_eq!(volume.attachment["device"], "/dev/x");
    let mut elsewhere = attachment(status);
    elsewhere["spec"]["nodeName"] = json!("gw-2");
    of_claim(&claimed(None, Some(elsewhere))).expect_err("to another node");
}

#[test]
fn the_driver_decides_whose_group_the_files_are() {
    for (policy, gives_files) in
        [("None", false), ("File", true), ("ReadWriteOnceWithFSType", true)]
    {
        let driver = json!({"attachRequired": false, "fsGroupPolicy": policy});
        let volume = of_claim(&claimed(Some(driver), None)).expect("whole");
        assert_eq!(volume.group.map(|group| group.gives_files), Some(gives_files), "{policy}");
    }
}

#[test]
fn an_inline_volume_needs_a_driver_that_makes_such_and_its_own_secret() {
    let source = json!({
        "driver": DRIVER, "readOnly": true, "volumeAttributes": {"size": "1"},
        "nodePublishSecretRef": {"name": "own"},
    });
    let volume = json!({"name": "scratch", "csi": source});
    let object = |spec: Value| {
        ("null/csidriver/disk.example.com", json!({"metadata": {"name": DRIVER}, "spec": spec}))
    };
    let secret =
        ("shop/secret/own", json!({"metadata": {"name": "own"}, "stringData": {"a": "b"}}));
    let modes = |modes: Value| object(json!({"volumeLifecycleModes": modes}));
    for (objects, word) in [
        (view(&[]), "(no CSIDriver object)"),
        (view(&[modes(json!(null))]), "(only supports [Persistent])"),
        (view(&[modes(json!(["Ephemeral"]))]), "secret \"shop/own\" of the driver not found"),
    ] {
        let why = of(volume.clone(), &objects).expect_err(word);
        assert!(why.starts_with("MountVolume.SetUp failed for volume \"scratch\" : "), "{why}");
        assert!(why.contains(word), "{why}");
    }
    let objects = view(&[modes(json!(["Persistent", "Ephemeral"])), secret]);
    let found = of(volume, &objects).expect("whole");
    assert_eq!((&found.source, found.read_only), (&VolumeSource::Inline, true));
    assert_eq!(found.publish_secrets.0["a"], "b");
    assert!(found.pod_info.is_empty(), "the driver asks for nothing");
}

#[test]
fn a_driver_gets_the_tokens_that_it_asks_for_as_an_attribute_or_as_a_secret() {
    const KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";
    let of = |audiences: &[&str], in_secrets: bool| {
        let requests: Vec<_> = audiences.iter().map(|it| json!({"audience": it})).collect();
        let driver = json!({
            "attachRequired": false, "requiresRepublish": true, "tokenRequests": requests,
            "serviceAccountTokenInSecrets": in_secrets,
        });
        of_claim(&claimed(Some(driver), None))
    };
    let found = of(&["vault", "kept"], false).expect("whole");
    let token = r#"{"vault":{"expirationTimestamp":"2026-01-01T00:00:00Z","token":"SECRET"}}"#;
    assert_eq!((&*found.tokens.0[KEY], found.republishes), (token, true));
    assert!(!format!("{found:?}").contains("SECRET"), "{found:?}");
    let secret = of(&["vault"], true).expect("whole");
    assert!(secret.tokens.0.is_empty() && secret.publish_secrets.0[KEY].contains("SECRET"));
    let kept = of(&["kept"], false).expect("whole");
    assert!(kept.tokens.0.is_empty(), "the cloud issues none at present");
    let why = of(&["vault", "other"], false).expect_err("none yet");
    assert!(why.contains("failed to get service account token attributes: no cloud"), "{why}");
}

#[test]
fn a_volume_without_a_file_system_is_a_block_device_and_has_no_group() {
    let block = json!({"metadata": {"name": "pv-1"}, "spec": {
        "csi": {"driver": DRIVER, "volumeHandle": "h", "fsType": "ext4"}, "volumeMode": "Block",
        "accessModes": ["ReadWriteOnce"]}});
    let mut objects = claimed(Some(json!({"attachRequired": false})), None);
    let key = "null/persistentvolume/pv-1".parse().expect("a key");
    objects.insert(&key, "", block.to_string().as_bytes()).expect("a volume");
    let claim = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let mounts = json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let why = of_pod(mounts, claim(), &objects).expect_err("it is mounted");
    assert!(why.contains("is specified in volumeMounts"), "{why}");
    let device = json!({"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]});
    let found = of_pod(device, claim(), &objects).expect("whole");
    assert_eq!((found.is_block, found.group), (true, None));
}
