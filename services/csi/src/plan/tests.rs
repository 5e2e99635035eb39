//! What a driver is asked.

use std::collections::BTreeMap;

use headwater_edged::container::driver_volume::DriverSecrets;

use super::*;
use crate::proto::NodeServiceCapability;
use crate::proto::node_service_capability::Rpc;

fn map(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn volume(source: VolumeSource) -> DriverVolume {
    DriverVolume {
        volume: "data".to_owned(),
        spec_name: "pv".to_owned(),
        driver: "disk.example.com".to_owned(),
        source,
        is_block: false,
        fs_type: "ext4".to_owned(),
        access_mode: AccessMode::ReadWriteOnce,
        mount_options: vec!["noatime".to_owned()],
        read_only: true,
        attributes: map(&[("tier", "fast")]),
        pod_info: map(&[("csi.storage.k8s.io/pod.name", "web")]),
        attachment: map(&[("device", "/dev/x")]),
        stage_secrets: DriverSecrets(map(&[("key", "stage")])),
        publish_secrets: DriverSecrets(map(&[("key", "publish")])),
        tokens: DriverSecrets(map(&[("tokens", "of the account")])),
        republishes: false,
        group: Some(VolumeGroup { id: 7, gives_files: true, only_on_mismatch: false }),
    }
}

fn persistent() -> DriverVolume {
    volume(VolumeSource::Persistent { handle: "h".to_owned() })
}

fn of(volume: &DriverVolume, can: Capabilities) -> Requests {
    requests(volume, "h", can, Path::new("/stage"), Path::new("/target"))
}

#[test]
fn a_driver_that_stages_gets_each_secret_and_context_in_its_own_call() {
    let found = of(&persistent(), Capabilities { stages: true, ..Capabilities::default() });
    let stage = found.stage.expect("it stages");
    assert_eq!(stage.staging_target_path, "/stage");
    assert_eq!(stage.secrets["key"], "stage");
    assert_eq!(stage.volume_context.len(), 1, "no word of the pod, and none of its tokens");
    let publish = found.publish;
    assert_eq!((&*publish.staging_target_path, &*publish.target_path), ("/stage", "/target"));
    assert_eq!(publish.secrets["key"], "publish");
    assert_eq!(publish.volume_context["csi.storage.k8s.io/pod.name"], "web");
    assert_eq!(publish.volume_context["tokens"], "of the account");
    assert_eq!((&*publish.publish_context["device"], publish.readonly), ("/dev/x", true));
    assert!(found.group.is_some(), "the node gives the files");
}

#[test]
fn without_the_capability_nothing_is_staged_and_an_inline_volume_never_is() {
    for (volume, stages) in [(persistent(), false), (volume(VolumeSource::Inline), true)] {
        let found = of(&volume, Capabilities { stages, ..Capabilities::default() });
        assert!(found.stage.is_none());
        assert_eq!(found.publish.staging_target_path, "");
    }
}

#[test]
fn a_block_device_has_no_file_system_in_either_call() {
    let volume = DriverVolume { is_block: true, group: None, ..persistent() };
    let found = of(&volume, Capabilities { stages: true, ..Capabilities::default() });
    let stage = found.stage.expect("it stages");
    for capability in [stage.volume_capability, found.publish.volume_capability] {
        let access = capability.and_then(|it| it.access_type);
        assert_eq!(access, Some(AccessType::Block(BlockVolume {})));
    }
    assert_eq!(&*found.publish.target_path, "/target");
}

#[test]
fn a_driver_that_knows_groups_gives_the_files_itself() {
    let can = Capabilities { mount_group: true, stages: true, ..Capabilities::default() };
    let found = of(&persistent(), can);
    assert_eq!(found.group, None);
    let group = |capability: Option<VolumeCapability>| {
        let Some(AccessType::Mount(mount)) = capability.and_then(|it| it.access_type) else {
            panic!("a mount")
        };
        mount.volume_mount_group
    };
    assert_eq!(group(found.publish.volume_capability), "7");
    assert_eq!(group(found.stage.and_then(|stage| stage.volume_capability)), "7");
}

#[test]
fn access_modes_are_those_of_a_kubelet() {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
    for (mode, multi_writer, expected) in [
        (ReadWriteOnce, false, Mode::SingleNodeWriter),
        (ReadWriteOnce, true, Mode::SingleNodeMultiWriter),
        (ReadWriteOncePod, false, Mode::SingleNodeWriter),
        (ReadWriteOncePod, true, Mode::SingleNodeSingleWriter),
        (ReadOnlyMany, true, Mode::MultiNodeReaderOnly),
        (ReadWriteMany, false, Mode::MultiNodeMultiWriter),
    ] {
        let volume = DriverVolume { access_mode: mode, ..persistent() };
        let found = of(&volume, Capabilities { multi_writer, ..Capabilities::default() });
        let found = found.publish.volume_capability.and_then(|it| it.access_mode);
        assert_eq!(found.map(|it| it.mode), Some(expected.into()), "{mode:?} {multi_writer}");
    }
}

#[test]
fn capabilities_that_are_none_are_left_out() {
    let one = |number| NodeServiceCapability {
        r#type: Some(CapabilityType::Rpc(Rpc { r#type: number })),
    };
    let none = NodeServiceCapability { r#type: None };
    let response =
        NodeGetCapabilitiesResponse { capabilities: vec![one(-1), none, one(1), one(4711)] };
    let expected = Capabilities { stages: true, ..Capabilities::default() };
    assert_eq!(Capabilities::of(&response), expected);
}
