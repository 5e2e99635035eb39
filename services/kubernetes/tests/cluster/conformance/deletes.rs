//! Deletes.

use serde_json::{Value, json};

use super::api::{Api, MERGE, uid, version};

const OTHER_UID: &str = "11111111-2222-4333-8444-555555555555";

/// The types of the events of one resource after a version.
async fn events(api: &Api, resource: &str, after: u64) -> Vec<String> {
    let path = format!("{}?resourceVersion={after}", api.path(resource));
    api.watch(&path).await.into_iter().map(|(event, ..)| event).collect()
}

pub(crate) async fn an_object_goes_at_once(api: Api) {
    let config = api.config("c").await;
    let path = api.path("configmaps/c");
    let answer = api.delete(&path, &Value::Null).await.served();
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "c", "kind": "configmaps", "uid": uid(&config)});
    assert_eq!(answer["details"], details);
    api.get(&path).await.refused(404, "NotFound", "");
    api.delete(&path, &Value::Null).await.refused(404, "NotFound", "configmaps \"c\" not found");
    // Made again under its name it is another.
    assert_ne!(uid(&api.config("c").await), uid(&config));
    api.create(&api.path("serviceaccounts"), &json!({"metadata": {"name": "a"}})).await;
    let deleted = api.delete(&api.path("serviceaccounts/a"), &Value::Null).await.served();
    assert_eq!(deleted["kind"], "ServiceAccount");
}

pub(crate) async fn a_pod_of_no_node_goes_at_once(api: Api) {
    let pod = api.pod("p", "").await;
    let deleted = api.delete(&api.path("pods/p"), &Value::Null).await.served();
    assert_eq!((&deleted["kind"], uid(&deleted)), (&json!("Pod"), uid(&pod)));
    assert!(version(&deleted) > version(&pod));
    api.get(&api.path("pods/p")).await.refused(404, "NotFound", "");
    assert_eq!(events(&api, "pods", version(&pod)).await, ["MODIFIED", "DELETED"]);
    // Nor does one wait that has ended.
    let pod = api.pod("q", "gw").await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    api.patch(MERGE, &api.path("pods/q/status"), &ended).await.served();
    api.delete(&api.path("pods/q"), &Value::Null).await.served();
    api.get(&api.path("pods/q")).await.refused(404, "NotFound", "");
    assert!(version(&pod) > 0);
}

pub(crate) async fn a_bound_pod_goes_after_its_grace(api: Api) {
    let pod = api.pod("p", "gw").await;
    let path = api.path("pods/p");
    let ending = api.delete(&path, &Value::Null).await.served();
    let seconds = |pod: &Value| pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    assert_eq!((seconds(&ending), ending["metadata"]["generation"].as_i64()), (Some(30), Some(2)));
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    // Again, or with a longer grace: nothing.
    let again = api.delete(&path, &json!({"gracePeriodSeconds": 60})).await.served();
    assert_eq!((version(&again), seconds(&again)), (version(&ending), Some(30)));
    let again = api.delete(&path, &Value::Null).await.served();
    assert_eq!(version(&again), version(&ending));
    let shorter = api.delete(&path, &json!({"gracePeriodSeconds": 20})).await.served();
    assert_eq!(seconds(&shorter), Some(20));
    assert!(version(&shorter) > version(&ending));
    // A status still arrives.
    let status = json!({"status": {"phase": "Running"}});
    let status = api.patch(MERGE, &api.path("pods/p/status"), &status).await.served();
    assert_eq!(seconds(&status), Some(20));
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(&pod)}});
    api.delete(&path, &options).await.served();
    api.get(&path).await.refused(404, "NotFound", "");
    let expected = ["MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"];
    assert_eq!(events(&api, "pods", version(&pod)).await, expected);
}

pub(crate) async fn a_delete_needs_what_it_names(api: Api) {
    let pod = api.pod("p", "gw").await;
    let path = api.path("pods/p");
    let other = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": OTHER_UID}});
    let other = api.delete(&path, &other).await;
    let message =
        format!("the UID in the precondition ({OTHER_UID}) does not match the UID in record");
    other.refused(409, "Conflict", &message);
    let stale = json!({"gracePeriodSeconds": 0, "preconditions": {"resourceVersion": "1"}});
    let stale = api.delete(&path, &stale).await;
    stale.refused(409, "Conflict", "the ResourceVersion in the precondition (1) does not match");
    assert_eq!(api.get(&path).await.version(), version(&pod));
    api.delete(&api.path("pods/none"), &Value::Null).await.refused(404, "NotFound", "");
    let config = api.config("c").await;
    let other = json!({"preconditions": {"uid": OTHER_UID}});
    let other = api.delete(&api.path("configmaps/c"), &other).await;
    other.refused(409, "Conflict", "recondition");
    let right = json!({"preconditions": {
        "uid": uid(&config), "resourceVersion": version(&config).to_string(),
    }});
    api.delete(&api.path("configmaps/c"), &right).await.served();
}

pub(crate) async fn a_finalizer_holds_an_object(api: Api) {
    let body = json!({"metadata": {"name": "c", "finalizers": ["x.example/f"]}});
    let config = api.create(&api.path("configmaps"), &body).await;
    let path = api.path("configmaps/c");
    let ending = api.delete(&path, &Value::Null).await.served();
    assert_eq!(ending["kind"], "ConfigMap");
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.delete(&path, &Value::Null).await.version(), version(&ending));
    let more = json!({"metadata": {"finalizers": ["x.example/f", "x.example/g"]}});
    let more = api.patch(MERGE, &path, &more).await;
    more.refused(422, "Invalid", "no new finalizers can be added if the object is being deleted");
    let free = json!({"metadata": {"finalizers": null}});
    let free = api.patch(MERGE, &path, &free).await.served();
    assert_eq!(uid(&free), uid(&config));
    api.get(&path).await.refused(404, "NotFound", "");
    assert_eq!(events(&api, "configmaps", version(&config)).await, ["MODIFIED", "DELETED"]);
}

pub(crate) async fn a_finalizer_holds_a_pod_whose_grace_is_over(api: Api) {
    let body = json!({
        "metadata": {"name": "p", "finalizers": ["x.example/f"]},
        "spec": {"nodeName": "gw", "containers": [{"name": "main", "image": "i"}]},
    });
    let pod = api.create(&api.path("pods"), &body).await;
    let path = api.path("pods/p");
    let ended = api.delete(&path, &json!({"gracePeriodSeconds": 0})).await.served();
    assert_eq!(ended["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.get(&path).await.version(), version(&ended));
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(MERGE, &path, &free).await.served();
    api.get(&path).await.refused(404, "NotFound", "");
    assert_eq!(events(&api, "pods", version(&pod)).await, ["MODIFIED", "DELETED"]);
    // With a grace that is not over, the end of the finalizer alone removes nothing.
    api.create(&api.path("pods"), &body).await;
    api.delete(&path, &json!({"gracePeriodSeconds": 9})).await.served();
    api.patch(MERGE, &path, &free).await.served();
    assert_eq!(api.get(&path).await.served()["metadata"]["deletionGracePeriodSeconds"], 9);
}
