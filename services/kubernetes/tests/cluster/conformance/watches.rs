//! Watches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{Api, MERGE, version};

/// The time limit of the watches until one ends with a bookmark.
const BOOKMARK_WITHIN: Duration = Duration::from_secs(60);

/// Types and names of events.
fn shown(events: &[(String, String, Value)]) -> Vec<String> {
    events.iter().map(|(event, name, _)| format!("{event} {name}")).collect()
}

pub(crate) async fn a_watch_follows_a_version(api: Api) {
    let path = api.path("configmaps");
    let first = api.config("a").await;
    api.config("b").await;
    let patch = json!({"data": {"k": "w"}});
    let patched = api.patch(MERGE, &api.path("configmaps/b"), &patch).await.version();
    api.delete(&api.path("configmaps/a"), &Value::Null).await.served();
    let events = api.watch(&format!("{path}?resourceVersion={}", version(&first))).await;
    assert_eq!(shown(&events), ["ADDED b", "MODIFIED b", "DELETED a"]);
    let object = &events[1].2;
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(version(object), patched);
    // What is deleted is as it was, at the version of the delete.
    assert_eq!(events[2].2["data"]["k"], "v");
    assert!(version(&events[2].2) > patched);
    // In the order of the versions.
    let later = api.watch(&format!("{path}?resourceVersion={patched}")).await;
    assert_eq!(shown(&later), ["DELETED a"]);
    // In all namespaces as in one.
    let query = format!("resourceVersion={}", version(&first));
    let everywhere = api.watch(&format!("/api/v1/configmaps?{query}")).await;
    let of_case = |(_, _, object): &&(String, String, Value)| {
        object["metadata"]["namespace"] == *api.namespace
    };
    assert_eq!(everywhere.iter().filter(of_case).count(), 3);
    let one = api.watch(&format!("{path}?{query}&fieldSelector=metadata.name%3Da")).await;
    assert_eq!(shown(&one), ["DELETED a"]);
}

pub(crate) async fn what_leaves_a_selection_is_deleted(api: Api) {
    let path = api.path("configmaps");
    let begin = version(&api.config("a").await);
    for value in [json!("in"), json!("still"), Value::Null] {
        let label = json!({"metadata": {"labels": {"l": value}}});
        api.patch(MERGE, &api.path("configmaps/a"), &label).await.served();
    }
    let events = api.watch(&format!("{path}?resourceVersion={begin}&labelSelector=l")).await;
    assert_eq!(shown(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    // As it was when it was still selected.
    assert_eq!(events[2].2["metadata"]["labels"]["l"], "still");
    assert!(version(&events[2].2) > version(&events[1].2));
    let others = api.watch(&format!("{path}?resourceVersion={begin}&labelSelector=!l")).await;
    assert_eq!(shown(&others), ["DELETED a", "ADDED a"]);
}

pub(crate) async fn bookmarks_come_before_the_end(api: Api) {
    let path = api.path("configmaps");
    let begin = version(&api.config("a").await);
    let last = version(&api.config("b").await);
    let query = format!("{path}?resourceVersion={begin}&allowWatchBookmarks=true");
    let events = watch_to_bookmark(&api, &query, 4, last).await;
    assert_eq!(events[0].0, "ADDED");
    let (_, _, object) = events.last().expect("events");
    assert_eq!(object["kind"], "ConfigMap");
    // Not to a client that does not want them.
    let plain = api.watch_for(&format!("{path}?resourceVersion={begin}"), 4).await;
    assert_eq!(shown(&plain), ["ADDED b"]);
}

/// What a source relies on that has to know that it is not behind.
pub(crate) async fn a_short_watch_reaches_the_version_of_an_empty_list_before_it(api: Api) {
    let path = api.path("configmaps");
    let begin = version(&api.config("a").await);
    // A change of another resource: no event of the watch has its version.
    api.create(
        &api.path("services"),
        &json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}]},
        }),
    )
    .await;
    let nothing = "fieldSelector=metadata.name%3Dheadwater.catches.up";
    let present = api.get(&format!("/api/v1/configmaps?{nothing}")).await.version();
    assert!(present > begin);
    let query = format!("{path}?resourceVersion={begin}&allowWatchBookmarks=true");
    watch_to_bookmark(&api, &query, 3, present).await;
}

/// Watches until a watch ends with a bookmark of `wanted` or later. A server sends it in the last two
/// seconds of a watch; one that is busy then may miss it.
async fn watch_to_bookmark(
    api: &Api,
    query: &str,
    seconds: u32,
    wanted: u64,
) -> Vec<(String, String, Value)> {
    let end = Instant::now() + BOOKMARK_WITHIN;
    loop {
        let events = api.watch_for(query, seconds).await;
        let last = events.last().filter(|(event, ..)| event == "BOOKMARK");
        if last.is_some_and(|(_, _, object)| version(object) >= wanted) {
            return events;
        }
        assert!(Instant::now() < end, "no bookmark of {wanted}: {events:?}");
    }
}

pub(crate) async fn versions_of_watches_mean_what_they_say(api: Api) {
    let path = api.path("configmaps");
    let first = version(&api.config("a").await);
    // From no version, or any: what is there, then what comes.
    for query in ["?allowWatchBookmarks=false", "?resourceVersion=0"] {
        let events = api.watch(&format!("{path}{query}")).await;
        assert_eq!(shown(&events), ["ADDED a"], "{query}");
    }
    let old = api.watch(&format!("{path}?resourceVersion=1")).await;
    assert_eq!(old.len(), 1, "{old:?}");
    let (event, _, status) = &old[0];
    assert_eq!((&**event, &status["code"]), ("ERROR", &json!(410)));
    assert_eq!(status["reason"], "Expired");
    let message = status["message"].as_str().expect("a message");
    assert!(message.starts_with("too old resource version: 1 ("), "{message}");
    // A version that is not there yet is waited for in silence.
    let later = first + 1_000_000;
    let events = api.watch(&format!("{path}?resourceVersion={later}")).await;
    assert!(events.is_empty(), "{events:?}");
    let wrong = api.get(&format!("{path}?watch=true&resourceVersion=wrong")).await;
    wrong.refused(500, "", "resourceVersion: Invalid value: \"wrong\"");
}
