//! Tokens of ServiceAccounts: renewed in time, there after a restart without a cloud, and in no text.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use headwater_edge::{Clock, SystemClock};
use headwater_event::RequestError;
use headwater_proto::local::failure::Code;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use tracing_subscriber::fmt::MakeWriter;

use crate::bench::{Bench, Meta, node, private};
use crate::hub::Hub;

const POD: &str = r#"{"kind":"Pod","metadata":{"uid":"u1"},"spec":{"serviceAccountName":"robot",
    "volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"audience":"vault"}}]}}]}}"#;

const FIRST: &str = r#"{"spec":{"expirationSeconds":1000},"status":{"token":"FIRST-SECRET"}}"#;
const SECOND: &str = r#"{"spec":{"expirationSeconds":1000},"status":{"token":"SECOND-SECRET"}}"#;

const ACCOUNT: &str = "d/serviceaccount/robot";

/// A wall clock in the hands of a test.
#[derive(Debug)]
struct HeldClock {
    wall_ms: AtomicI64,
    system: SystemClock,
}

impl Clock for HeldClock {
    fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    fn monotonic_ms(&self) -> u64 {
        self.system.monotonic_ms()
    }
}

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn claim(uid: &str, audience: &str) -> String {
    format!(
        r#"{{"spec":{{"audiences":["{audience}"],"expirationSeconds":1000,"boundObjectRef":
        {{"kind":"Pod","apiVersion":"v1","name":"web","uid":"{uid}"}}}}}}"#
    )
}

/// The token that the edge serves.
async fn token(meta: &Meta) -> String {
    match meta.ask("edged", Verb::Token, ACCOUNT, &claim("u1", "vault")).await {
        Outcome::Objects(found) => {
            let answer: serde_json::Value =
                serde_json::from_slice(&found.objects[0].object).expect("JSON");
            answer["status"]["token"].as_str().expect("a token").to_owned()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_is_renewed_survives_a_restart_without_a_cloud_and_is_in_no_text() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("the only one of these tests");
    let clock =
        Arc::new(HeldClock { wall_ms: AtomicI64::new(1_000_000), system: SystemClock::new() });
    let at = |seconds: i64| clock.wall_ms.store(1_000_000 + seconds * 1_000, Ordering::Relaxed);
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", POD);
    let bench = Bench::with_clock(&[hub.address], clock.clone()).await;
    bench.meta.watch("edged").await.complete_listing().await;

    hub.answer(ACCOUNT, FIRST);
    assert_eq!(token(&bench.meta).await, "FIRST-SECRET");
    hub.answer(ACCOUNT, SECOND);
    at(799);
    assert_eq!(token(&bench.meta).await, "FIRST-SECRET", "fresh");
    // The edge itself refuses what its own view decides.
    for content in [claim("u2", "vault"), claim("u1", "https://else")] {
        let outcome = bench.meta.ask("edged", Verb::Token, ACCOUNT, &content).await;
        let Outcome::Failure(failure) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.code(), Code::Forbidden);
        assert!(!failure.message.contains("SECRET"), "{}", failure.message);
    }

    // Cut off, and started again: the old one serves, also while a new one is due.
    let nowhere = "127.0.0.1:1".parse().expect("an address");
    let bench = bench.crash_with(&[nowhere], clock.clone()).await;
    assert_eq!(token(&bench.meta).await, "FIRST-SECRET");
    at(999);
    assert_eq!(token(&bench.meta).await, "FIRST-SECRET");
    at(1_000);
    let code = bench.meta.refused("edged", Verb::Token, ACCOUNT, &claim("u1", "vault")).await;
    assert_eq!(code, Code::Unavailable, "it has ended");

    // Connected again, within the last fifth of its life.
    at(800);
    let bench = bench.crash_with(&[hub.address], clock.clone()).await;
    bench.until("the connection", |status| status.connected).await;
    assert_eq!(token(&bench.meta).await, "SECOND-SECRET", "renewed");
    let status = format!("{:?} {:?}", bench.status().await, hub.reports());
    bench.edge.stop().await;
    let logged = log.0.lock().expect("whole").clone();
    let logged = String::from_utf8_lossy(&logged);
    assert!(logged.contains("the edge stopped"), "the log is not captured");
    for text in [&*logged, &status] {
        assert!(!text.contains("SECRET"), "a token is in a text");
    }
}

#[tokio::test]
async fn a_refused_renewal_takes_a_valid_token_away_only_if_its_pod_or_its_account_is_gone() {
    const OLD: &str = r#"{"spec":{"expirationSeconds":1000},"status":{"token":"OLD"}}"#;
    const NEW: &str = r#"{"spec":{"expirationSeconds":1000},"status":{"token":"NEW"}}"#;
    let clock =
        Arc::new(HeldClock { wall_ms: AtomicI64::new(1_000_000), system: SystemClock::new() });
    let at = |seconds: i64| clock.wall_ms.store(1_000_000 + seconds * 1_000, Ordering::Relaxed);
    let hub = Hub::start(&node()).await;
    hub.apply(&private(), "d/pod/web", "u1", POD);
    let bench = Bench::with_clock(&[hub.address], clock.clone()).await;
    bench.meta.watch("edged").await.complete_listing().await;
    let forbidden = || RequestError::Forbidden("no right".to_owned());
    let refused =
        async || bench.meta.refused("edged", Verb::Token, ACCOUNT, &claim("u1", "vault")).await;

    hub.answer(ACCOUNT, OLD);
    assert_eq!(token(&bench.meta).await, "OLD");
    at(800);
    for error in [forbidden(), RequestError::Invalid("a webhook".to_owned())] {
        hub.refuse(ACCOUNT, error);
        assert_eq!(token(&bench.meta).await, "OLD", "it serves until its end");
    }
    at(1_000);
    hub.refuse(ACCOUNT, forbidden());
    assert_eq!(refused().await, Code::Forbidden, "it has ended");
    hub.answer(ACCOUNT, NEW);
    assert_eq!(token(&bench.meta).await, "NEW", "the right is back");

    at(1_800);
    hub.refuse(ACCOUNT, RequestError::NotFound);
    assert_eq!(refused().await, Code::NotFound);
    hub.refuse(ACCOUNT, forbidden());
    assert_eq!(refused().await, Code::Forbidden, "the account is gone, and its token with it");
    bench.edge.stop().await;
}
