//! Requests to the local API of an edge.

use std::path::Path;

use headwater_proto::local::Operation;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use tonic::transport::Endpoint;

/// Sends an operation to the local API at `socket`, and returns its outcome.
///
/// # Panics
/// When the edge does not listen or does not answer.
pub fn operate(socket: &Path, verb: Verb, resource: &str, content: &str) -> Outcome {
    let operation = Operation {
        id: "1".to_owned(),
        source: "edged".to_owned(),
        verb: verb.into(),
        resource: resource.to_owned(),
        content: content.to_owned().into(),
        ..Operation::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.expect("a runtime").block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).expect("a path");
        let mut edge = MetaClient::new(endpoint.connect().await.expect("it listens"));
        edge.operate(operation).await.expect("an answer").into_inner()
    });
    result.outcome.expect("an outcome")
}
