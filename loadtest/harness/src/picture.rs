//! The cloud's picture, watched: when the status of a turn has come back up.
//!
//! A light edge that echoes names in each pod's status the turn at which the pod changed last.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_proto::operator::get_event::Kind;
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_proto::operator::{GetEvent, GetRequest};
use serde::Deserialize;
use tonic::Status;

use crate::echo::turn_in;
use crate::latency::Latency;
use crate::object::NAMESPACE;
use crate::schedule::Turn;
use crate::socket;

/// The largest object in the picture, and room around it.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Before the picture is watched again.
const AGAIN: Duration = Duration::from_millis(50);

/// What of a pod in the picture matters.
#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    message: String,
}

/// Records into `latency` how long after its intended moment the status of each turn was in the
/// picture; turns before `measured_from` warm up. Goes on until it is dropped.
pub(crate) async fn watch(
    socket: PathBuf,
    turns: Arc<[Turn]>,
    began: Instant,
    measured_from: Duration,
    latency: Arc<Latency>,
) {
    // The last turn of each pod's status.
    let mut last: HashMap<String, u32> = HashMap::new();
    loop {
        let see = |event: &GetEvent| {
            let at = Instant::now();
            if event.kind() != Kind::Apply {
                return;
            }
            let Some((pod, number)) = echoed(event) else { return };
            if last.get(&pod).is_some_and(|last| *last >= number) {
                return;
            }
            last.insert(pod, number);
            let turn = (number as usize).checked_sub(1).and_then(|index| turns.get(index));
            if let Some(turn) = turn.filter(|turn| turn.at >= measured_from) {
                latency.record(at.saturating_duration_since(began + turn.at));
            }
        };
        // It ends when the part is started again.
        let _ = follow(&socket, NAMESPACE, see).await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Shows `see` each event of the pods of a namespace, or of all of them if it is empty, until the watch ends.
///
/// # Errors
/// The operator socket does not answer, or the watch breaks.
pub async fn follow(
    socket: &Path,
    namespace: &str,
    mut see: impl FnMut(&GetEvent),
) -> Result<(), Status> {
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let channel = socket::connect(socket).await.map_err(unavailable)?;
    let mut client = OperatorClient::new(channel).max_decoding_message_size(EVENT_BYTES_MAX);
    let request = GetRequest {
        r#type: "pod".to_owned(),
        namespace: namespace.to_owned(),
        ..GetRequest::default()
    };
    let mut events = client.watch(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        see(&event);
    }
    Ok(())
}

/// The pod and the turn that its status names.
fn echoed(event: &GetEvent) -> Option<(String, u32)> {
    let pod: Pod = serde_json::from_slice(&event.object).ok()?;
    Some((pod.metadata.name, turn_in(&pod.status.message)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_its_turn() {
        let event = |object: &str| GetEvent {
            object: object.as_bytes().to_vec().into(),
            ..GetEvent::default()
        };
        let pod = r#"{"metadata":{"name":"web"},"status":{"message":"turn 17"}}"#;
        assert_eq!(echoed(&event(pod)), Some(("web".to_owned(), 17)));
        for silent in [
            r#"{"metadata":{"name":"web"}}"#,
            "{}",
            r#"{"metadata":{"name":"w"},"status":{"message":"x"}}"#,
        ] {
            assert_eq!(echoed(&event(silent)), None);
        }
    }
}
