//! Brokers that demand a user or a certificate, and deny rights.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{Cluster, ClusterSettings, Listener};
use headwater_event::Partition;
use headwater_kafka::topics;
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::conformance::Settings;
use headwater_log::{Append, Log, Record};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::time::timeout;

use crate::support::plan;

/// How long an answer may take, be it no: nothing hangs.
const DEADLINE: Duration = Duration::from_secs(60);

type Extra = BTreeMap<String, String>;

fn settings(cluster: &Cluster, extra: Extra) -> KafkaSettings {
    KafkaSettings { extra, ..KafkaSettings::new(cluster.bootstrap(), "secured") }
}

fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn record() -> Append {
    let (key, value, header) = ("k".into(), Some(Bytes::from_static(b"v")), Bytes::new());
    Append { partition: Partition(0), record: Record { key, value, header, traceparent: None } }
}

/// Makes the topic, appends, reads.
async fn all_goes_well(settings: &KafkaSettings) {
    topics::create(settings, &plan(&Settings::default())).await.expect("made");
    let log = KafkaLog::new(settings.clone()).expect("good settings");
    log.append(vec![record()]).await.expect("appended");
    let start = log.start(Partition(0)).await.expect("there");
    let mut reader = log.read(vec![start]).await.expect("readable");
    let batch = timeout(DEADLINE, reader.next()).await.expect("in time").expect("readable");
    assert_eq!(batch.records[0].record, record().record);
}

/// The errors of every operation of the log. A client whose user or certificate is refused tries again
/// until its request is over.
async fn refusals(settings: KafkaSettings) -> Vec<String> {
    let settings = KafkaSettings {
        delivery_timeout: Duration::from_secs(10),
        request_timeout: Duration::from_secs(8),
        ..settings
    };
    let log = KafkaLog::new(settings).expect("good settings");
    let asked = timeout(DEADLINE, log.describe()).await.expect("in time");
    let appended = timeout(DEADLINE, log.append(vec![record()])).await.expect("in time");
    let started = timeout(DEADLINE, log.start(Partition(0))).await.expect("in time");
    vec![
        asked.expect_err("refused").to_string(),
        appended.expect_err("refused").to_string(),
        started.expect_err("refused").to_string(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_password_and_a_right_is_admitted_and_others_learn_the_reason() {
    let properties = of(&[
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        (
            "listener.name.client.scram-sha-256.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        ),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:ANONYMOUS;User:hub"),
    ]);
    let user = |name: &str| format!("SCRAM-SHA-256=[name={name},password={name}-secret]");
    let cluster = Cluster::start(ClusterSettings {
        listener: Listener::SaslPlaintext,
        properties,
        scram: vec![user("hub"), user("stranger")],
        ..ClusterSettings::default()
    })
    .expect("a broker");
    let login = |name: &str, password: &str| {
        settings(
            &cluster,
            of(&[
                ("security.protocol", "SASL_PLAINTEXT"),
                ("sasl.mechanism", "SCRAM-SHA-256"),
                ("sasl.username", name),
                ("sasl.password", password),
            ]),
        )
    };
    all_goes_well(&login("hub", "hub-secret")).await;
    for refusal in refusals(login("hub", "wrong")).await {
        assert!(refusal.contains("Authentication failed"), "{refusal}");
    }
    for refusal in refusals(login("stranger", "stranger-secret")).await {
        assert!(refusal.contains("denies this client a right to the topic secured"), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_admitted_and_without_one_the_error_names_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = authority("headwater test");
    let (broker_key, broker) = issue(&ca, "127.0.0.1");
    let (hub_key, hub) = issue(&ca, "hub");
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, ca.pem()).expect("written");
    let store = folder.path().join("broker.pem");
    std::fs::write(&store, format!("{broker_key}{broker}")).expect("written");
    let path = |path: &std::path::Path| path.display().to_string();
    let properties = of(&[
        ("listener.name.client.ssl.keystore.type", "PEM"),
        ("listener.name.client.ssl.keystore.location", &path(&store)),
        ("listener.name.client.ssl.truststore.type", "PEM"),
        ("listener.name.client.ssl.truststore.location", &path(&ca_file)),
        ("listener.name.client.ssl.client.auth", "required"),
    ]);
    let listener = Listener::Ssl;
    let cluster =
        Cluster::start(ClusterSettings { listener, properties, ..ClusterSettings::default() });
    let cluster = cluster.expect("a broker");
    let ca_pem = ca.pem();
    let trust = [("security.protocol", "SSL"), ("ssl.ca.pem", ca_pem.as_str())];
    let mut with = of(&trust);
    with.extend(of(&[("ssl.key.pem", &hub_key), ("ssl.certificate.pem", &hub)]));
    all_goes_well(&settings(&cluster, with)).await;
    for refusal in refusals(settings(&cluster, of(&trust))).await {
        let lower = refusal.to_lowercase();
        assert!(lower.contains("ssl") && lower.contains("certificate"), "{refusal}");
    }
    let (other_key, other) = issue(&authority("somebody else"), "hub");
    let mut with = of(&trust);
    with.extend(of(&[("ssl.key.pem", &other_key), ("ssl.certificate.pem", &other)]));
    for refusal in refusals(settings(&cluster, with)).await {
        assert!(refusal.to_lowercase().contains("ssl"), "{refusal}");
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("signed")
}

/// A key and a certificate for `name`, as PEM.
fn issue(ca: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, ca).expect("signed");
    (key.serialize_pem(), certificate.pem())
}
