//! Parts that are killed, frozen, and started again.

use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};

use crate::kubectl::{Kubectl as _, config_map, control_plane, only_api, pod};

#[test]
fn objects_are_there_when_it_starts_again_on_its_data() {
    let scratch = tempfile::tempdir().expect("a folder");
    let settings = || ControlPlaneSettings {
        data: Some(scratch.path().join("data")),
        ..ControlPlaneSettings::default()
    };
    let mut cluster = ControlPlane::start(settings()).expect("a control plane");
    let uid = cluster.create(&config_map("settings"));
    let user = cluster.kubeconfig_of("reader", Some("system:masters")).expect("a kubeconfig");
    cluster.stop().expect("it stops");
    drop(cluster);
    // At other ports, and with the same CA.
    let cluster = ControlPlane::start(settings()).expect("it starts again");
    assert_eq!(cluster.uid("configmap/settings"), uid);
    let user = user.display().to_string();
    let read = ["--kubeconfig", &user, "--server", cluster.server(), "get", "configmaps"];
    assert!(cluster.run(&read).contains("settings"));
}

#[test]
fn a_kill_of_every_part_loses_no_object_and_the_work_goes_on() {
    let mut cluster = control_plane();
    cluster.create_node("gw-1");
    let uid = cluster.create(&pod("before"));
    cluster.kill().expect("they can be killed");
    for part in Part::ALL {
        assert_eq!(cluster.part(part).pid(), None, "{part:?}");
    }
    cluster.refused(&["get", "pods"]);
    cluster.resume().expect("they start again");
    assert_eq!(cluster.uid("pod/before"), uid);
    cluster.create(&pod("after"));
    for pod in ["pod/before", "pod/after"] {
        cluster.wait_for(pod, ".spec.nodeName", "gw-1");
    }
}

#[test]
fn a_killed_api_server_comes_back_at_its_address_while_the_others_run() {
    let mut cluster = control_plane();
    let others = [Part::Etcd, Part::ControllerManager, Part::Scheduler];
    let pids = others.map(|part| cluster.part(part).pid());
    let before = cluster.part(Part::ApiServer).pid();
    cluster.part(Part::ApiServer).kill().expect("it can be killed");
    cluster.part(Part::ApiServer).start().expect("it starts again");
    assert_ne!(cluster.part(Part::ApiServer).pid(), before);
    // They find it again by themselves.
    cluster.create_node("gw-1");
    cluster.create(&pod("after"));
    cluster.wait_for("pod/after", ".spec.nodeName", "gw-1");
    assert_eq!(others.map(|part| cluster.part(part).pid()), pids);
}

#[test]
fn a_frozen_api_server_answers_nothing_until_it_is_thawed() {
    let mut cluster = ControlPlane::start(only_api()).expect("a control plane");
    let uid = cluster.create(&config_map("settings"));
    cluster.part(Part::ApiServer).freeze().expect("it can be frozen");
    let asked = Instant::now();
    let read = ["--request-timeout=1s", "get", "configmap", "settings"];
    let refused = cluster.refused(&read);
    assert!(asked.elapsed() >= Duration::from_secs(1), "an answer: {refused}");
    cluster.part(Part::ApiServer).thaw().expect("it can be thawed");
    assert_eq!(cluster.uid("configmap/settings"), uid);
}
