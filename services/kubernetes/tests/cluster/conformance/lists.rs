//! Lists.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, MERGE, version};

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or_default()
}

pub(crate) async fn pages_are_of_one_version(api: Api) {
    for name in ["a", "b", "c", "d", "e"] {
        api.config(name).await;
    }
    let path = api.path("configmaps");
    let first = api.get(&format!("{path}?limit=2")).await.served();
    assert_eq!((&first["kind"], &first["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first["items"][0].get("kind").is_none(), "{first}");
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // What happens meanwhile is not in the list.
    api.delete(&api.path("configmaps/c"), &Value::Null).await.served();
    api.config("dd").await;
    api.patch(MERGE, &api.path("configmaps/e"), &json!({"data": {"k": "new"}})).await.served();
    let next = |token: &str| format!("{path}?limit=2&continue={token}");
    let second = api.get(&next(token(&first))).await.served();
    assert_eq!((names(&second), version(&second)), (vec!["c", "d"], version(&first)));
    let third = api.get(&next(token(&second))).await.served();
    assert_eq!((names(&third), token(&third)), (vec!["e"], ""));
    assert_eq!(third["items"][0]["data"]["k"], "v");
    let all = api.get(&path).await.served();
    assert_eq!(names(&all), ["a", "b", "d", "dd", "e"]);
    assert!(version(&all) > version(&first));
    let with_version = format!("{}&resourceVersion=5", next(token(&first)));
    let refused = api.get(&with_version).await;
    refused.refused(400, "BadRequest", "resource version is not allowed when using continue");
    let broken = api.get(&next("broken")).await;
    broken.refused(400, "BadRequest", "continue key is not valid");
    // No server counts what a selection leaves.
    let selected = api.get(&format!("{path}?limit=1&labelSelector=!x")).await.served();
    assert_eq!(names(&selected), ["a"]);
    assert!(selected["metadata"].get("remainingItemCount").is_none(), "{selected}");
    let none = api.get(&format!("{path}?labelSelector=x")).await.served();
    assert_eq!(none["items"], json!([]));
}

pub(crate) async fn selectors_select(api: Api) {
    for (name, labels) in
        [("a", json!({"l": "1"})), ("b", json!({"l": "2", "m": ""})), ("c", json!({}))]
    {
        let body = json!({"metadata": {"name": name, "labels": labels}});
        api.create(&api.path("configmaps"), &body).await;
    }
    for (selector, expected) in [
        ("l", vec!["a", "b"]),
        ("!l", vec!["c"]),
        ("l%3D1", vec!["a"]),
        ("l!%3D1", vec!["b", "c"]),
        ("l%20in%20(1,2),m", vec!["b"]),
        ("l%20notin%20(1)", vec!["b", "c"]),
        ("m%3D", vec!["b"]),
    ] {
        let list = api.get(&format!("{}?labelSelector={selector}", api.path("configmaps"))).await;
        assert_eq!(names(&list.served()), expected, "{selector}");
    }
    api.pod("bound", "gw").await;
    api.pod("free", "").await;
    for (selector, expected) in [
        ("spec.nodeName!%3D", vec!["bound"]),
        ("spec.nodeName%3Dgw,metadata.name%3Dbound", vec!["bound"]),
        ("spec.nodeName%3D", vec!["free"]),
        ("status.phase%3DPending", vec!["bound", "free"]),
    ] {
        let list = api.get(&format!("{}?fieldSelector={selector}", api.path("pods"))).await;
        assert_eq!(names(&list.served()), expected, "{selector}");
    }
    let wrong = api.get(&format!("{}?fieldSelector=spec.hostname%3Dx", api.path("pods"))).await;
    wrong.refused(400, "BadRequest", "field label not supported: spec.hostname");
    let wrong = api.get(&format!("{}?labelSelector=a%20b", api.path("pods"))).await;
    wrong.refused(400, "BadRequest", "unable to parse requirement");
    for (name, kind) in [("opaque", "Opaque"), ("helm", "helm.sh/release.v1")] {
        let body = json!({"metadata": {"name": name}, "type": kind});
        api.create(&api.path("secrets"), &body).await;
    }
    let selector = "type!%3Dhelm.sh/release.v1,type!%3Dbootstrap.kubernetes.io/token";
    let list = api.get(&format!("{}?fieldSelector={selector}", api.path("secrets"))).await;
    assert_eq!(names(&list.served()), ["opaque"]);
    let path = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system";
    assert_eq!(names(&api.get(path).await.served()), ["kube-system"]);
}

pub(crate) async fn versions_of_lists_mean_what_they_say(api: Api) {
    let path = api.path("configmaps");
    let first = version(&api.config("a").await);
    let second = version(&api.config("b").await);
    let list = |query: String| api.get_list(query);
    let exact = list(format!("{path}?resourceVersion={first}&resourceVersionMatch=Exact")).await;
    let exact = exact.served();
    assert_eq!((names(&exact), version(&exact)), (vec!["a"], first));
    let limited = list(format!("{path}?resourceVersion={first}&limit=5")).await.served();
    assert_eq!(names(&limited), ["a"]);
    let newer = list(format!("{path}?resourceVersion={second}&resourceVersionMatch=NotOlderThan"));
    let newer = newer.await.served();
    assert!(version(&newer) >= second);
    assert_eq!(names(&newer), ["a", "b"]);
    // Any version will do.
    let any = list(format!("{path}?resourceVersion=0")).await.served();
    assert!(version(&any) > 0);
    let unversioned = list(format!("{path}?resourceVersionMatch=Exact")).await;
    unversioned.refused(422, "Invalid", "forbidden unless resourceVersion is provided");
    let far = u64::from(u32::MAX);
    let far_list = list(format!("{path}?resourceVersion={far}")).await;
    far_list.refused(504, "Timeout", &format!("Too large resource version: {far}, current: "));
    assert_eq!(far_list.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let wrong = list(format!("{path}?resourceVersion=wrong")).await;
    assert_eq!(wrong.code, 400, "{}", wrong.body);
}

pub(crate) async fn a_token_expires(api: Api) {
    for name in ["a", "b", "c"] {
        api.config(name).await;
    }
    let path = api.path("configmaps");
    let first = api.get(&format!("{path}?limit=1")).await.served();
    api.config("d").await;
    api.forget();
    let expired = async {
        loop {
            let next = api.get(&format!("{path}?limit=1&continue={}", token(&first))).await;
            if next.code != 200 {
                return next;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let expired = tokio::time::timeout(Duration::from_secs(60), expired).await.expect("it expires");
    expired.refused(410, "Expired", "The provided continue parameter is too old");
    // It goes on at another version, for a client that does not mind.
    let next = format!("{path}?continue={}", token(&expired.body));
    assert_eq!(names(&api.get(&next).await.served()), ["b", "c", "d"]);
}

impl Api {
    async fn get_list(&self, path: String) -> super::api::Answer {
        self.get(&path).await
    }
}
