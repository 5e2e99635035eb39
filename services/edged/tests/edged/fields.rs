//! What a pod worker does with fields that its runtime does not honour, and with pods that break a
//! rule.

use std::time::Duration;

use headwater_edged::Edged;
use headwater_proto::local::Operation;
use serde_json::{Value, json};

use crate::bench::{Bench, condition, is_running, script_pod};
use crate::fake_edge::{latest_status, statuses};

fn waiting(status: &Value) -> Option<(&str, &str)> {
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    Some((waiting["reason"].as_str()?, waiting["message"].as_str()?))
}

fn is_refused(status: &Value) -> bool {
    waiting(status).is_some_and(|(reason, _)| reason == "CreateContainerConfigError")
}

#[tokio::test]
async fn a_container_whose_field_is_refused_waits_and_starts_when_the_field_is_gone() {
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"capabilities": {"add": ["NET_ADMIN"]}});
    let bench = Bench::new(&[pod.clone()]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a refusal", is_refused).await;
    let (_, message) = waiting(&status).expect("it waits");
    let path = "spec.containers[0].securityContext.capabilities.add: ";
    assert!(message.starts_with(path) && message.ends_with("(leave it out)"), "{message}");
    assert_eq!(status["phase"], "Pending");

    pod["spec"]["containers"][0]["securityContext"] = json!({"capabilities": {"drop": ["ALL"]}});
    bench.edge.apply(&pod);
    bench.edge.until_status("web", "a start", is_running).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_field_that_is_noted_is_in_one_condition_and_the_pod_runs() {
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["containers"][0]["tty"] = json!(true);
    pod["spec"]["aFieldOfALaterApi"] = json!({"x": 1});
    let bench = Bench::new(&[pod, script_pod("plain", "u2", "exec sleep 1000")]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a start", is_running).await;
    assert_eq!(condition(&status, "headwater/SpecHonoured"), "False");
    let conditions = status["conditions"].as_array().expect("conditions");
    let own: Vec<&Value> =
        conditions.iter().filter(|c| c["type"] == "headwater/SpecHonoured").collect();
    assert_eq!(own.len(), 1);
    assert_eq!(
        own[0]["message"],
        "spec.aFieldOfALaterApi: unknown to this version\n\
         spec.containers[0].tty: a container has no terminal"
    );
    let plain = bench.edge.until_status("plain", "a start", is_running).await;
    let conditions = plain["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().all(|condition| condition["type"] != "headwater/SpecHonoured"));
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_with_one_name_for_two_containers_waits_with_the_reason() {
    let mut twice = script_pod("twice", "u1", "exec sleep 1000");
    twice["spec"]["initContainers"] = json!([{"name": "main", "command": ["true"]}]);
    let mut policy = script_pod("policy", "u2", "exec sleep 1000");
    policy["spec"]["restartPolicy"] = json!("always");
    let bench = Bench::new(&[twice, policy]);
    let edged = bench.edged().await;
    for (name, wanted) in [
        ("twice", "spec.containers[0].name: spec.initContainers[0] has the name \"main\", too"),
        ("policy", "spec.restartPolicy: \"always\" is none"),
    ] {
        let status = bench.edge.until_status(name, "a refusal", is_refused).await;
        let (_, message) = waiting(&status).expect("it waits");
        assert!(message.starts_with(wanted), "{message}");
    }
    edged.stop().await;
}

#[tokio::test]
async fn a_pod_whose_variables_multiply_waits_and_is_expanded_once_a_change() {
    // A manifest of 0.1 MB whose variables would have 100 MB.
    let mut env = vec![json!({"name": "V0", "value": "x".repeat(1024)})];
    for number in 1..7 {
        let value = format!("$(V{})", number - 1).repeat(2);
        env.push(json!({"name": format!("V{number}"), "value": value}));
    }
    env.extend((0..1500).map(|at| json!({"name": format!("W{at}"), "value": "$(V6)"})));
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["containers"][0]["env"] = json!(env);
    let bench = Bench::new(&[pod.clone()]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a refusal", is_refused).await;
    let (_, message) = waiting(&status).expect("it waits");
    assert!(message.contains("no process can receive"), "{message}");

    // The reason stays in every status of the pod until it is gone.
    let other = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "shop"},
    });
    bench.edge.apply(&other);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "W", "value": "short"}]);
    bench.edge.apply(&pod);
    bench.edge.until_status("web", "a start", is_running).await;
    let statuses = statuses(&bench.edge.operations(), "web");
    let refused = statuses.iter().position(is_refused).expect("a refusal");
    let after = &statuses[refused..];
    let start = after.iter().position(is_running).expect("a start");
    let creating = |status: &Value| {
        waiting(status).is_some_and(|(reason, _)| reason != "CreateContainerConfigError")
    };
    assert!(!after[..start].iter().any(creating), "{after:#?}");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn volumes_that_cannot_be_written_are_tried_again_until_they_can() {
    let bench = Bench::new(&[]);
    let host = bench.path("host");
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["volumes"] =
        json!([{"name": "data", "hostPath": {"path": host, "type": "Directory"}}]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let is_stuck = |s: &Value| waiting(s).is_some_and(|(_, message)| message.contains("hostPath"));
    bench.edge.until_status("web", "a failed layout", is_stuck).await;
    std::fs::create_dir(&host).expect("a directory");
    bench.edge.until_status("web", "a start", is_running).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_above_the_nodes_room_fails_for_good_and_an_ended_one_leaves_its_room() {
    let bench = Bench::new(&[]);
    let start = || {
        let mut config = bench.config();
        config.settings.pods_max = 2;
        Edged::spawn(config)
    };
    let edged = start().await.expect("starts");
    let mut done = script_pod("done", "u1", "true");
    done["spec"]["restartPolicy"] = json!("Never");
    for pod in [&done, &script_pod("first", "u2", "exec sleep 1000")] {
        bench.edge.apply(pod);
    }
    bench.edge.until_status("done", "an end", |status| status["phase"] == "Succeeded").await;
    bench.edge.until_status("first", "a start", is_running).await;
    let second = script_pod("second", "u3", "exec sleep 1000");
    bench.edge.apply(&second);
    bench.edge.until_status("second", "a start", is_running).await;
    bench.edge.apply(&script_pod("third", "u4", "exec sleep 1000"));
    let is_refused = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("third", "a failure", is_refused).await;
    assert_eq!(status["reason"], "OutOfpods");
    assert_eq!(status["containerStatuses"][0]["state"]["running"], Value::Null);

    // There is room now, also for a new pod, and the pod that failed has failed.
    bench.edge.delete("shop/pod/second");
    edged.stop().await;
    let before = statuses(&bench.edge.operations(), "third").len();
    let edged = start().await.expect("starts");
    bench.edge.apply(&script_pod("fourth", "u5", "exec sleep 1000"));
    bench.edge.until_status("fourth", "a start", is_running).await;
    let status =
        bench.edge.until("the status again", |all| statuses(all, "third").get(before).cloned());
    let status = status.await;
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfpods")));
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_that_requests_more_than_is_left_fails_for_good_and_an_admitted_one_is_not_judged_again()
 {
    let bench = Bench::new(&[]);
    let cpus = std::thread::available_parallelism().expect("a machine").get();
    let start = |reserved_milli: usize| {
        let mut config = bench.config();
        config.settings.reserved.cpu_milli = u64::try_from(reserved_milli).expect("a number");
        Edged::spawn(config)
    };
    let requests = |name: &str, uid: &str, cpu: &str| {
        let mut pod = script_pod(name, uid, "exec sleep 1000");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    // A processor is left for pods.
    let edged = start(cpus * 1000 - 1000).await.expect("starts");
    bench.edge.apply(&requests("first", "u1", "600m"));
    bench.edge.until_status("first", "a start", is_running).await;
    // It waits for a ConfigMap, and nothing of it is on the machine but its record.
    let mut waits = requests("waits", "u2", "300m");
    waits["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": "absent"}}]);
    bench.edge.apply(&waits);
    bench.edge.until_status("waits", "a wait", |status| status["phase"] == "Pending").await;
    bench.edge.apply(&requests("second", "u3", "200m"));
    let failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("second", "a failure", failed).await;
    assert_eq!(status["reason"], "OutOfcpu");
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 200, used: 900, \
                   capacity: 1000";
    assert_eq!(status["message"], message);
    assert_eq!(status["containerStatuses"][0]["state"]["running"], Value::Null);
    assert_eq!(status["qosClass"], "Burstable");

    // Nothing is left for pods now: those that were admitted are not judged again.
    edged.stop().await;
    let edged = start(cpus * 1000).await.expect("starts");
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "absent", "namespace": "shop"},
    });
    bench.edge.apply(&config);
    bench.edge.until_status("waits", "a start", is_running).await;
    // All is left, and the pod that failed has failed.
    edged.stop().await;
    let before = statuses(&bench.edge.operations(), "second").len();
    let edged = start(0).await.expect("starts");
    let again = |all: &[Operation]| statuses(all, "second").get(before).cloned();
    let status = bench.edge.until("the status again", again).await;
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    assert_eq!(status["message"], message);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_whose_port_of_the_machine_is_taken_fails_and_a_later_one_has_it() {
    let bench = Bench::new(&[]);
    let edged = bench.edged().await;
    let taking = |name: &str, port: u16| {
        let mut pod = script_pod(name, name, "exec sleep 1000");
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        pod
    };
    bench.edge.apply(&taking("first", 8080));
    bench.edge.until_status("first", "a start", is_running).await;
    bench.edge.apply(&taking("other", 8081));
    bench.edge.until_status("other", "a start", is_running).await;
    bench.edge.apply(&taking("second", 8080));
    let failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("second", "a failure", failed).await;
    assert_eq!(status["reason"], "NodePorts");
    let message = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for \
                   the requested pod ports";
    assert_eq!(status["message"], message);
    // A pod that goes leaves its port.
    bench.edge.delete("shop/pod/first");
    bench.edge.apply(&taking("third", 8080));
    bench.edge.until_status("third", "a start", is_running).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_critical_pod_takes_the_place_of_another_which_fails_for_good() {
    let bench = Bench::new(&[]);
    let requesting = |name: &str, cpu: &str| {
        let mut pod = script_pod(name, name, "sleep 1000");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    bench.edge.apply(&requesting("small", "10m"));
    bench.edge.apply(&requesting("large", "20m"));
    let mut config = bench.config();
    config.settings.pods_max = 2;
    let edged = Edged::spawn(config.clone()).await.expect("the pod worker starts");
    for name in ["small", "large"] {
        bench.edge.until_status(name, "running", is_running).await;
    }
    let mut critical = requesting("critical", "10m");
    critical["spec"]["priority"] = 2_000_001_000.into();
    bench.edge.apply(&critical);
    bench.edge.until_status("critical", "running", is_running).await;
    let failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("small", "failed", failed).await;
    let why = [&status["reason"], &status["message"]];
    assert_eq!(why, ["Preempting", "Preempted in order to admit critical pod"]);
    assert_eq!(condition(&status, "DisruptionTarget"), "True");
    // A pod of no importance has no room, now and for the next pod worker.
    bench.edge.apply(&requesting("late", "10m"));
    let status = bench.edge.until_status("late", "failed", failed).await;
    assert_eq!(status["reason"], "OutOfpods");
    edged.stop().await;
    let before = bench.edge.operations().len();
    let edged = Edged::spawn(config).await.expect("the pod worker starts");
    assert_eq!(bench.edge.status_after(before, "small").await["reason"], "Preempting");
    let of_large = |all: &[Operation]| {
        latest_status(all.get(before..).unwrap_or_default(), "large").filter(is_running)
    };
    bench.edge.until("the large pod once more", of_large).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_that_leaves_its_place_goes_on_leaving_it_after_a_restart() {
    let bench = Bench::new(&[]);
    // It does not end when it is asked to, and its grace is longer than a restart takes.
    let mut stubborn =
        script_pod("stubborn", "stubborn", "trap '' TERM; while :; do sleep 1; done");
    stubborn["spec"]["terminationGracePeriodSeconds"] = 5.into();
    bench.edge.apply(&stubborn);
    let mut config = bench.config();
    config.settings.pods_max = 1;
    let edged = Edged::spawn(config.clone()).await.expect("the pod worker starts");
    bench.edge.until_status("stubborn", "running", is_running).await;
    let mut critical = script_pod("critical", "critical", "exec sleep 1000");
    critical["spec"]["priority"] = 2_000_001_000.into();
    bench.edge.apply(&critical);
    bench.edge.until_status("critical", "running", is_running).await;
    edged.stop().await;
    let before = bench.edge.operations().len();
    let edged = Edged::spawn(config).await.expect("the pod worker starts");
    let left = |all: &[Operation]| {
        let status = latest_status(all.get(before..).unwrap_or_default(), "stubborn")?;
        (status["phase"] == "Failed").then_some(status)
    };
    let status = bench.edge.until("the end of the pod that leaves", left).await;
    assert_eq!(status["reason"], "Preempting");
    edged.stop_pods(Duration::from_secs(5)).await;
}
