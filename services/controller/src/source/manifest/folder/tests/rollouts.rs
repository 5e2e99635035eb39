//! Rollouts from one look to the next, over restarts and a takeover.

use super::*;

pub(super) fn rolling(image: &str) -> String {
    let rolling = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let mut deployment: Value = serde_json::from_str(&deployment("d", 2, image)).expect("JSON");
    deployment["spec"]["strategy"] = rolling;
    deployment.to_string()
}

#[test]
fn a_rollout_continues_where_it_was_after_a_restart() {
    let mut story = Story::new();
    story.write("d.json", rolling("i:1"));
    story.settle();
    story.write("d.json", rolling("i:2"));
    story.update();
    let halfway = story.pods();
    assert_eq!(halfway.len(), 3, "one more");
    assert_eq!(story.folder.waiting().len(), 3);
    for _ in 0..2 {
        story.restart();
        story.update();
        assert_eq!(story.pods(), halfway, "the new pod is not Ready");
    }
    story.report_all(&ready());
    story.restart();
    story.update();
    assert_eq!(story.pods().len(), 2, "an old pod left");
    story.settle();
    assert!(story.folder.waiting().is_empty() && story.pods().len() == 2);
    assert!(story.pods().keys().filter(|name| halfway.contains_key(*name)).count() == 1);
}

#[test]
fn a_takeover_continues_with_what_the_other_controller_published() {
    let mut writer = Story::new();
    writer.write("d.json", rolling("i:1"));
    writer.settle();
    let mut standby = Story::new();
    standby.published = writer.published.clone();
    standby.write("d.json", rolling("i:1"));
    standby.update();
    for story in [&mut writer, &mut standby] {
        story.write("d.json", rolling("i:2"));
        story.update();
    }
    assert_eq!(standby.pods().len(), 3);
    writer.settle();

    standby.take_over(&writer);
    assert!(writer.pods().keys().eq(standby.pods().keys()), "{:?}", standby.pods());
}

#[test]
fn a_job_stays_failed_over_a_restart_and_keeps_its_pods() {
    let mut story = Story::new();
    let mut job: Value =
        serde_json::from_str(&deployment("j", 1, "i").replace("Deployment", "Job")).expect("JSON");
    job["apiVersion"] = "batch/v1".into();
    job["spec"] = json!({"backoffLimit": 1, "template": job["spec"]["template"]});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    story.write("j.json", job.to_string());
    story.update();
    assert_eq!(story.pods().len(), 1);
    let ended = json!({"finishedAt": "1970-01-01T00:00:00Z", "exitCode": 1});
    let failed = json!({
        "phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": ended}}],
    });
    story.report_all(&failed);
    assert_eq!(story.update().events, NOTHING, "it waits before it retries");
    story.now = story.folder.next_look().expect("a time");
    story.update();
    let pods = story.pods();
    assert_eq!(pods.len(), 2);
    story.report_all(&failed);
    story.now = "1971-01-01T00:00:00Z".parse().expect("a time");
    for _ in 0..2 {
        story.update();
        assert_eq!(story.pods(), pods);
        let condition = story.folder.workloads()[0].condition.clone();
        assert_eq!(condition, Some(("Failed", "BackoffLimitExceeded".to_owned())));
        story.restart();
    }
}

#[test]
fn a_job_that_takes_too_long_ends_its_pods_by_their_own_deadline() {
    let mut story = Story::new();
    let mut job: Value =
        serde_json::from_str(&deployment("j", 1, "i").replace("Deployment", "Job")).expect("JSON");
    job["apiVersion"] = "batch/v1".into();
    job["spec"] = json!({"activeDeadlineSeconds": 60, "template": job["spec"]["template"]});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    story.write("j.json", job.to_string());
    story.update();
    let pods = story.pods();
    story.report_all(&ready());
    story.update();
    story.now = story.folder.next_look().expect("a time");
    story.update();
    assert_eq!(story.pods(), pods, "the pod stays, under its UID");
    let (key, _) = story.published.first_key_value().expect("the pod");
    let pod = story.object(&key.to_string());
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 1);
    assert_eq!(pod["metadata"]["annotations"]["headwater/job-failed"], "DeadlineExceeded");
    story.restart();
    story.update();
    assert_eq!(story.pods(), pods);
}

#[test]
fn pods_of_a_version_that_did_not_mark_them_belong_to_their_workload() {
    let mut story = Story::new();
    let set = |image: &str| deployment("s", 2, image).replace("Deployment", "StatefulSet");
    story.write("s.json", set("i:1"));
    story.settle();
    let pods = story.pods();
    for pod in story.published.values_mut() {
        let mut value = pod.value();
        crate::source::manifest::origin::remove_workload(&mut value);
        pod.payload = serde_json::to_vec(&value).expect("JSON").into();
    }
    story.restart();
    story.update();
    assert_eq!(story.pods(), pods);
}
