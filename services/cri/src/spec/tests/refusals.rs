//! What the runtime or the machine cannot keep.

use headwater_edged::container::volume::{Volume, VolumeContent};
use headwater_edged::pod::ephemeral_containers;

use super::*;

#[test]
fn what_cannot_be_had_is_refused_by_its_field() {
    let plain = || json!({});
    for (spec, container, why) in [
        (json!({"hostUsers": false}), plain(), "spec.hostUsers"),
        (json!({"runtimeClassName": "gvisor"}), plain(), "RuntimeClass \"gvisor\""),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
            plain(),
            "spec.securityContext.appArmorProfile: the node has no AppArmor",
        ),
        (
            plain(),
            json!({"securityContext": {"appArmorProfile": {"type": "Sideways"}}}),
            "spec.containers[0].securityContext.appArmorProfile.type: \"Sideways\"",
        ),
        (
            plain(),
            json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}}),
            "seccomp profile \"/var/lib/kubelet/seccomp/a\" is not on the node",
        ),
        (
            plain(),
            json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../a"}}}),
            "names no file below",
        ),
        (
            plain(),
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            "names no file below",
        ),
        (
            plain(),
            json!({"securityContext": {"capabilities": {"add": ["CHOWN", "FLY"]}}}),
            "spec.containers[0].securityContext.capabilities.add[1]: \"FLY\"",
        ),
        (plain(), json!({"securityContext": {"procMount": "Half"}}), "procMount: \"Half\""),
        (plain(), json!({"securityContext": {"runAsUser": -1}}), "runAsUser: -1"),
        (
            json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}),
            plain(),
            "runAsUser is 0",
        ),
        (
            json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
            plain(),
            "supplementalGroupsPolicy",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}}),
            plain(),
            "sysctls[0]",
        ),
        (
            plain(),
            json!({"resources": {"limits": {"example.com/gpu": "1"}}}),
            "resources.limits[\"example.com/gpu\"]: the node has no such devices",
        ),
        (
            plain(),
            json!({"resources": {"requests": {"hugepages-64Ki": "64Ki"}}}),
            "no such huge pages",
        ),
        (plain(), json!({"ports": [{"containerPort": 70_000}]}), "ports[0].containerPort: 70000"),
        (
            plain(),
            json!({"ports": [{"containerPort": 7, "hostPort": -1}]}),
            "ports[0].hostPort: -1",
        ),
        (json!({"hostname": "A"}), plain(), "spec.hostname"),
        (json!({"hostnameOverride": "a..b"}), plain(), "spec.hostnameOverride"),
        (
            plain(),
            json!({"lifecycle": {"stopSignal": "SIGUSR1"}}),
            "spec.containers[0].lifecycle.stopSignal",
        ),
        (
            plain(),
            json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]}),
            "volumeMounts[0].recursiveReadOnly",
        ),
    ] {
        let found = checked(&pod(spec.clone(), container.clone()), &node());
        let found = found.expect_err(why);
        assert!(found.contains(why), "{spec} {container}: {found}");
    }
}

#[test]
fn what_can_be_had_is_not_refused() {
    let able = NodeFacts {
        has_apparmor: true,
        has_groups_policy: true,
        has_stop_signal: true,
        has_device_plugins: true,
        handlers: [
            (String::new(), HandlerFeatures::default()),
            ("runc2".to_owned(), HandlerFeatures::default()),
        ]
        .into(),
        runtime_classes: [
            ("second".to_owned(), "runc2".to_owned()),
            ("lost".to_owned(), "kata".to_owned()),
        ]
        .into(),
        ..node()
    };
    let own = json!({
        "privileged": true, "runAsUser": 7, "runAsNonRoot": true,
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "k8s-web"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"},
        "seLinuxOptions": {"level": "s0"}, "capabilities": {"add": ["SYS_TIME"]},
    });
    let spec = json!({
        "hostUsers": true, "runtimeClassName": "second",
        "securityContext": {"supplementalGroupsPolicy": "Strict"},
        "volumes": [{"name": "v", "hostPath": {"path": "/slave/v"}}],
    });
    let container = json!({
        "lifecycle": {"stopSignal": "SIGUSR1"},
        "securityContext": own, "resources": {"limits": {"hugepages-2Mi": "2Mi", "ephemeral-storage": "1Gi", "e.com/gpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "HostToContainer"}],
    });
    let pod = pod(spec, container);
    let machine = FakeMachine([PathBuf::from("/var/lib/kubelet/seccomp/a.json")].into());
    let container = all_containers(&pod).next().expect("a container");
    check(&pod, container, &machine, &able).map_err(message).expect("it can be had");
    assert_eq!(runtime_handler(&pod, &able), Ok("runc2".to_owned()));
    let config = container_with(&pod, &[], &ImageFacts::default(), &able).expect("it can be had");
    let security = config.linux.and_then(|linux| linux.security_context).expect("a context");
    assert_eq!(security.apparmor.expect("a profile").localhost_ref, "k8s-web");
    assert_eq!(security.supplemental_groups_policy, 1, "Strict");
    assert_eq!(security.selinux_options.expect("a label").level, "s0");
    let mut lost = pod.clone();
    lost.spec.as_mut().expect("a spec").runtime_class_name = Some("lost".to_owned());
    let refused = runtime_handler(&lost, &able).map_err(message).expect_err("no such handler");
    assert!(refused.contains("no handler \"kata\""), "{refused}");
}

#[test]
fn a_mount_propagates_only_where_the_hosts_does() {
    for (path, propagation, is_refused) in [
        ("/plain/v", "None", false),
        ("/plain/v", "HostToContainer", true),
        ("/plain/v", "Bidirectional", true),
        ("/slave/v", "HostToContainer", false),
        ("/slave/v", "Bidirectional", true),
        ("/shared/v", "Bidirectional", false),
    ] {
        let spec = json!({"volumes": [{"name": "v", "hostPath": {"path": path}}]});
        let mount = json!({"name": "v", "mountPath": "/a", "mountPropagation": propagation});
        let found = checked(&pod(spec, json!({"volumeMounts": [mount]})), &node());
        assert_eq!(found.is_err(), is_refused, "{path} {propagation}: {found:?}");
    }
}

#[test]
fn what_the_node_forbids_is_refused_whatever_the_pod_says() {
    let all: Forbidden = "privileged, hostPath,hostNetwork,hostPID,hostIPC".parse().expect("words");
    assert_eq!(all.to_string(), "privileged,hostPath,hostNetwork,hostPID,hostIPC");
    assert_eq!("".parse(), Ok(Forbidden::default()));
    "hostFiles".parse::<Forbidden>().expect_err("no such word");
    let privileged = json!({"securityContext": {"privileged": true}});
    for (word, spec, container, field) in [
        ("privileged", json!({}), privileged.clone(), "securityContext.privileged"),
        (
            "privileged",
            json!({"initContainers": [{"name": "i", "securityContext": {"privileged": true}}]}),
            json!({}),
            "securityContext.privileged",
        ),
        (
            "hostPath",
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]}),
            json!({}),
            "spec.volumes: hostPath",
        ),
        ("hostNetwork", json!({"hostNetwork": true}), json!({}), "spec.hostNetwork"),
        ("hostPID", json!({"hostPID": true}), json!({}), "spec.hostPID"),
        ("hostIPC", json!({"hostIPC": true}), json!({}), "spec.hostIPC"),
    ] {
        let strict = NodeFacts { forbidden: word.parse().expect("a word"), ..node() };
        let pod = pod(spec, container);
        assert_eq!(checked(&pod, &strict), Err(format!("{field}: the node forbids it")));
        assert_eq!(checked(&pod, &node()), Ok(()), "{word} is not forbidden");
    }
}

#[test]
fn a_forbidden_ephemeral_container_is_refused_without_its_pod() {
    let strict = NodeFacts { forbidden: "privileged".parse().expect("a word"), ..node() };
    let debug = json!({"name": "debug", "image": "i", "securityContext": {"privileged": true}});
    let pod = pod(json!({"ephemeralContainers": [debug]}), json!({}));
    assert_eq!(checked(&pod, &strict), Ok(()));
    let debug = ephemeral_containers(&pod).next().expect("a container");
    let refused = check(&pod, &debug, &FakeMachine::default(), &strict).map_err(message);
    assert_eq!(refused, Err("securityContext.privileged: the node forbids it".to_owned()));
}

#[test]
fn a_pod_does_not_run_on_with_what_the_node_forbids() {
    const OF_THE_HOST: &str = "volume \"claim\" is a path of the host: the node forbids it";
    let host = VolumeContent::Host { path: "/etc".to_owned(), kind: String::new() };
    let path = "/mnt/disk".to_owned();
    let local = VolumeContent::Local { path, is_block: false, group: None };
    let volume = |content| Volume { name: "claim".to_owned(), content, is_secret: false };
    let volumes = [volume(host), volume(local)];
    let of_host = pod(json!({"hostPID": true}), json!({}));
    for (word, volumes, message) in [
        ("", &volumes[..], None),
        ("hostNetwork", &volumes[..], None),
        ("hostPath", &[], None),
        ("hostPID", &[], Some("spec.hostPID: the node forbids it")),
        ("hostPath", &volumes[..1], Some(OF_THE_HOST)),
        ("hostPath", &volumes[1..], Some(OF_THE_HOST)),
    ] {
        let forbidden: Forbidden = word.parse().expect("a word");
        let container = all_containers(&of_host).next().expect("a container");
        let found = allow(&of_host, container, volumes, forbidden).err();
        let found = found.as_ref().map(|why| (why.reason, why.message.as_str()));
        let expected = message.map(|message| ("CreateContainerConfigError", message));
        assert_eq!(found, expected, "{word}");
    }
}

#[test]
fn a_pod_fails_where_a_kubelet_does_not_admit_it() {
    let security = |context: Value| pod(json!({"securityContext": context}), json!({}));
    let sysctl = json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}]});
    let confined = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    for (context, reason) in [
        (json!({}), None),
        (sysctl, Some("SysctlForbidden")),
        (confined, Some("AppArmor")),
        (json!({"appArmorProfile": {"type": "Unconfined"}}), None),
    ] {
        let found = admit(&security(context.clone()), &node()).err();
        assert_eq!(found.map(|why| why.reason), reason, "{context}");
    }
    for (os, reason) in [("linux", None), ("windows", Some("PodOSNotSupported"))] {
        let found = admit(&pod(json!({"os": {"name": os}}), json!({})), &node()).err();
        assert_eq!(found.map(|why| why.reason), reason, "{os}");
    }
}
