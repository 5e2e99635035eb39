//! What volumes hold.

use serde_json::{Value, json};

use super::super::requests::Amounts;
use super::super::token::{Token, TokenFile};
use super::super::volume::VolumeFile;
use super::super::volume_files::is_safe_path;
use super::*;
use headwater_object::TokenClaim;

fn resolved(volume: Value, objects: &Objects) -> Result<VolumeContent, WaitReason> {
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web", "tier": "front"}});
    let spec = json!({"containers": [], "volumes": [volume]});
    let pod: Pod =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
    let fields = FieldSource::on_a_test_node(&pod);
    let token = |claim: &TokenClaim| match claim.audience.as_deref() {
        None => Ok(TokenFile::Token(Token::new("for the API", ""))),
        Some("kept") => Ok(TokenFile::Kept),
        Some("absent") => Ok(TokenFile::Absent),
        Some(_) => Err("no cloud".to_owned()),
    };
    resolve(&fields, objects, &token).map(|mut volumes| volumes.remove(0).content)
}

fn objects(all: &[(&str, Value)]) -> Objects {
    let mut objects = Objects::default();
    for (key, object) in all {
        let key = key.parse().expect("a key");
        objects.insert(&key, "", object.to_string().as_bytes()).expect("an object");
    }
    objects
}

fn files(content: VolumeContent) -> Vec<(String, String, u32)> {
    let VolumeContent::Files(files) = content else { panic!("no files: {content:?}") };
    let text = |file: &VolumeFile| {
        String::from_utf8_lossy(file.bytes.as_deref().expect("content")).into_owned()
    };
    files.iter().map(|(name, file)| (name.clone(), text(file), file.mode)).collect()
}

fn file(name: &str, text: &str, mode: u32) -> (String, String, u32) {
    (name.to_owned(), text.to_owned(), mode)
}

#[test]
fn a_config_map_is_all_its_keys_or_the_items_with_their_modes() {
    let map = json!({"data": {"a": "1"}, "binaryData": {"b": "Mg=="}});
    let objects = objects(&[("shop/configmap/m", map)]);
    let all = json!({"name": "v", "configMap": {"name": "m", "defaultMode": 0o600}});
    let all = files(resolved(all, &objects).expect("there"));
    assert_eq!(all, [file("a", "1", 0o600), file("b", "2", 0o600)]);
    let some = json!({"name": "v", "configMap": {
        "name": "m", "items": [{"key": "b", "path": "deep/b", "mode": 0o400}]}});
    assert_eq!(files(resolved(some, &objects).expect("there")), [file("deep/b", "2", 0o400)]);
}

#[test]
fn what_is_missing_is_named_unless_it_is_optional() {
    let objects = objects(&[("shop/secret/s", json!({"data": {}}))]);
    let item = json!([{"key": "k", "path": "k"}]);
    for (volume, named) in [
        (json!({"configMap": {"name": "m"}}), "configmap \"m\" not found"),
        (json!({"secret": {"secretName": "t"}}), "secret \"t\" not found"),
        (json!({"secret": {"secretName": "s", "items": item}}), "secret \"s\" has no key \"k\""),
        (
            json!({"projected": {"sources": [{"configMap": {"name": "m"}}]}}),
            "configmap \"m\" not found",
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            "persistentvolumeclaim \"c\" not found",
        ),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let waiting = resolved(volume, &objects).expect_err("missing");
        assert_eq!(waiting.reason, "ContainerCreating");
        let wanted = format!("MountVolume.SetUp failed for volume \"v\" : {named}");
        assert_eq!(waiting.message, wanted);
    }
    let optional = json!({"name": "v", "configMap": {"name": "m", "optional": true}});
    assert_eq!(files(resolved(optional, &objects).expect("optional")), []);
}

#[test]
fn a_projected_volume_joins_its_sources() {
    let objects = objects(&[
        ("shop/configmap/m", json!({"data": {"a": "1"}})),
        ("shop/secret/s", json!({"data": {"b": "Mg=="}})),
    ]);
    let volume = json!({"name": "v", "projected": {"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "m"}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"serviceAccountToken": {"path": "token"}},
        {"serviceAccountToken": {"path": "none", "audience": "absent"}},
    ]}});
    let labels = "app=\"web\"\ntier=\"front\"";
    let wanted = [
        file("a", "1", 0o440),
        file("b", "2", 0o440),
        file("labels", labels, 0o440),
        file("token", "for the API", 0o440),
    ];
    assert_eq!(files(resolved(volume, &objects).expect("there")), wanted);
}

#[test]
fn a_token_that_is_not_there_is_named_or_kept() {
    let source = |audience: &str| {
        json!({"name": "v", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "audience": audience}}]}})
    };
    let objects = Objects::default();
    let waiting = resolved(source("vault"), &objects).expect_err("missing");
    let wanted = "MountVolume.SetUp failed for volume \"v\" : failed to fetch token: no cloud";
    assert_eq!((waiting.reason, &*waiting.message), ("ContainerCreating", wanted));
    let VolumeContent::Files(kept) = resolved(source("kept"), &objects).expect("there") else {
        panic!("no files");
    };
    assert_eq!(kept["token"], VolumeFile { bytes: None, mode: 0o644, owner: None });
    let mut outside = source("vault");
    outside["projected"]["sources"][0]["serviceAccountToken"]["path"] = json!("../token");
    let waiting = resolved(outside, &objects).expect_err("outside");
    assert!(waiting.message.contains("leaves the volume"), "{}", waiting.message);
}

#[test]
fn a_path_that_leaves_the_volume_is_never_laid() {
    for bad in ["", "/a", "a//b", "../a", "a/../b", "a/..", ".", "..data", "..data/a", "a\0"] {
        assert!(!is_safe_path(bad), "{bad:?}");
    }
    for good in ["a", "a/b", ".hidden", "a.b"] {
        assert!(is_safe_path(good), "{good:?}");
    }
}

#[test]
fn a_claim_is_its_volumes_path_or_a_directory_of_the_node() {
    let claim = |volume: &str| json!({"spec": {"volumeName": volume}});
    let objects = objects(&[
        ("shop/persistentvolumeclaim/bound", claim("pv")),
        ("shop/persistentvolumeclaim/far", claim("nfs")),
        ("shop/persistentvolumeclaim/free", json!({"metadata": {"uid": "c3"}, "spec": {}})),
        ("null/persistentvolume/pv", json!({"spec": {"hostPath": {"path": "/srv/data"}}})),
        ("null/persistentvolume/nfs", json!({"spec": {"nfs": {"path": "/", "server": "n"}}})),
    ]);
    let content = |name: &str| {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        resolved(volume, &objects).expect("there")
    };
    let host = VolumeContent::Host { path: "/srv/data".to_owned(), kind: String::new() };
    assert_eq!(content("bound"), host);
    let VolumeContent::Claim { claim: own, group: None } = content("free") else {
        panic!("no directory")
    };
    assert_eq!((own.name.to_string().as_str(), own.uid.as_str()), ("shop/free", "c3"));
    assert!(matches!(content("far"), VolumeContent::Unsupported { .. }));
}

#[test]
fn a_local_block_device_is_checked_and_what_has_none_is_refused() {
    let claim = |volume: Option<&str>| {
        json!({
        "metadata": {"uid": "c1"}, "spec": {"volumeName": volume, "volumeMode": "Block"}})
    };
    let volume = |source: Value| {
        let mut spec = source;
        spec["volumeMode"] = "Block".into();
        json!({"spec": spec})
    };
    let objects = objects(&[
        ("shop/persistentvolumeclaim/disk", claim(Some("disk"))),
        ("shop/persistentvolumeclaim/folder", claim(Some("folder"))),
        ("shop/persistentvolumeclaim/free", claim(None)),
        ("null/persistentvolume/disk", volume(json!({"local": {"path": "/dev/sdb"}}))),
        ("null/persistentvolume/folder", volume(json!({"hostPath": {"path": "/srv"}}))),
    ]);
    let content = |name: &str| {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        resolved(volume, &objects).map_err(|reason| reason.message)
    };
    let path = "/dev/sdb".to_owned();
    assert_eq!(content("disk"), Ok(VolumeContent::Local { path, is_block: true, group: None }));
    for (name, word) in [("folder", "use local"), ("free", "a directory of the node")] {
        let why = content(name).expect_err(word);
        assert!(why.contains(word) && why.contains(name), "{why}");
    }
}

#[test]
fn a_local_volume_and_a_claim_have_the_pods_group_unless_they_are_only_read() {
    let objects = objects(&[
        ("shop/persistentvolumeclaim/bound", json!({"spec": {"volumeName": "disk"}})),
        ("shop/persistentvolumeclaim/free", json!({"metadata": {"uid": "c3"}, "spec": {}})),
        ("null/persistentvolume/disk", json!({"spec": {"local": {"path": "/mnt/disk"}}})),
    ]);
    let group = |claim: &str, read_only: bool, policy: Option<&str>| {
        let source = json!({"claimName": claim, "readOnly": read_only});
        let security = json!({"fsGroup": 7, "fsGroupChangePolicy": policy});
        let volumes = json!([{"name": "v", "persistentVolumeClaim": source}]);
        let spec = json!({"containers": [], "volumes": volumes, "securityContext": security});
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1"});
        let pod: Pod =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
        let token = |_: &TokenClaim| Ok(TokenFile::Absent);
        let volumes = resolve(&FieldSource::on_a_test_node(&pod), &objects, &token);
        match volumes.expect("there").remove(0).content {
            VolumeContent::Local { group, .. } | VolumeContent::Claim { group, .. } => group,
            other => panic!("{other:?}"),
        }
    };
    let given = |only_on_mismatch| Some(VolumeGroup { id: 7, gives_files: true, only_on_mismatch });
    for claim in ["bound", "free"] {
        assert_eq!(group(claim, false, None), given(false), "{claim}");
        assert_eq!(group(claim, false, Some("OnRootMismatch")), given(true), "{claim}");
        assert_eq!(group(claim, true, None), None, "{claim}");
    }
}

#[test]
fn volumes_that_share_one_object_are_bounded_in_sum() {
    let map = json!({"data": {"big": "x".repeat(1 << 20)}});
    let objects = objects(&[("shop/configmap/m", map)]);
    let item = |at: usize| json!({"key": "big", "path": format!("{at}")});
    let volume = |items: usize| {
        let items: Vec<Value> = (0..items).map(item).collect();
        json!({"name": "v", "configMap": {"name": "m", "items": items}})
    };
    assert_eq!(files(resolved(volume(31), &objects).expect("it fits")).len(), 31);
    let refused = resolved(volume(32), &objects).expect_err("too much");
    assert!(refused.message.contains("more than 33554432 bytes"), "{}", refused.message);
}

#[test]
fn an_empty_dir_in_memory_has_the_least_of_its_bounds() {
    let node = Amounts { memory_bytes: 1 << 30, ..Amounts::default() };
    let of = |source: Value, limit: Value, node: Amounts| {
        let mut container = json!({"name": "c"});
        if !limit.is_null() {
            container["resources"] = json!({"limits": {"memory": limit}});
        }
        let volume = json!({"name": "v", "emptyDir": source});
        let spec = json!({"containers": [container], "volumes": [volume]});
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        let fields = FieldSource { allocatable: node, ..FieldSource::on_a_test_node(&pod) };
        let token = |_: &TokenClaim| Ok(TokenFile::Absent);
        let volumes = resolve(&fields, &Objects::default(), &token).expect("resolved");
        let VolumeContent::Empty { memory_bytes_max } = volumes[0].content else {
            panic!("{volumes:?}")
        };
        memory_bytes_max
    };
    let (memory, none) = (json!({"medium": "Memory"}), Amounts::default());
    let small = json!({"medium": "Memory", "sizeLimit": "1Mi"});
    for (source, limit, node, expected) in [
        (json!({}), json!("1Mi"), node, None),
        (json!({"medium": "HugePages"}), json!("1Mi"), node, None),
        (memory.clone(), Value::Null, node, Some(1 << 30)),
        (memory.clone(), json!("64Mi"), node, Some(64 << 20)),
        (memory.clone(), json!("2Gi"), node, Some(1 << 30)),
        (small.clone(), json!("64Mi"), node, Some(1 << 20)),
        (small, Value::Null, none, Some(1 << 20)),
        (memory, Value::Null, none, Some(0)),
    ] {
        let words = format!("{source} {limit}");
        assert_eq!(of(source, limit, node), expected, "{words}");
    }
}

#[test]
fn an_ephemeral_volume_is_the_claim_that_was_made_for_its_pod() {
    let claim = |owner: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true});
        json!({
            "metadata": {"name": "web-v", "namespace": "shop", "uid": "c1", "ownerReferences": [owner]},
            "spec": {"volumeName": "disk"},
        })
    };
    let disk = json!({"metadata": {"name": "disk"}, "spec": {"hostPath": {"path": "/srv"}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let found = |owner: Option<&str>| {
        let mut all = vec![("null/persistentvolume/disk", disk.clone())];
        all.extend(owner.map(|owner| ("shop/persistentvolumeclaim/web-v", claim(owner))));
        resolved(volume.clone(), &objects(&all)).map_err(|reason| reason.message)
    };
    let host = VolumeContent::Host { path: "/srv".to_owned(), kind: String::new() };
    assert_eq!(found(Some("u1")), Ok(host));
    let why = found(Some("u2")).expect_err("it is another pod's");
    assert!(why.contains("PVC shop/web-v was not created for pod shop/web"), "{why}");
    let why = found(None).expect_err("it is not there");
    assert!(why.contains("persistentvolumeclaim \"web-v\" not found"), "{why}");
}
