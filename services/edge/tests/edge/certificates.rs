//! Requests for certificates of the node.

use headwater_event::ResourceKey;
use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_object::SigningRequest;
use headwater_proto::local::failure::Code;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;

use crate::bench::{Bench, node};
use crate::hub::Hub;

/// A certificate request of node `gw-1`: PEM, in base64.
const REQUEST: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIdE1JR1VBZ0VBTURJeEZUQVRCZ05WQkFvTURITjVjM1JsYlRw\
    dWIyUmxjekVaTUJjR0ExVUVBd3dRYzNsegpkR1Z0T201dlpHVTZaM2N0TVRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhB\
    MElBQkw0OG5hTGVxaXEyCmVsOHduRnRBdk9nL25IUDBzWHVKUWlTT2hFL3RwYlRJWnM1N1NuNjhRaU9XZlRqK1dYUm1XUlg1cmFr\
    Q1NiajYKSU5kMEUwYThrZ2VnQURBS0JnZ3Foa2pPUFFRREFnTklBREJGQWlBLzVvSTZRWmk3VG53dEpLWFBPMFlxNGZIZgpPaDZa\
    NmpIeEhmenRFb2JnQ2dJaEFMOC9QMU4welVDWnhlTWFhNi9qV3pmUDJORUw2ejFjRDY5UG45UjV0cVk5Ci0tLS0tRU5EIENFUlRJ\
    RklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// Three blanks in base64.
const BLANKS: &str = "ICAg";

/// Key and content of a request for a certificate that has `bytes` bytes as the edge sends it. Blanks before the PEM
/// fill it up.
fn signing_request(bytes: usize) -> (String, String) {
    let of = |blanks: usize, letters: usize| {
        let request = BLANKS.repeat(blanks) + REQUEST;
        let content = format!(
            r#"{{"spec":{{"request":"{request}","signerName":"kubernetes.io/kubelet-serving",
            "usages":["server auth"]}}}}"#
        );
        (format!("null/certificatesigningrequest/{}", "c".repeat(letters)), content)
    };
    let (key, content) = of(0, 1);
    let key: ResourceKey = key.parse().expect("a key");
    let parsed = SigningRequest::parse(&node(), &key, content.as_bytes()).expect("allowed");
    let missing = bytes - parsed.body().len();
    of(missing / BLANKS.len(), 1 + missing % BLANKS.len())
}

#[tokio::test]
async fn a_request_that_is_too_long_for_a_hub_is_refused_and_ends_no_session() {
    let hub = Hub::start(&node()).await;
    let bench = Bench::start(&[hub.address]).await;
    bench.until("the connection", |status| status.connected).await;
    let (key, too_long) = signing_request(REQUEST_BODY_BYTES_MAX + 1);
    assert!(too_long.len() < REQUEST_BODY_BYTES_MAX, "it grows when it is written anew");
    let outcome = bench.meta.ask("edged", Verb::Csr, &key, &too_long).await;
    let Outcome::Failure(failure) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.code(), Code::Invalid);
    let why = format!("{key}: the body of the csr has 2097153 bytes, want at most 2097152");
    assert_eq!(failure.message, why);

    let (key, largest) = signing_request(REQUEST_BODY_BYTES_MAX);
    hub.answer(&key, "{}");
    let outcome = bench.meta.ask("edged", Verb::Csr, &key, &largest).await;
    assert!(matches!(outcome, Outcome::Objects(_)), "{outcome:?}");
    bench.edge.stop().await;
}
