//! Creates and updates.

use serde_json::{Value, json};

use super::api::{Api, uid, version};

const OTHER_UID: &str = "11111111-2222-4333-8444-555555555555";

pub(crate) async fn a_new_object_has_an_identity(api: Api) {
    let config = api.config("c").await;
    assert_eq!((&config["kind"], &config["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(config["metadata"]["namespace"], *api.namespace);
    assert_eq!(uid(&config).len(), 36);
    assert!(config["metadata"]["creationTimestamp"].as_str().expect("a time").ends_with('Z'));
    assert!(config["metadata"].get("generation").is_none());
    let found = api.get(&api.path("configmaps/c")).await.served();
    assert_eq!(uid(&found), uid(&config));
    assert_eq!(version(&found), version(&config));
    // Not the identity that the client gives.
    let body = json!({"metadata": {"name": "d", "uid": OTHER_UID, "generation": 7}});
    let other = api.create(&api.path("configmaps"), &body).await;
    assert_ne!(uid(&other), OTHER_UID);
    assert!(version(&other) > version(&config));
    let pod = api.pod("p", "gw").await;
    assert_eq!(pod["metadata"]["generation"], 1);
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let spec = &pod["spec"];
    assert_eq!((&spec["restartPolicy"], &spec["nodeName"]), (&json!("Always"), &json!("gw")));
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    let tolerations = spec["tolerations"].as_array().expect("tolerations");
    assert_eq!(tolerations.len(), 2, "{tolerations:?}");
    let seconds = tolerations.iter().all(|one| one["tolerationSeconds"] == 300);
    assert!(seconds && tolerations[0]["key"] == "node.kubernetes.io/not-ready");
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let secret = api.create(&api.path("secrets"), &secret).await;
    assert_eq!((&secret["type"], &secret["data"]), (&json!("Opaque"), &json!({"k": "dg=="})));
}

pub(crate) async fn a_create_that_cannot_be_is_refused(api: Api) {
    let configs = api.path("configmaps");
    api.config("c").await;
    let named = |name: &str| json!({"metadata": {"name": name}});
    let again = api.post(&configs, &named("c")).await;
    again.refused(409, "AlreadyExists", "configmaps \"c\" already exists");
    assert_eq!(again.body["details"], json!({"name": "c", "kind": "configmaps"}));
    let nowhere = api.post("/api/v1/namespaces/nowhere/configmaps", &named("c")).await;
    nowhere.refused(404, "NotFound", "namespaces \"nowhere\" not found");
    let elsewhere = json!({"metadata": {"name": "d", "namespace": "default"}});
    let elsewhere = api.post(&configs, &elsewhere).await;
    elsewhere.refused(400, "BadRequest", "does not match the namespace sent on the request");
    let nameless = api.post(&configs, &json!({"metadata": {}})).await;
    nameless.refused(422, "Invalid", "name or generateName is required");
    api.post(&configs, &named("Upper")).await.refused(
        422,
        "Invalid",
        "metadata.name: Invalid value",
    );
    let old = json!({"metadata": {"name": "d", "resourceVersion": "1"}});
    let old = api.post(&configs, &old).await;
    old.refused(500, "", "resourceVersion should not be set on objects to be created");
    let kind = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "d"}});
    assert_eq!(api.post(&configs, &kind).await.code, 400);
}

pub(crate) async fn a_generated_name_begins_with_its_prefix(api: Api) {
    let body = json!({"metadata": {"generateName": "g-"}});
    let one = api.create(&api.path("configmaps"), &body).await;
    let other = api.create(&api.path("configmaps"), &body).await;
    let name = one["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("g-") && name.len() == 7, "{name}");
    assert_eq!(one["metadata"]["generateName"], "g-");
    assert_ne!(one["metadata"]["name"], other["metadata"]["name"]);
}

pub(crate) async fn an_update_needs_the_version_that_it_names(api: Api) {
    let path = api.path("configmaps/c");
    let first = api.config("c").await;
    let mut second = first.clone();
    second["data"]["k"] = "w".into();
    let written = api.put(&path, &second).await.served();
    assert!(version(&written) > version(&first));
    assert_eq!((uid(&written), &written["data"]["k"]), (uid(&first), &json!("w")));
    let stale = api.put(&path, &first).await;
    let message = "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; \
                   please apply your changes to the latest version and try again";
    stale.refused(409, "Conflict", message);
    // Without a version it is about any.
    let any = json!({"metadata": {"name": "c"}, "data": {"k": "x"}});
    assert_eq!(api.put(&path, &any).await.served()["data"]["k"], "x");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let lease = api.create(&api.leases(""), &lease).await;
    let any = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}});
    let any = api.put(&api.leases("/l"), &any).await;
    any.refused(422, "Invalid", "metadata.resourceVersion: Invalid value");
    assert_eq!(any.body["details"]["group"], "coordination.k8s.io");
    assert_eq!(api.put(&api.leases("/l"), &lease).await.code, 200);
}

pub(crate) async fn an_update_of_another_object_is_refused(api: Api) {
    let path = api.path("configmaps/c");
    let first = api.config("c").await;
    let other_uid = json!({"metadata": {"name": "c", "uid": OTHER_UID}});
    let refused = api.put(&path, &other_uid).await;
    refused.refused(409, "Conflict", &format!("UID in precondition: {OTHER_UID}"));
    let other_name = api.put(&path, &json!({"metadata": {"name": "d"}})).await;
    other_name.refused(400, "BadRequest", "the name of the object (d)");
    let none = json!({"metadata": {"name": "none"}});
    let none = api.put(&api.path("configmaps/none"), &none).await;
    none.refused(404, "NotFound", "configmaps \"none\" not found");
    assert_eq!(none.body["details"], json!({"name": "none", "kind": "configmaps"}));
    assert_eq!(api.get(&path).await.version(), version(&first));
}

pub(crate) async fn a_write_that_changes_nothing_keeps_the_version(api: Api) {
    let pod = api.pod("p", "gw").await;
    let path = api.path("pods/p");
    assert_eq!(api.put(&path, &pod).await.version(), version(&pod));
    let mut labelled = pod.clone();
    labelled["metadata"]["labels"] = json!({});
    assert_eq!(api.put(&path, &labelled).await.version(), version(&pod));
    let status = json!({"status": {"phase": "Running"}});
    let path = api.path("pods/p/status");
    let once = api.patch(super::api::STRATEGIC, &path, &status).await.version();
    assert!(once > version(&pod));
    assert_eq!(api.patch(super::api::STRATEGIC, &path, &status).await.version(), once);
    assert_eq!(api.patch(super::api::MERGE, &path, &status).await.version(), once);
}

pub(crate) async fn spec_and_status_of_a_pod_are_apart(api: Api) {
    let body = json!({
        "metadata": {"name": "p"}, "status": {"phase": "Running", "podIP": "10.0.0.1"},
        "spec": {"nodeName": "gw", "containers": [{"name": "main", "image": "one"}]},
    });
    let pod = api.create(&api.path("pods"), &body).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    let both = json!({
        "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"},
        "spec": {"containers": [{"name": "main", "image": "two"}]},
    });
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
    let (path, strategic) = (api.path("pods/p"), super::api::STRATEGIC);
    let status = api.patch(strategic, &format!("{path}/status"), &both).await.served();
    assert_eq!((&status["status"]["phase"], image(&status)), (&json!("Running"), json!("one")));
    assert_eq!(status["metadata"]["generation"], 1);
    // The labels go with either.
    assert_eq!(status["metadata"]["labels"]["a"], "b");
    let mut both = both;
    both["status"]["phase"] = "Failed".into();
    let spec = api.patch(strategic, &path, &both).await.served();
    assert_eq!((&spec["status"]["phase"], image(&spec)), (&json!("Running"), json!("two")));
    assert_eq!(spec["metadata"]["generation"], 2);
}

pub(crate) async fn a_node_is_created_with_its_status(api: Api) {
    let name = api.namespace.clone();
    let node = json!({
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/edge": ""}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let node = api.create("/api/v1/nodes", &node).await;
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
    let path = format!("/api/v1/nodes/{name}");
    let both = json!({
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "DiskPressure", "status": "False"}]},
    });
    let strategic = super::api::STRATEGIC;
    let status = api.patch(strategic, &format!("{path}/status"), &both).await.served();
    assert!(status["spec"]["unschedulable"].is_null(), "{status}");
    assert_eq!(status["status"]["conditions"].as_array().map(Vec::len), Some(2), "{status}");
    let spec = api.patch(strategic, &path, &both).await.served();
    assert_eq!(spec["spec"]["unschedulable"], true);
    assert_eq!(api.delete(&path, &Value::Null).await.served()["kind"], "Status");
}

pub(crate) async fn the_spec_of_a_pod_is_fixed_but_for_tolerations(api: Api) {
    let mut pod = api.pod("p", "gw").await;
    let path = api.path("pods/p");
    let moved = json!({"spec": {"nodeName": "elsewhere"}});
    let moved = api.patch(super::api::MERGE, &path, &moved).await;
    moved.refused(422, "Invalid", "pod updates may not change fields other than");
    assert_eq!(moved.body["details"]["kind"], "Pod");
    let tolerations = pod["spec"]["tolerations"].as_array_mut().expect("tolerations");
    for one in tolerations.iter_mut() {
        one.as_object_mut().expect("a toleration").remove("tolerationSeconds");
    }
    tolerations.push(json!({"key": "more", "operator": "Exists"}));
    let changed = api.put(&path, &pod).await.served();
    assert_eq!(changed["spec"]["tolerations"], pod["spec"]["tolerations"]);
    // Those of an absent node come back by themselves, with their seconds.
    let fewer = json!({"spec": {"tolerations": [{"key": "more", "operator": "Exists"}]}});
    let fewer = api.patch(super::api::MERGE, &path, &fewer).await.served();
    assert_eq!(fewer["spec"]["tolerations"][1]["tolerationSeconds"], 300, "{fewer}");
    let none = json!({"spec": {"tolerations": []}});
    let none = api.patch(super::api::MERGE, &path, &none).await;
    none.refused(422, "Invalid", "existing toleration can not be modified");
}

pub(crate) async fn the_status_of_a_pod_goes_forward(api: Api) {
    let body = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "gw", "restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}],
    }});
    api.create(&api.path("pods"), &body).await;
    let path = api.path("pods/p/status");
    let state = |state: Value| {
        json!({"status": {"containerStatuses": [{
            "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }]}})
    };
    let ended = state(json!({"terminated": {"exitCode": 0}}));
    api.patch(super::api::STRATEGIC, &path, &ended).await.served();
    let back = api.patch(super::api::STRATEGIC, &path, &state(json!({"running": {}}))).await;
    back.refused(422, "Invalid", "may not be transitioned to non-terminated state");
    let class = json!({"status": {"qosClass": "Guaranteed"}});
    let class = api.patch(super::api::STRATEGIC, &path, &class).await;
    class.refused(422, "Invalid", "status.qosClass");
}

pub(crate) async fn rights_tokens_and_versions_are_answered(api: Api) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(api.create(path, &review).await["status"]["allowed"], true);
    let account = json!({"metadata": {"name": "a"}});
    api.create(&api.path("serviceaccounts"), &account).await;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["x"], "expirationSeconds": 3600},
    });
    let token = api.create(&api.path("serviceaccounts/a/token"), &request).await;
    assert!(!token["status"]["token"].as_str().expect("a token").is_empty());
    assert!(token["status"]["expirationTimestamp"].is_string());
    let none = api.post(&api.path("serviceaccounts/none/token"), &request).await;
    none.refused(404, "NotFound", "serviceaccounts \"none\" not found");
    let version = api.get("/version").await.served();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    assert_eq!(api.get("/readyz").await.served(), "ok");
}

pub(crate) async fn what_is_not_served_is_not_found(api: Api) {
    let group = api.get("/apis/none.example/v1/things").await;
    assert_eq!((group.code, group.body.as_str()), (404, Some("404 page not found\n")));
    let resource = api.get("/apis/storage.k8s.io/v1/pods").await;
    resource.refused(404, "NotFound", "the server could not find the requested resource");
    let none = api.get(&api.path("pods/none")).await;
    none.refused(404, "NotFound", "pods \"none\" not found");
    let none = api.get(&api.leases("/none")).await;
    none.refused(404, "NotFound", "leases.coordination.k8s.io \"none\" not found");
    let details = json!({"name": "none", "group": "coordination.k8s.io", "kind": "leases"});
    assert_eq!(none.body["details"], details);
    let method = api.post("/api/v1/nodes/n", &json!({"metadata": {"name": "n"}})).await;
    method.refused(405, "MethodNotAllowed", "the server does not allow this method");
}
