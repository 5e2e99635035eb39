//! Patches.

use serde_json::{Value, json};

use super::api::{Api, MERGE, STRATEGIC, uid, version};

const OTHER_UID: &str = "11111111-2222-4333-8444-555555555555";

pub(crate) async fn a_lease_is_renewed_by_a_merge_patch(api: Api) {
    let lease = json!({"metadata": {"name": "l"}, "spec": {
        "holderIdentity": "l", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z",
    }});
    let lease = api.create(&api.leases(""), &lease).await;
    let path = api.leases("/l");
    let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}});
    let renewed = api.patch(MERGE, &path, &renewal).await.served();
    assert!(version(&renewed) > version(&lease));
    assert_eq!(renewed["spec"]["renewTime"], "2026-01-01T00:00:10.000000Z");
    assert_eq!(renewed["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(api.patch(MERGE, &path, &renewal).await.version(), version(&renewed));
    let gone = json!({"spec": {"leaseDurationSeconds": null}});
    assert!(
        api.patch(MERGE, &path, &gone).await.served()["spec"]["leaseDurationSeconds"].is_null()
    );
    let none = api.patch(MERGE, &api.leases("/none"), &renewal).await;
    none.refused(404, "NotFound", "leases.coordination.k8s.io \"none\" not found");
}

pub(crate) async fn a_patch_of_another_object_is_refused(api: Api) {
    let pod = api.pod("p", "gw").await;
    let path = api.path("pods/p/status");
    for media in [MERGE, STRATEGIC] {
        let patch = json!({"metadata": {"uid": OTHER_UID}, "status": {"phase": "Running"}});
        let other = api.patch(media, &path, &patch).await;
        other.refused(422, "Invalid", "metadata.uid: Invalid value");
        assert_eq!(other.body["details"]["causes"][0]["field"], "metadata.uid");
    }
    let stale = json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}});
    let stale = api.patch(STRATEGIC, &path, &stale).await;
    stale.refused(409, "Conflict", "the object has been modified");
    let same = json!({"metadata": {"uid": uid(&pod)}, "status": {"phase": "Running"}});
    assert_eq!(api.patch(STRATEGIC, &path, &same).await.served()["status"]["phase"], "Running");
    let name = json!({"metadata": {"name": "q"}});
    assert_eq!(api.patch(MERGE, &api.path("pods/p"), &name).await.code, 400);
}

fn conditions(object: &Value) -> Vec<String> {
    let items = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = |item: &Value| {
        let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
        format!("{}={}:{}", text("type"), text("status"), text("reason"))
    };
    items.iter().map(one).collect()
}

pub(crate) async fn conditions_are_merged_by_type(api: Api) {
    api.pod("p", "gw").await;
    let path = api.path("pods/p/status");
    let steps = [
        (
            json!([{"type": "A", "status": "True", "reason": "r"}, {"type": "B", "status": "True"}]),
            vec!["A=True:r", "B=True:"],
        ),
        // Only what is given changes, and a new one comes before what the patch does not name.
        (
            json!([{"type": "A", "status": "False"}, {"type": "C", "status": "True"}]),
            vec!["A=False:r", "C=True:", "B=True:"],
        ),
        (
            json!([{"type": "D", "status": "True"}, {"type": "A", "status": "True"}]),
            vec!["D=True:", "A=True:r", "C=True:", "B=True:"],
        ),
        (
            json!([{"$patch": "delete", "type": "C"}, {"type": "B", "status": "False"}]),
            vec!["D=True:", "A=True:r", "B=False:"],
        ),
        (json!([{"$patch": "replace"}, {"type": "E", "status": "True"}]), vec!["E=True:"]),
    ];
    for (patch, expected) in steps {
        let status = json!({"status": {"conditions": patch}});
        let patched = api.patch(STRATEGIC, &path, &status).await.served();
        assert_eq!(conditions(&patched), expected);
    }
    let ordered = json!({"status": {
        "$setElementOrder/conditions": [{"type": "F"}, {"type": "E"}],
        "conditions": [{"type": "F", "status": "True"}],
    }});
    let ordered = api.patch(STRATEGIC, &path, &ordered).await.served();
    assert_eq!(conditions(&ordered), ["F=True:", "E=True:"]);
    let keyless = json!({"status": {"conditions": [{"status": "True"}]}});
    let keyless = api.patch(STRATEGIC, &path, &keyless).await;
    assert_eq!(keyless.code, 500, "{}", keyless.body);
    // A JSON merge patch replaces the list.
    let merged = json!({"status": {"conditions": [{"type": "G", "status": "True"}]}});
    assert_eq!(conditions(&api.patch(MERGE, &path, &merged).await.served()), ["G=True:"]);
}

pub(crate) async fn addresses_are_replaced_by_a_directive(api: Api) {
    api.pod("p", "gw").await;
    let path = api.path("pods/p/status");
    let ips = |pod: &Value| {
        let ips = pod["status"]["podIPs"].as_array().cloned().unwrap_or_default();
        let one = |ip: &Value| ip["ip"].as_str().unwrap_or_default().to_owned();
        let single = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
        (single, ips.iter().map(one).collect::<Vec<_>>())
    };
    let is = |one: &str| (one.to_owned(), vec![one.to_owned()]);
    let first = json!({"status": {
        "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}],
    }});
    assert_eq!(ips(&api.patch(STRATEGIC, &path, &first).await.served()), is("10.0.0.1"));
    // The single one counts where the list begins with another.
    let list = json!({"status": {"podIPs": [{"ip": "10.0.0.2"}]}});
    assert_eq!(ips(&api.patch(STRATEGIC, &path, &list).await.served()), is("10.0.0.1"));
    // Without a directive the old one stays in the list, and the server takes no two of one family.
    let both = json!({"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}});
    let both = api.patch(STRATEGIC, &path, &both).await;
    both.refused(422, "Invalid", "may specify no more than one IP for each IP family");
    let replaced = json!({"status": {
        "podIP": "10.0.0.2", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
    }});
    assert_eq!(ips(&api.patch(STRATEGIC, &path, &replaced).await.served()), is("10.0.0.2"));
    let node = format!("{}-n", api.namespace);
    api.create("/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
    let path = format!("/api/v1/nodes/{node}/status");
    for (kind, address) in
        [("InternalIP", "10.0.0.1"), ("Hostname", "h"), ("InternalIP", "10.0.0.2")]
    {
        let patch = json!({"status": {"addresses": [{"type": kind, "address": address}]}});
        api.patch(STRATEGIC, &path, &patch).await.served();
    }
    let found = api.get(&format!("/api/v1/nodes/{node}")).await.served();
    let expected = json!([
        {"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.2"},
    ]);
    assert_eq!(found["status"]["addresses"], expected);
}

pub(crate) async fn a_patch_of_an_unknown_form_is_refused(api: Api) {
    api.config("c").await;
    let path = api.path("configmaps/c");
    let answer = api.patch("application/none", &path, &json!({})).await;
    answer.refused(415, "UnsupportedMediaType", "Unsupported Media Type");
    let answer = api.patch(STRATEGIC, &path, &json!([])).await;
    assert!(answer.code == 400, "{} {}", answer.code, answer.body);
}
