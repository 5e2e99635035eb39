//! What befalls requests and watches, and what of it has happened afterwards.

use std::time::Duration;

use bytes::Bytes;
use headwater_apiserver::{AnswerBody, ApiServer, ConnectionError, Faults};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";

/// As long as a test waits for what does not come, in virtual time.
const LONG: Duration = Duration::from_secs(600);

fn server() -> ApiServer {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(7);
    ApiServer::new(|| 1_700_000_000_000, move || chance.next_u64())
}

/// Faults of which one is certain.
fn certain(set: impl FnOnce(&mut Faults)) -> Faults {
    let mut faults = Faults::default();
    set(&mut faults);
    faults
}

async fn send(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: &str,
) -> Result<Response<AnswerBody>, ConnectionError> {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    server.clone().oneshot(request).await
}

/// Creates a ConfigMap over the wire: the code of the answer.
async fn create(server: &ApiServer, name: &str) -> Result<u16, ConnectionError> {
    let body = json!({"metadata": {"name": name}}).to_string();
    Ok(send(server, Method::POST, CONFIGS, &body).await?.status().as_u16())
}

/// Creates a ConfigMap at the server itself.
fn put(server: &ApiServer, name: &str) {
    let body = json!({"metadata": {"name": name}});
    assert_eq!(server.request(Method::POST, CONFIGS, Some(&body)).0, 201);
}

fn has(server: &ApiServer, name: &str) -> bool {
    server.objects("configmaps").iter().any(|one| one["metadata"]["name"] == name)
}

/// A watch of ConfigMaps after a version.
async fn watch(server: &ApiServer, version: u64) -> AnswerBody {
    let path = format!("{CONFIGS}?watch=true&resourceVersion={version}&timeoutSeconds=60");
    send(server, Method::GET, &path, "").await.expect("an answer").into_body()
}

/// The next event of a watch; `None` at its end.
async fn next(watch: &mut AnswerBody) -> Option<Result<Value, ConnectionError>> {
    let frame = watch.frame().await?;
    let line = |bytes: Bytes| serde_json::from_slice(&bytes).expect("a line of JSON");
    Some(frame.map(|frame| line(frame.into_data().expect("no trailers"))))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_lost_does_not_act_and_one_whose_answer_is_lost_does() {
    let server = server();
    server.set_faults(certain(|faults| faults.request_lost = 1000));
    assert_eq!(create(&server, "a").await, Err(ConnectionError::Reset));
    assert!(!has(&server, "a"));
    server.set_faults(certain(|faults| faults.answer_lost = 1000));
    assert_eq!(create(&server, "a").await, Err(ConnectionError::Reset));
    assert!(has(&server, "a"));
    let silent = certain(|faults| (faults.answer_lost, faults.silent) = (1000, 1000));
    server.set_faults(silent);
    let began = Instant::now();
    assert_eq!(create(&server, "b").await, Err(ConnectionError::Reset));
    assert!(has(&server, "b") && began.elapsed() > Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn refusals_for_now_do_not_act_and_a_silent_store_may_have() {
    let server = server();
    server.set_faults(certain(|faults| faults.throttled = 1000));
    let answer = send(&server, Method::POST, CONFIGS, "{}").await.expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"1".parse().expect("a value"))
    );
    server.set_faults(certain(|faults| faults.unavailable = 1000));
    assert_eq!(create(&server, "a").await, Ok(503));
    assert!(!has(&server, "a"));
    server.set_faults(certain(|faults| faults.store_timeout = 1000));
    assert_eq!(create(&server, "a").await, Ok(500));
    assert!(has(&server, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_ends_watches_and_forgets_what_they_could_continue() {
    let server = server();
    let begin = server.version();
    let mut open = watch(&server, begin).await;
    put(&server, "a");
    let event = next(&mut open).await.expect("an event").expect("open");
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("a"))
    );
    server.stop();
    assert_eq!(next(&mut open).await, Some(Err(ConnectionError::Reset)));
    assert_eq!(next(&mut open).await, None);
    assert_eq!(create(&server, "b").await, Err(ConnectionError::Refused));
    server.start();
    let error = next(&mut watch(&server, begin).await).await.expect("an event").expect("open");
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let last = server.version();
    put(&server, "b");
    let event = next(&mut watch(&server, last).await).await.expect("an event").expect("open");
    assert_eq!(event["object"]["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_silent_and_goes_on() {
    let server = server();
    let mut open = watch(&server, server.version()).await;
    server.set_frozen(true);
    put(&server, "a");
    assert!(timeout(LONG, next(&mut open)).await.is_err());
    assert!(timeout(LONG, create(&server, "b")).await.is_err());
    server.set_frozen(false);
    let event = next(&mut open).await.expect("an event").expect("open");
    assert_eq!(event["object"]["metadata"]["name"], "a");
    assert_eq!(create(&server, "b").await, Ok(201));
}

#[tokio::test(start_paused = true)]
async fn a_watch_hangs_or_ends_in_the_middle_of_its_events() {
    let server = server();
    let begin = server.version();
    server.set_faults(certain(|faults| faults.watch_hangs = 1000));
    let mut hung = watch(&server, begin).await;
    put(&server, "a");
    // Not even the end of its time ends it.
    assert!(timeout(LONG, next(&mut hung)).await.is_err());
    server.set_faults(certain(|faults| faults.watch_ends = 1000));
    let mut ending = watch(&server, begin).await;
    let mut events = 0;
    while let Some(event) = next(&mut ending).await {
        event.expect("a plain end");
        events += 1;
    }
    assert!(events <= 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_watch_receives_what_was_compacted_meanwhile() {
    let server = server();
    let begin = server.version();
    let mut open = watch(&server, begin).await;
    put(&server, "a");
    server.compact();
    put(&server, "b");
    for name in ["a", "b"] {
        let event = next(&mut open).await.expect("an event").expect("open");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    let error = next(&mut watch(&server, begin).await).await.expect("an event").expect("open");
    assert_eq!(error["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_far_behind_ends() {
    let server = server();
    put(&server, "a");
    let mut open = watch(&server, server.version()).await;
    let mark = |n: u64| json!({"metadata": {"annotations": {"n": n.to_string()}}});
    for n in 0..10_010 {
        server.request(Method::PATCH, &format!("{CONFIGS}/a"), Some(&mark(n)));
    }
    assert_eq!(next(&mut open).await, Some(Err(ConnectionError::Reset)));
}

#[tokio::test(start_paused = true)]
async fn a_backup_brings_its_objects_and_its_version_back() {
    let server = server();
    put(&server, "old");
    let uid = server.objects("configmaps")[0]["metadata"]["uid"].clone();
    let backup = server.backup();
    let (sender, changes) = std::sync::mpsc::sync_channel(16);
    server.observe(move |change| {
        let kind = (change.before.is_some(), change.after.is_some());
        sender.send((change.place.name().to_owned(), kind)).expect("room");
    });
    put(&server, "new");
    server.request(Method::DELETE, &format!("{CONFIGS}/old"), None);
    let late = server.version();
    server.restore(&backup);
    assert_eq!(server.version(), late - 2);
    assert_eq!(server.objects("configmaps")[0]["metadata"]["uid"], uid);
    let seen: Vec<_> = changes.try_iter().collect();
    let expected = [
        ("new", (false, true)),
        ("old", (true, false)),
        ("new", (true, false)),
        ("old", (false, true)),
    ];
    assert_eq!(seen, expected.map(|(name, kind)| (name.to_owned(), kind)));
    // A watch from before the restore is silent until the version is reached again, and beyond it misses
    // nothing more.
    let mut open = watch(&server, late).await;
    for name in ["a", "b", "c"] {
        put(&server, name);
    }
    let event = next(&mut open).await.expect("an event").expect("open");
    assert_eq!(event["object"]["metadata"]["name"], "c");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_any_version_may_be_an_old_one() {
    let server = server();
    for name in ["a", "b", "c"] {
        put(&server, name);
    }
    server.set_faults(certain(|faults| faults.stale_versions_max = 3));
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..50 {
        for (query, is_any) in [("?resourceVersion=0", true), ("", false)] {
            let answer = send(&server, Method::GET, &format!("{CONFIGS}{query}"), "").await;
            let body = answer.expect("an answer").into_body().collect().await.expect("whole");
            let list: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
            let length = list["items"].as_array().expect("items").len();
            assert!(is_any || length == 3);
            lengths.insert(length);
        }
    }
    assert_eq!(lengths.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_is_forbidden() {
    let server = server();
    server.deny("list", "secrets");
    let answer = send(&server, Method::GET, "/api/v1/secrets", "").await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 403);
    let answer = send(&server, Method::GET, "/api/v1/configmaps", "").await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    server.allow_all();
    let answer = send(&server, Method::GET, "/api/v1/secrets", "").await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_just_started_refuses_its_clients_for_a_time() {
    let began = Instant::now();
    let clock = move || i64::try_from(began.elapsed().as_millis()).expect("a short time");
    let server = ApiServer::new(clock, || 7);
    server.set_start_refusal(1_000);
    assert_eq!(create(&server, "a").await, Ok(201), "it started before");
    server.restart();
    assert_eq!(create(&server, "b").await, Ok(403));
    put(&server, "c");
    tokio::time::sleep(Duration::from_millis(999)).await;
    let path = format!("{CONFIGS}?watch=true");
    let answer = send(&server, Method::GET, &path, "").await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 403);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(create(&server, "b").await, Ok(201));
}
