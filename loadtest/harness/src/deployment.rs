//! A deployment that is there already: where it is reached, and how it is left as it was found.
//!
//! The objects of a run stay in [`NAMESPACE`], on nodes whose names no other run has. The harness first
//! removes the objects of an aborted run, and at the end those of its own. The position records of its
//! nodes remain in the log: no operation removes a node from it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater_event::{NodeName, ResourceKey};
use headwater_proto::operator::GetRequest;
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_view::StatusDigest;
use serde::Deserialize;
use serde_json::Value;

use crate::echo;
use crate::failure::{Attempt, Failure};
use crate::inventory::forget_line;
use crate::object::{Kind, NAMESPACE};
use crate::socket;

/// How long it may take until what was removed is gone.
const CLEAR_MAX: Duration = Duration::from_secs(60);

/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

/// The largest listing that a controller gives.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Where a deployment is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The controller's `--objects` socket, where load enters.
    pub objects: PathBuf,
    /// The controller's operator socket, where the cloud's picture is read.
    pub operator: PathBuf,
    /// The controller's metrics.
    pub metrics: SocketAddr,
    /// A hub, for light edges; they speak without TLS.
    pub hub: SocketAddr,
    /// Kafka's brokers, as clients begin.
    pub kafka: String,
}

/// What of a shown object matters.
#[derive(Deserialize)]
struct Shown {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    status: Option<Value>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

impl Deployment {
    /// From what was given as `KEY=VALUE`.
    ///
    /// # Errors
    /// When a key is unknown or missing, or an address is none.
    pub fn of(given: &[(String, String)]) -> Result<Self, Failure> {
        let mut given: BTreeMap<&str, &str> =
            given.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut take = |key: &str| {
            given.remove(key).ok_or_else(|| Failure::of(format!("--attach {key}=... is missing")))
        };
        let address = |key: &str, value: &str| {
            let wanted = format!("--attach {key}={value}: want HOST:PORT");
            value.to_socket_addrs().tried(&wanted)?.next().tried(&wanted)
        };
        let deployment = Self {
            objects: take("objects")?.into(),
            operator: take("operator")?.into(),
            metrics: address("metrics", take("metrics")?)?,
            hub: address("hub", take("hub")?)?,
            kafka: take("kafka")?.to_owned(),
        };
        match given.into_keys().next() {
            Some(key) => {
                let want = "want objects, operator, metrics, hub and kafka";
                Err(Failure::of(format!("--attach {key}: unknown; {want}")))
            }
            None => Ok(deployment),
        }
    }

    /// Removes the objects of a run. When this returns, the cloud's picture has none of them.
    ///
    /// # Errors
    /// When the controller does not answer, or too much is still there after a minute.
    pub async fn clear(&self) -> Result<(), Failure> {
        let keys = self.keys().await?;
        if keys.is_empty() {
            return Ok(());
        }
        let deployment = self.clone();
        let saying = tokio::task::spawn_blocking(move || deployment.forget(&keys));
        saying.await.tried("removing objects")?.tried("the objects socket takes no lines")?;
        let deadline = Instant::now() + CLEAR_MAX;
        loop {
            let left = self.keys().await?.len();
            match left {
                0 => return Ok(()),
                left if Instant::now() >= deadline => {
                    let still = format!("{left} objects in {NAMESPACE} are still there");
                    return Err(Failure::of(format!("after {} s {still}", CLEAR_MAX.as_secs())));
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// The statuses of the run's pods as the cloud has them, by node.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn statuses(
        &self,
    ) -> Result<BTreeMap<NodeName, BTreeMap<ResourceKey, StatusDigest>>, Failure> {
        let mut statuses: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for pod in self.shown(Kind::Pod).await? {
            let (Some(status), Ok(node)) = (&pod.status, pod.spec.node_name.parse::<NodeName>())
            else {
                continue;
            };
            // The picture shows the fields of a status, not its bytes. The bytes of a light edge's
            // status follow from the fields; others differ.
            let text = echo::said(status).unwrap_or_else(|| status.to_string());
            let digest = StatusDigest::of(&pod.metadata.uid, text.as_bytes());
            statuses.entry(node).or_default().insert(pod.key(Kind::Pod)?, digest);
        }
        Ok(statuses)
    }

    async fn keys(&self) -> Result<Vec<ResourceKey>, Failure> {
        let mut keys = Vec::new();
        for kind in Kind::ALL {
            for object in self.shown(kind).await? {
                keys.push(object.key(kind)?);
            }
        }
        Ok(keys)
    }

    async fn shown(&self, kind: Kind) -> Result<Vec<Shown>, Failure> {
        let silent = format!("the controller does not answer at {}", self.operator.display());
        let request = GetRequest {
            r#type: kind.to_string(),
            namespace: NAMESPACE.to_owned(),
            ..GetRequest::default()
        };
        let channel = socket::connect(&self.operator).await.tried(&silent)?;
        let mut client = OperatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut parts = client.get(request).await.tried(&silent)?.into_inner();
        let mut objects = Vec::new();
        while let Some(part) = parts.message().await.tried(&silent)? {
            objects.extend(part.objects);
        }
        let objects = objects.iter().map(|object| serde_json::from_slice(object));
        objects
            .collect::<Result<_, serde_json::Error>>()
            .tried("an object that the controller shows")
    }

    /// Returns once the controller has read it all.
    fn forget(&self, keys: &[ResourceKey]) -> io::Result<()> {
        let mut socket = UnixStream::connect(&self.objects)?;
        let mut answers = socket.try_clone()?;
        for key in keys {
            socket.write_all(&forget_line(&key.to_string()))?;
        }
        socket.shutdown(Shutdown::Write)?;
        io::copy(&mut answers, &mut io::sink()).map(drop)
    }
}

impl Shown {
    fn key(&self, kind: Kind) -> Result<ResourceKey, Failure> {
        let key = format!("{NAMESPACE}/{kind}/{}", self.metadata.name);
        key.parse::<ResourceKey>().tried("an object that the controller shows")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[&str]) -> Result<Deployment, String> {
        let pair = |pair: &&str| {
            let (key, value) = pair.split_once('=').expect("a pair");
            (key.to_owned(), value.to_owned())
        };
        let given: Vec<_> = given.iter().map(pair).collect();
        Deployment::of(&given).map_err(|error| error.to_string())
    }

    #[test]
    fn every_address_is_needed_and_no_other_is_known() {
        let all = [
            "objects=/run/o.sock",
            "operator=/run/h.sock",
            "metrics=127.0.0.1:9",
            "hub=127.0.0.1:7",
            "kafka=k-1:9092,k-2:9092",
        ];
        let deployment = of(&all).expect("whole");
        assert_eq!(deployment.kafka, "k-1:9092,k-2:9092");
        assert_eq!(deployment.hub, SocketAddr::from(([127, 0, 0, 1], 7)));
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            let (key, _) = some.remove(missing).split_once('=').expect("a pair");
            let said = of(&some).expect_err("not whole");
            assert_eq!(said, format!("--attach {key}=... is missing"));
        }
        let said = of(&[&all[..], &["moon=1"]].concat()).expect_err("unknown");
        assert!(said.contains("--attach moon: unknown"), "{said}");
        let said = of(&[&all[..], &["hub=here"]].concat()).expect_err("no address");
        assert_eq!(said, "--attach hub=here: want HOST:PORT");
    }
}
