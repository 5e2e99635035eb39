//! Containers by the fields of their pods.

use headwater_edged::container::devices::{DeviceMount, DeviceNode};
use headwater_edged::container::{Propagation, RecursiveReadOnly};

use super::*;
use crate::proto::security_profile::ProfileType;
use crate::proto::{
    LinuxContainerResources, LinuxContainerSecurityContext, MountPropagation, NamespaceMode, Signal,
};

fn security(spec: Value, own: Value) -> LinuxContainerSecurityContext {
    let config = container(&pod(spec, json!({"securityContext": own})));
    config.linux.and_then(|linux| linux.security_context).expect("a security context")
}

fn resources_of(spec: Value, resources: Value) -> LinuxContainerResources {
    let config = container(&pod(spec, json!({"resources": resources})));
    config.linux.and_then(|linux| linux.resources).expect("resources")
}

#[test]
fn a_plain_container_is_asked_for_as_a_kubelet_asks() {
    let spec = json!({
        "command": ["a"], "args": ["b", "c"], "workingDir": "/w", "tty": true, "stdin": true,
        "ports": [{"containerPort": 80}], "terminationMessagePath": "/end",
    });
    let image = ImageFacts { id: "sha256:1".to_owned(), ..ImageFacts::default() };
    let config =
        container_with(&pod(json!({}), spec), &[], &image, &node()).expect("it can be had");
    let metadata = config.metadata.clone().expect("metadata");
    assert_eq!((metadata.name.as_str(), metadata.attempt), ("app", 3));
    let image = config.image.clone().expect("an image");
    assert_eq!(
        (image.image.as_str(), image.user_specified_image.as_str()),
        ("sha256:1", "busybox:1")
    );
    assert_eq!(
        (config.command.join(" "), config.args.join(" ")),
        ("a".to_owned(), "b c".to_owned())
    );
    assert_eq!((config.working_dir.as_str(), config.log_path.as_str()), ("/w", "app/3.log"));
    assert_eq!((config.stdin, config.stdin_once, config.tty), (true, false, true));
    assert_eq!(config.envs.len(), 1);
    for (name, value) in [
        ("io.kubernetes.container.name", "app"),
        ("io.kubernetes.pod.uid", "u1"),
        ("headwater/node", "gw-1"),
    ] {
        assert_eq!(config.labels[name], value, "{name}");
    }
    for (name, value) in [
        ("io.kubernetes.container.restartCount", "3"),
        ("io.kubernetes.container.type", "container"),
        ("io.kubernetes.container.terminationMessagePath", "/end"),
        ("io.kubernetes.container.ports", "[{\"containerPort\":80}]"),
    ] {
        assert_eq!(config.annotations[name], value, "{name}");
    }
    let files: Vec<_> = config
        .mounts
        .iter()
        .map(|mount| (mount.container_path.as_str(), mount.host_path.as_str()))
        .collect();
    let wanted = [("/etc/hosts", "/pods/u1/etc-hosts"), ("/dev/termination-log", "/pods/u1/end")];
    assert_eq!(files, wanted);
    let security = config.linux.and_then(|linux| linux.security_context).expect("a context");
    // An image that names no user runs as root.
    assert_eq!(security.run_as_user.map(|id| id.value), Some(0));
    assert_eq!((security.masked_paths.len(), security.readonly_paths.len()), (12, 5));
    assert_eq!(
        security.seccomp.expect("a profile").profile_type,
        i32::from(ProfileType::Unconfined)
    );
    assert_eq!((security.capabilities, security.apparmor), (None, None));
}

#[test]
fn users_and_rights_are_those_of_the_container_then_of_the_pod() {
    let spec = json!({"securityContext": {
        "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2000, "supplementalGroups": [7, 8],
        "seccompProfile": {"type": "RuntimeDefault"},
    }});
    let shared = security(spec.clone(), json!({}));
    assert_eq!(shared.run_as_user.map(|id| id.value), Some(1000));
    assert_eq!(shared.run_as_group.map(|id| id.value), Some(1001));
    assert_eq!(shared.supplemental_groups, [2000, 7, 8]);
    assert_eq!(
        shared.seccomp.expect("a profile").profile_type,
        i32::from(ProfileType::RuntimeDefault)
    );
    let own = security(
        spec,
        json!({
            "runAsUser": 5, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "privileged": true, "procMount": "Unmasked",
            "capabilities": {"add": ["NET_ADMIN", "cap_chown"], "drop": ["all"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"},
        }),
    );
    assert_eq!(own.run_as_user.map(|id| id.value), Some(5));
    assert!(own.readonly_rootfs && own.no_new_privs && own.privileged);
    let capabilities = own.capabilities.expect("capabilities");
    assert_eq!(capabilities.add_capabilities, ["NET_ADMIN", "CHOWN"]);
    assert_eq!(capabilities.drop_capabilities, ["ALL"]);
    assert_eq!((own.masked_paths.len(), own.readonly_paths.len()), (0, 0));
    let profile = own.seccomp.expect("a profile");
    assert_eq!(profile.profile_type, i32::from(ProfileType::Localhost));
    assert_eq!(profile.localhost_ref, "/var/lib/kubelet/seccomp/a/b.json");
}

/// Cases of `TestVerifyRunAsNonRoot` of Kubernetes 1.36.
#[test]
fn a_user_that_may_be_root_is_refused_where_it_must_not_be() {
    let image = |id: Option<i64>, name: &str| ImageFacts {
        user_id: id,
        user_name: name.to_owned(),
        ..ImageFacts::default()
    };
    let both = |user: Option<i64>| json!({"runAsNonRoot": true, "runAsUser": user});
    for (of_pod, own, image, wanted) in [
        (json!({}), json!({}), image(Some(0), ""), Ok((Some(0), ""))),
        (json!({}), json!({}), image(None, "web"), Ok((None, "web"))),
        (json!({}), both(Some(1)), image(Some(0), ""), Ok((Some(1), ""))),
        (both(Some(1)), json!({}), image(None, "root"), Ok((Some(1), ""))),
        (both(None), json!({}), image(Some(7), ""), Ok((Some(7), ""))),
        (both(None), json!({"runAsNonRoot": false}), image(Some(0), ""), Ok((Some(0), ""))),
        (json!({}), both(Some(0)), image(Some(7), ""), Err("runAsUser is 0")),
        (both(None), json!({}), image(None, ""), Err("image will run as root")),
        (both(None), json!({}), image(Some(0), ""), Err("image will run as root")),
        (both(None), json!({}), image(None, "web"), Err("non-numeric user (web)")),
        (both(None), json!({}), image(Some(-1), ""), Err("invalid user id (-1)")),
        (both(None), json!({}), image(Some(1 << 31), ""), Err("invalid user id")),
    ] {
        let pod = pod(json!({"securityContext": of_pod}), json!({"securityContext": own}));
        let found = container_with(&pod, &[], &image, &node());
        let found = found.map(|config| {
            let security = config.linux.and_then(|linux| linux.security_context).expect("one");
            (security.run_as_user.map(|id| id.value), security.run_as_username)
        });
        match (&found, wanted) {
            (Ok((id, name)), Ok(wanted)) => assert_eq!((*id, name.as_str()), wanted),
            (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{why}"),
            _ => panic!("{found:?} is not {wanted:?}"),
        }
    }
}

/// The figures are those of a kubelet for the same requests and limits on a machine of 1 GiB.
#[test]
fn shares_limits_and_the_order_of_kills_are_a_kubelets() {
    for (resources, shares, quota, memory, adjust) in [
        (json!({}), 2, 0, 0, 1000),
        (json!({"requests": {"cpu": "250m"}}), 256, 0, 0, 999),
        (json!({"limits": {"cpu": "1500m"}}), 1536, 150_000, 0, 999),
        (json!({"limits": {"cpu": "1m"}}), 2, 1000, 0, 999),
        (json!({"requests": {"cpu": "1000"}}), 262_144, 0, 0, 999),
        (json!({"requests": {"memory": "256Mi"}}), 2, 0, 0, 750),
        (json!({"requests": {"memory": "64Gi"}}), 2, 0, 0, 3),
        (json!({"limits": {"cpu": "1", "memory": "64Mi"}}), 1024, 100_000, 64 << 20, -997),
        (
            json!({"requests": {"cpu": "-7"}, "limits": {"cpu": "-7", "memory": "-1"}}),
            2,
            0,
            0,
            1000,
        ),
        (
            json!({"limits": {"cpu": "9e300", "memory": "9e300"}}),
            262_144,
            i64::MAX / 1000,
            i64::MAX,
            -997,
        ),
    ] {
        let found = resources_of(json!({}), resources.clone());
        assert_eq!(found.cpu_period, 100_000);
        let figures =
            (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes, found.oom_score_adj);
        assert_eq!(figures, (shares, quota, memory, adjust), "{resources}");
    }
    let critical = json!({"priorityClassName": "system-node-critical", "priority": 2_000_001_000});
    assert_eq!(resources_of(critical, json!({})).oom_score_adj, -997);
    let class_alone = json!({"priorityClassName": "system-node-critical"});
    assert_eq!(resources_of(class_alone, json!({})).oom_score_adj, 1000, "anyone can write it");
    let of_pod = json!({"resources": {"limits": {"memory": "32Mi"}}});
    assert_eq!(resources_of(of_pod, json!({})).memory_limit_in_bytes, 32 << 20);
}

#[test]
fn a_sidecar_is_not_killed_before_what_needs_it() {
    let requests = |bytes: &str| json!({"requests": {"memory": bytes}});
    let spec = json!({"initContainers": [
        {"name": "side", "restartPolicy": "Always", "resources": requests("10Mi")}]});
    let pod = pod(spec, json!({"resources": requests("512Mi")}));
    let adjust = |container: &Container| resources(&pod, container, &node()).oom_score_adj;
    let found: Vec<i64> = all_containers(&pod).map(adjust).collect();
    assert_eq!(found, [500, 500]);
}

#[test]
fn every_size_of_huge_pages_has_a_limit() {
    let found = resources_of(json!({}), json!({"limits": {"hugepages-2Mi": "8Mi"}}));
    let found: Vec<_> =
        found.hugepage_limits.iter().map(|it| (it.page_size.as_str(), it.limit)).collect();
    assert_eq!(found, [("2MB", 8 << 20), ("1GB", 0)]);
}

#[test]
fn volumes_are_mounted_as_the_spec_demands() {
    let spec = json!({"volumes": [
        {"name": "v", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
    ]});
    let pod = pod(spec, json!({}));
    let mount = |volume: &str, path: &str| Mount {
        volume: volume.to_owned(),
        path: path.into(),
        ..Mount::default()
    };
    let deep =
        |recursive_read_only| Mount { read_only: true, recursive_read_only, ..mount("v", "deep") };
    let shared = Mount { propagation: Propagation::Bidirectional, ..mount("v", "s") };
    let image = ImageFacts::default();
    let mounts = [
        (mount("v", "etc/hosts"), "/h/own-hosts"),
        (shared, "/h/v"),
        (mount("c", "claim"), "/h/c"),
        (deep(RecursiveReadOnly::IfPossible), "/h/v"),
    ];
    let config = container_with(&pod, &mounts, &image, &node()).expect("it can be had");
    let found: Vec<_> = config
        .mounts
        .iter()
        .map(|it| (it.container_path.as_str(), it.host_path.as_str(), it.readonly, it.propagation))
        .collect();
    let private = i32::from(MountPropagation::PropagationPrivate);
    let both = i32::from(MountPropagation::PropagationBidirectional);
    // The pod's own file of hosts comes before the edge's.
    let wanted = [
        ("/etc/hosts", "/h/own-hosts", false, private),
        ("/s", "/h/v", false, both),
        ("/claim", "/h/c", true, private),
        ("/deep", "/h/v", true, private),
        ("/dev/termination-log", "/pods/u1/end", false, private),
    ];
    assert_eq!(found, wanted);
    assert!(config.mounts.iter().all(|it| !it.recursive_read_only), "it is not possible");

    let features = HandlerFeatures { recursive_read_only_mounts: true, ..Default::default() };
    let able = NodeFacts { handlers: [(String::new(), features)].into(), ..node() };
    let must = [(deep(RecursiveReadOnly::Enabled), "/h/v")];
    let config = container_with(&pod, &must, &image, &able).expect("it can be had");
    assert!(config.mounts[0].recursive_read_only);
    container_with(&pod, &must, &image, &node()).expect_err("the runtime cannot do it");
    let (record, launch) = (record(), launch_with(&pod, &must));
    let unplaced = request_of(&pod, &record, &launch, &image);
    let refused = container_config(&unplaced, &able).expect_err("it has no place");
    assert!(refused.message.contains("has no place"), "{}", refused.message);
}

#[test]
fn a_container_has_what_comes_with_its_devices() {
    let pod = pod(json!({}), json!({"resources": {"limits": {"e.com/gpu": "1"}}}));
    let devices = ContainerDevices {
        mounts: vec![DeviceMount {
            container_path: "/gpu".to_owned(),
            host_path: "/opt/gpu".to_owned(),
            read_only: true,
        }],
        nodes: vec![DeviceNode {
            container_path: "/dev/gpu".to_owned(),
            host_path: "/dev/gpu7".to_owned(),
            permissions: "rw".to_owned(),
        }],
        // A plugin passes for no other container.
        annotations: [("note", "x"), ("io.kubernetes.container.restartCount", "9")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..ContainerDevices::default()
    };
    let (record, image) = (record(), ImageFacts::default());
    let launch = LaunchSpec { devices: devices.clone(), ..launch_with(&pod, &[]) };
    let config = container_config(&request_of(&pod, &record, &launch, &image), &node());
    let config = config.expect("it can be had");
    let found = &config.devices[0];
    assert_eq!((&*found.container_path, &*found.host_path), ("/dev/gpu", "/dev/gpu7"));
    assert_eq!(found.permissions, "rw");
    let mount = config.mounts.last().expect("a mount");
    assert_eq!((&*mount.container_path, &*mount.host_path), ("/gpu", "/opt/gpu"));
    assert!(mount.readonly);
    assert_eq!(config.annotations["note"], "x");
    let volume = DeviceNode {
        container_path: "/dev/xvda".to_owned(),
        host_path: "/dev/loop3".to_owned(),
        permissions: "r".to_owned(),
    };
    let block_devices = [volume];
    let request = request_of(&pod, &record, &launch, &image);
    let request = ContainerRequest { block_devices: &block_devices, ..request };
    let both = container_config(&request, &node()).expect("it can be had").devices;
    let both: Vec<_> = both.iter().map(|it| (&*it.host_path, &*it.permissions)).collect();
    assert_eq!(both, [("/dev/loop3", "r"), ("/dev/gpu7", "rw")]);
    assert_eq!(config.annotations["io.kubernetes.container.restartCount"], "0");

    let cdi = vec!["e.com/gpu=7".to_owned()];
    let launch = LaunchSpec { devices: ContainerDevices { cdi, ..devices }, ..launch };
    let request = request_of(&pod, &record, &launch, &image);
    let refused = container_config(&request, &node()).expect_err("the runtime takes none");
    assert!(refused.message.contains("e.com/gpu=7"), "{}", refused.message);
    let able = NodeFacts { has_cdi: true, ..node() };
    let config = container_config(&request, &able).expect("it can be had");
    assert_eq!(config.cdi_devices[0].name, "e.com/gpu=7");
}

fn launch_with(pod: &Pod, mounts: &[(Mount, &str)]) -> LaunchSpec {
    let container = all_containers(pod).next().expect("a container");
    LaunchSpec {
        mounts: mounts.iter().map(|(mount, _)| mount.clone()).collect(),
        ..launch(container)
    }
}

fn request_of<'a>(
    pod: &'a Pod,
    record: &'a PodRecord,
    launch: &'a LaunchSpec,
    image: &'a ImageFacts,
) -> ContainerRequest<'a> {
    ContainerRequest {
        pod,
        record,
        container: all_containers(pod).next().expect("a container"),
        launch,
        attempt: 0,
        image,
        mounts: &[],
        block_devices: &[],
        hosts_file: None,
        termination_file: None,
        target: None,
    }
}

#[test]
fn a_target_is_seen_unless_the_pod_shares_its_processes() {
    let image = ImageFacts::default();
    for (spec, wanted, id) in [
        (json!({}), NamespaceMode::Target, "c1"),
        (json!({"shareProcessNamespace": true}), NamespaceMode::Pod, ""),
        (json!({"hostPID": true}), NamespaceMode::Node, ""),
    ] {
        let pod = pod(spec, json!({}));
        let (record, launch) = (record(), launch_with(&pod, &[]));
        let request =
            ContainerRequest { target: Some("c1"), ..request_of(&pod, &record, &launch, &image) };
        let config = container_config(&request, &node()).expect("it can be had");
        let security = config.linux.and_then(|linux| linux.security_context);
        let found = security.and_then(|it| it.namespace_options).expect("namespaces");
        assert_eq!((found.pid, found.target_id.as_str()), (i32::from(wanted), id));
    }
}

#[test]
fn a_stop_signal_is_the_specs_or_the_images() {
    for (lifecycle, wanted) in [
        (Value::Null, Signal::RuntimeDefault),
        (json!({"preStop": {"sleep": {"seconds": 1}}}), Signal::RuntimeDefault),
        (json!({"stopSignal": "SIGUSR1"}), Signal::Sigusr1),
        (json!({"stopSignal": "SIGTERM"}), Signal::Sigterm),
        (json!({"stopSignal": "nonsense"}), Signal::RuntimeDefault),
    ] {
        let config = container(&pod(json!({}), json!({"lifecycle": lifecycle})));
        assert_eq!(config.stop_signal, i32::from(wanted), "{lifecycle}");
    }
}
