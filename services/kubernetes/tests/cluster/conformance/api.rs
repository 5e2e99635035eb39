//! Requests of a case, in a namespace of its own.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The API as a case uses it.
pub(crate) struct Api {
    client: Client,
    pub(crate) namespace: String,
    forget: Arc<dyn Fn() + Send + Sync>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Api {
    /// The API, with a namespace for a case.
    pub(crate) async fn new(
        client: Client,
        case: &str,
        forget: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        let namespace = case.replace('_', "-");
        let api = Self { client, namespace: namespace.clone(), forget };
        let body = json!({"metadata": {"name": namespace}});
        assert_eq!(api.post("/api/v1/namespaces", &body).await.code, 201);
        api
    }

    /// The path of a resource of the core in the namespace.
    pub(crate) fn path(&self, of: &str) -> String {
        format!("/api/v1/namespaces/{}/{of}", self.namespace)
    }

    /// The path of a lease.
    pub(crate) fn leases(&self, of: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases{of}", self.namespace)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, JSON, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, JSON, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, JSON, Some(body)).await
    }

    pub(crate) async fn patch(&self, media: &str, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, media, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        let options = (!options.is_null()).then_some(options);
        self.send(Method::DELETE, path, JSON, options).await
    }

    /// Creates an object that can be, and returns it.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body
    }

    /// A ConfigMap of this name.
    pub(crate) async fn config(&self, name: &str) -> Value {
        let body = json!({"metadata": {"name": name}, "data": {"k": "v"}});
        self.create(&self.path("configmaps"), &body).await
    }

    /// A pod of this name, on a node if that is not empty.
    pub(crate) async fn pod(&self, name: &str, node: &str) -> Value {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "example.invalid/main"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        self.create(&self.path("pods"), &pod).await
    }

    /// The events of a watch that lasts 2 s: type, name, object. The path has a query already.
    pub(crate) async fn watch(&self, path: &str) -> Vec<(String, String, Value)> {
        self.watch_for(path, 2).await
    }

    /// The events of a watch of so many seconds.
    pub(crate) async fn watch_for(&self, path: &str, seconds: u32) -> Vec<(String, String, Value)> {
        let path = format!("{path}&watch=true&timeoutSeconds={seconds}");
        let (code, body) = self.raw(Method::GET, &path, JSON, None).await;
        assert_eq!(code, 200, "{body}");
        let event = |line: &str| {
            let event: Value = serde_json::from_str(line).expect("a line of JSON");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&event["object"]["metadata"]["name"]);
            (text(&event["type"]), name, event["object"].clone())
        };
        body.lines().map(event).collect()
    }

    /// The history is forgotten, by now or soon.
    pub(crate) fn forget(&self) {
        (self.forget)();
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: Option<&Value>) -> Answer {
        let (code, text) = self.raw(method, path, media, body).await;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { code, body }
    }

    async fn raw(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> (u16, String) {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Body::from(bytes)).expect("a request");
        let answer = self.client.send(request);
        let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
        let answer = answer.expect("an answer in time").expect("an answer");
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.expect("a whole body");
        (code, String::from_utf8(bytes.to_vec()).expect("text"))
    }
}

impl Answer {
    /// The version of the object, or of the list.
    pub(crate) fn version(&self) -> u64 {
        version(&self.body)
    }

    /// Checks that the request was refused: the code, the reason, and a part of the message.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, message: &str) {
        let Self { code: found, body } = self;
        assert_eq!((*found, body["kind"].as_str()), (code, Some("Status")), "{body}");
        assert_eq!(body["reason"].as_str().unwrap_or_default(), reason, "{body}");
        assert_eq!(body["code"], code, "{body}");
        assert!(body["message"].as_str().unwrap_or_default().contains(message), "{body}");
    }

    /// Checks that the request was served, and returns the object.
    #[track_caller]
    pub(crate) fn served(self) -> Value {
        assert_eq!(self.code, 200, "{}", self.body);
        self.body
    }
}

/// The version of an object or a list.
pub(crate) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.expect("a version").parse().expect("a number")
}

/// The UID of an object.
pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("a UID").to_owned()
}
