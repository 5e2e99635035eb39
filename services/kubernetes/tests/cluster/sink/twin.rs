//! The server in memory as the API of a sink.

use std::sync::Arc;

use headwater_apiserver::ApiServer;
use headwater_kubernetes::Connection;
use http::Method;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::world::{POLL, pod, put, twin};

/// How long a condition may take to hold, in virtual time.
const SOON: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Twin(pub(super) ApiServer);

impl Twin {
    /// A new server.
    pub(super) fn new() -> Self {
        Self(twin())
    }

    pub(super) fn connection(&self) -> Connection {
        Connection::over(self.0.clone(), "the server in memory")
    }

    /// Creates a pod of a node in the namespace `default`, and returns its UID.
    pub(super) fn create_pod(&self, name: &str, on: &str) -> String {
        put(&self.0, &[pod(name, on, "settings")]);
        self.pod(name)["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// The address in the status of a pod.
    pub(super) fn address(&self, pod: &str) -> Value {
        self.pod(pod)["status"]["podIP"].clone()
    }

    fn pod(&self, name: &str) -> Arc<Value> {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.0.request(Method::GET, &path, None).1
    }

    /// Waits until something of the server is so.
    pub(super) async fn wait_for(&self, what: &str, is_so: impl Fn(&ApiServer) -> bool) {
        let end = Instant::now() + SOON;
        while !is_so(&self.0) {
            assert!(Instant::now() < end, "not {what}");
            sleep(POLL).await;
        }
    }

    /// Waits until a pod has an address.
    pub(super) async fn shows(&self, pod: &str, address: &str) {
        self.wait_for(&format!("{pod} at {address}"), |_| self.address(pod) == address).await;
    }
}
