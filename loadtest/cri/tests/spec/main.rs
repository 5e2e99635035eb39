//! What a container is asked to be is what a real containerd makes of it: read back from `/proc` and the
//! file system by a program in the container.

use std::fs;
use std::path::PathBuf;

use headwater_cri::proto::image_service_client::ImageServiceClient;
use headwater_cri::proto::runtime_service_client::RuntimeServiceClient;
use headwater_cri::proto::{
    CreateContainerRequest, ExecSyncRequest, ImageSpec, ImageStatusRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopPodSandboxRequest,
};
use headwater_cri::spec::{
    ContainerRequest, HostMount, ImageFacts, NodeFacts, ResolvConf, container_config,
    sandbox_config,
};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_edged::container::credentials::Credentials;
use headwater_edged::container::devices::ContainerDevices;
use headwater_edged::container::termination::{StopSignal, TerminationMessage};
use headwater_edged::container::{LaunchSpec, Mount};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::unix_channel;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// The time that a command in a container may take, in seconds: two busy cores are slow.
const COMMAND_SECONDS: i64 = 30;

/// The name of a seccomp profile that lets a container make no folders, and the profile.
const NO_FOLDERS: &str = "no-folders.json";
const NO_FOLDERS_PROFILE: &str = r#"{
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]
}"#;

/// One pod, a script that is run in it, and the lines that it must write.
struct Case {
    name: &'static str,
    spec: Value,
    container: Value,
    script: &'static str,
    wanted: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let status = "grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/1/status";
    let ids = json!({"securityContext": {
        "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2000, "supplementalGroups": [7],
    }});
    let case =
        |name, spec, container, script, wanted| Case { name, spec, container, script, wanted };
    vec![
        case(
            "plain",
            json!({}),
            json!({}),
            "grep -E '^(Uid|NoNewPrivs|Seccomp):' /proc/1/status; hostname; cat /etc/resolv.conf; \
             cat /etc/hosts; test -w /dev/termination-log && echo writable; \
             echo x 2>/dev/null > /proc/sys/kernel/hostname || echo read-only; \
             wc -c < /proc/keys",
            &[
                "Uid:\t0\t0\t0\t0",
                "NoNewPrivs:\t0",
                "Seccomp:\t0",
                "web",
                "nameserver 10.0.0.1",
                "search site.example",
                "options rotate",
                "hosts of the pod",
                "writable",
                "read-only",
                "0",
            ],
        ),
        case(
            "users",
            ids,
            json!({}),
            status,
            &[
                "Uid:\t1000\t1000\t1000\t1000",
                "Gid:\t1001\t1001\t1001\t1001",
                "Groups:\t7 1001 2000",
            ],
        ),
        case(
            "a user of the container",
            json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1001}}),
            json!({"securityContext": {"runAsUser": 3000, "runAsGroup": 3001, "runAsNonRoot": true}}),
            status,
            &["Uid:\t3000\t3000\t3000\t3000", "Gid:\t3001\t3001\t3001\t3001"],
        ),
        case(
            "the seccomp profile of the pod",
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            json!({}),
            status,
            &["Seccomp:\t2"],
        ),
        case(
            "a container without the seccomp profile of the pod",
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            status,
            &["Seccomp:\t0"],
        ),
        case(
            "a seccomp profile of the node",
            json!({}),
            json!({"securityContext": {"seccompProfile": {
                "type": "Localhost", "localhostProfile": NO_FOLDERS,
            }}}),
            "grep Seccomp: /proc/1/status; mkdir /tmp/folder 2>&1",
            &[
                "Seccomp:\t2",
                "mkdir: can't create directory '/tmp/folder': Operation not permitted",
            ],
        ),
        case(
            "an unmasked /proc",
            json!({}),
            json!({"securityContext": {"procMount": "Unmasked"}}),
            // Masked it is a file without content.
            "test $(wc -c < /proc/timer_list) -gt 0 && echo unmasked; \
             grep -q ' /proc/sys ' /proc/mounts || echo no mount over sysctls",
            &["unmasked", "no mount over sysctls"],
        ),
        case(
            "rights",
            json!({}),
            json!({"securityContext": {
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            }}),
            "grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/1/status; touch /x 2>&1",
            &[
                "NoNewPrivs:\t1",
                "CapEff:\t0000000000001000",
                "CapBnd:\t0000000000001000",
                "Seccomp:\t2",
                "touch: /x: Read-only file system",
            ],
        ),
        case(
            "privileged and unmasked",
            json!({}),
            json!({"securityContext": {"privileged": true}}),
            "test -w /proc/sys/kernel/core_pattern && echo sysctl; test -e /dev/kmsg && echo devices; \
             test $((0x$(grep CapEff /proc/1/status | cut -f2) >> 21 & 1)) = 1 && echo admin",
            &["sysctl", "devices", "admin"],
        ),
        case(
            "sysctls and a full name",
            json!({
                "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "81"}]},
                "hostname": "db-0", "subdomain": "db", "setHostnameAsFQDN": true,
            }),
            json!({}),
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start; hostname",
            &["81", "db-0.db.shop.svc.cluster.local"],
        ),
        case(
            "shared processes",
            json!({"shareProcessNamespace": true}),
            json!({}),
            "cat /proc/1/comm",
            &["pause"],
        ),
        case(
            "the host's network and processes",
            json!({"hostNetwork": true, "hostPID": true}),
            json!({}),
            "test \"$(hostname)\" = web || echo the hosts name; \
             test $(ls -d /proc/[0-9]* | wc -l) -gt 4 && echo the hosts processes",
            &["the hosts name", "the hosts processes"],
        ),
        case(
            "resources",
            json!({}),
            json!({"resources": {
                "requests": {"cpu": "250m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"},
            }}),
            // Version 1 of control groups, then version 2.
            "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; \
             cat cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 cpu.max",
            &["67108864", "50000"],
        ),
        case(
            "a process of its own",
            json!({}),
            json!({"workingDir": "/tmp", "env": [{"name": "A", "value": "b c"}]}),
            "readlink /proc/1/cwd; tr '\\0' '\\n' < /proc/1/environ | grep -E '^A='; \
             tr '\\0' ' ' < /proc/1/cmdline",
            &["/tmp", "A=b c", "sleep 1000 "],
        ),
        case(
            "volumes",
            json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "r", "emptyDir": {}}]}),
            json!({"volumeMounts": [
                {"name": "v", "mountPath": "/v"}, {"name": "r", "mountPath": "/r", "readOnly": true}]}),
            "cat /v/file; touch /v/new && echo written; touch /r/new 2>&1",
            &["content", "written", "touch: /r/new: Read-only file system"],
        ),
    ]
}

fn launch(pod: &Pod) -> LaunchSpec {
    let container = &pod.spec.as_ref().expect("a spec").containers[0];
    let variables = container.env.iter().flatten();
    let mounts = container.volume_mounts.iter().flatten().map(|mount| Mount {
        volume: mount.name.clone(),
        path: mount.mount_path.trim_start_matches('/').into(),
        read_only: mount.read_only == Some(true),
        ..Mount::default()
    });
    LaunchSpec {
        container: container.name.clone(),
        image: container.image.clone(),
        is_step: false,
        command: ["sleep", "1000"].map(str::to_owned).into(),
        args: Vec::new(),
        env: variables.map(|it| (it.name.clone(), it.value.clone().unwrap_or_default())).collect(),
        working_dir: container.working_dir.clone(),
        mounts: mounts.collect(),
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    }
}

#[tokio::test]
async fn every_field_is_held_by_a_real_containerd() {
    if !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let channel = unix_channel(containerd.socket());
    let mut runtime = RuntimeServiceClient::new(channel.clone());
    let mut images = ImageServiceClient::new(channel);
    let image = ImageSpec { image: BUSYBOX_IMAGE.to_owned(), ..ImageSpec::default() };
    let request =
        ImageStatusRequest { image: Some(image.clone()), ..ImageStatusRequest::default() };
    let status = images.image_status(request).await.expect("an answer").into_inner();
    let found = status.image.expect("the lab has it");
    let facts = ImageFacts {
        id: found.id.clone(),
        user_id: found.uid.map(|id| id.value),
        user_name: found.username.clone(),
    };
    let seccomp_dir = containerd.data().join("seccomp");
    fs::create_dir_all(&seccomp_dir).expect("a folder");
    fs::write(seccomp_dir.join(NO_FOLDERS), NO_FOLDERS_PROFILE).expect("a profile");
    let node = NodeFacts {
        node: "gw-1".to_owned(),
        seccomp_dir,
        dir: containerd.data().to_owned(),
        logs: containerd.data().join("logs"),
        resolv_conf: ResolvConf::parse(
            "nameserver 10.0.0.1\nsearch site.example\noptions rotate\n",
        ),
        memory_bytes: 4 << 30,
        ..NodeFacts::default()
    };
    for (number, case) in cases().into_iter().enumerate() {
        let uid = format!("u{number}");
        let dir = containerd.data().join("pods").join(&uid);
        let file = |name: &str, content: &str| -> PathBuf {
            fs::create_dir_all(&dir).expect("a folder");
            fs::write(dir.join(name), content).expect("a file");
            dir.join(name)
        };
        for volume in ["v", "r"] {
            fs::create_dir_all(dir.join(volume)).expect("a folder");
        }
        file("v/file", "content\n");
        let (hosts, end) = (file("hosts", "hosts of the pod\n"), file("end", ""));
        let mut container = case.container;
        container["name"] = json!("app");
        container["image"] = json!(BUSYBOX_IMAGE);
        let mut spec = case.spec;
        spec["containers"] = json!([container]);
        let metadata = json!({"name": "web", "namespace": "shop", "uid": uid});
        let pod: Pod =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
        let record = PodRecord::of(
            &"shop/pod/web".parse().expect("a key"),
            &PodUid::try_from(uid).expect("a UID"),
            &pod,
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        );
        let mut sandbox = sandbox_config(&pod, &record, 0, &node).expect("it can be had");
        fs::create_dir_all(&sandbox.log_directory).expect("a folder");
        if let Some(linux) = &mut sandbox.linux {
            linux.cgroup_parent = format!("{}/pod{number}", containerd.cgroup_parent());
        }
        let request = RunPodSandboxRequest {
            config: Some(sandbox.clone()),
            ..RunPodSandboxRequest::default()
        };
        let answer = runtime.run_pod_sandbox(request).await;
        let id =
            answer.unwrap_or_else(|why| panic!("{}: {why}", case.name)).into_inner().pod_sandbox_id;
        let launch = launch(&pod);
        let mounts: Vec<HostMount> = launch
            .mounts
            .iter()
            .map(|mount| HostMount { path: mount.path.clone(), host_path: dir.join(&mount.volume) })
            .collect();
        let request = ContainerRequest {
            pod: &pod,
            record: &record,
            container: &pod.spec.as_ref().expect("a spec").containers[0],
            launch: &launch,
            attempt: 0,
            image: &facts,
            mounts: &mounts,
            block_devices: &[],
            hosts_file: Some(&hosts),
            termination_file: Some(&end),
            target: None,
        };
        let config = container_config(&request, &node).expect("it can be had");
        let request = CreateContainerRequest {
            pod_sandbox_id: id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox),
        };
        let created = runtime.create_container(request).await;
        let created = created.unwrap_or_else(|why| panic!("{}: {why}", case.name)).into_inner();
        let container_id = created.container_id;
        let request = StartContainerRequest { container_id: container_id.clone() };
        let started = runtime.start_container(request).await;
        started.unwrap_or_else(|why| panic!("{}: {why}", case.name));
        let cmd = ["sh", "-c", case.script].map(str::to_owned).into();
        let request = ExecSyncRequest { container_id, cmd, timeout: COMMAND_SECONDS };
        let output = runtime.exec_sync(request).await.expect("it runs").into_inner();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in case.wanted {
            assert!(
                text.lines().any(|found| found.trim_end() == line.trim_end()),
                "{}: no line {line:?} in\n{text}{}",
                case.name,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let request = StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        runtime.stop_pod_sandbox(request).await.expect("it stops");
        let request = RemovePodSandboxRequest { pod_sandbox_id: id };
        runtime.remove_pod_sandbox(request).await.expect("it is removed");
    }
}
