//! A Kubernetes API as its clients see it: requests, the revision of its store, and a watch of pods.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, future};
use headwater_cluster::ControlPlane;
use headwater_kubernetes::{Access, Connection};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::object::{Kind, NAMESPACE, ObjectSpec};
use serde_json::{Value, json};

use crate::waiting::wait;

/// Requests of a load that are under way at once: a client of the API has no more.
pub(crate) const IN_FLIGHT_MAX: usize = 32;

/// A client of the API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiClient {
    connection: Connection,
}

impl ApiClient {
    /// A client of the administrator.
    ///
    /// # Errors
    /// When there is no way to the API.
    pub(crate) async fn connect(cluster: &ControlPlane) -> Result<Self, Failure> {
        let file = cluster.kubeconfig().to_owned();
        let access = Access::Kubeconfig { file, context: None };
        Ok(Self { connection: access.connect().await.tried("a client of the API server")? })
    }

    /// Creates an object, and returns it as the server has it.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<Value, Failure> {
        let answer = self.send("POST", collection, "application/json", Some(object)).await?;
        serde_json::from_str(&answer).tried("an answer of the API server")
    }

    /// Creates `count` ConfigMaps and as many Secrets of about `bytes` each.
    ///
    /// # Errors
    /// When the server refuses one.
    pub(crate) async fn create_all(&self, count: usize, bytes: usize) -> Result<(), Failure> {
        let text = "x".repeat(bytes);
        let creating = (0..count).flat_map(|number| {
            let metadata = json!({"name": format!("unnamed-{number}"), "namespace": NAMESPACE});
            [("ConfigMap", "configmaps", "data"), ("Secret", "secrets", "stringData")].map(
                |(kind, plural, field)| {
                    let content = json!({"text": text});
                    let object = json!({
                        "apiVersion": "v1", "kind": kind, "metadata": metadata, field: content,
                    });
                    (format!("/api/v1/namespaces/{NAMESPACE}/{plural}"), object)
                },
            )
        });
        futures::stream::iter(creating)
            .map(|(collection, object)| async move { self.create(&collection, &object).await })
            .buffer_unordered(IN_FLIGHT_MAX)
            .try_for_each(|_| future::ready(Ok(())))
            .await
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<(), Failure> {
        self.send("PATCH", path, "application/merge-patch+json", Some(patch)).await.map(drop)
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send("DELETE", path, "application/json", None).await.map(drop)
    }

    /// Returns what the server has at a path.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        let answer = self.send("GET", path, "application/json", None).await?;
        serde_json::from_str(&answer).tried("an answer of the API server")
    }

    /// The revision of the API's store: each write of it, of any object, adds one.
    ///
    /// # Errors
    /// When the server does not tell it.
    pub(crate) async fn revision(&self) -> Result<u64, Failure> {
        let list = self.get("/api/v1/namespaces?limit=1").await?;
        let version = list["metadata"]["resourceVersion"].as_str();
        version.and_then(|version| version.parse().ok()).tried("a list without a version")
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<String, Failure> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, content_type);
        let request = request.body(body.into_bytes()).tried("a request")?;
        self.connection.send(request).await.tried("a request of the API server")
    }
}

/// The collection that has an object.
pub(crate) fn collection(kind: Kind) -> String {
    let plural = match kind {
        Kind::Pod => "pods",
        Kind::ConfigMap => "configmaps",
        Kind::Service => "services",
    };
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
}

/// The path of an object.
pub(crate) fn path(object: &ObjectSpec) -> String {
    format!("{}/{}", collection(object.kind), object.name)
}

/// The Node of an edge.
pub(crate) fn node(name: &str) -> Value {
    let labels = json!({"node-role.kubernetes.io/edge": ""});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// What `kubectl get pods --watch` shows of the namespace's pods. It ends with this.
///
/// An API server ends the watch of a client that is slower than a burst: kubectl is started again then, and
/// begins with a list.
pub(crate) struct PodWatch {
    /// The kubectl that runs; `None` once the watch is to end.
    kubectl: Arc<Mutex<Option<Child>>>,
    seen: Arc<Mutex<PodSightings>>,
}

/// What was seen so far.
#[derive(Default)]
struct PodSightings {
    /// By the message of a status: when a pod showed it first.
    messages: HashMap<String, Instant>,
    /// The phase of each pod.
    phases: HashMap<String, String>,
}

impl PodWatch {
    /// Starts it.
    ///
    /// # Errors
    /// When kubectl does not start.
    pub(crate) fn start(cluster: &ControlPlane) -> Result<Self, Failure> {
        let mut command = cluster.kubectl();
        let line = "jsonpath={.metadata.name}|{.status.phase}|{.status.message}{\"\\n\"}";
        command.args(["get", "pods", "--namespace", NAMESPACE, "--watch", "--output", line]);
        command.stdout(Stdio::piped());
        let first = command.spawn().tried("kubectl")?;
        let watch = Self { kubectl: Arc::new(Mutex::new(Some(first))), seen: Arc::default() };
        let (kubectl, seen) = (watch.kubectl.clone(), watch.seen.clone());
        thread::spawn(move || {
            loop {
                // The lock is not held while the thread reads: the end of the watch takes it.
                let output = lock(&kubectl).as_mut().and_then(|it| it.stdout.take());
                let Some(output) = output else { return };
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    see(&mut lock(&seen), &line);
                }
                let mut running = lock(&kubectl);
                let Some(mut ended) = running.take() else { return };
                // Its output has ended, and so does it.
                let _ = ended.wait();
                *running = command.spawn().ok();
            }
        });
        Ok(watch)
    }

    /// When a pod showed this message first.
    pub(crate) fn message_at(&self, message: &str) -> Option<Instant> {
        let seen = lock(&self.seen);
        seen.messages.get(message).copied()
    }

    /// Waits until `count` pods were seen running.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn wait_running(&self, count: usize) -> Result<(), Failure> {
        wait("running pods in the API", || {
            let seen = lock(&self.seen);
            let running = seen.phases.values().filter(|phase| *phase == "Running").count();
            (running >= count).then_some(())
        })
    }
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        if let Some(mut kubectl) = lock(&self.kubectl).take() {
            // It ended by itself, or ends now.
            let _ = kubectl.kill();
            let _ = kubectl.wait();
        }
    }
}

/// Takes a line of kubectl.
fn see(seen: &mut PodSightings, line: &str) {
    let mut words = line.splitn(3, '|').map(str::to_owned);
    let (Some(name), Some(phase)) = (words.next(), words.next()) else { return };
    seen.phases.insert(name, phase);
    let message = words.next().unwrap_or_default();
    seen.messages.entry(message).or_insert_with(Instant::now);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
