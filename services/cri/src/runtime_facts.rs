//! What a runtime says of itself: its kind and version, its handlers and their features, and the image of sandboxes. An upgrade
//! or another configuration changes them while the pod worker runs. The driver of cgroups is read once: it decides where the
//! cgroups of the pods are that run, and another one is for a node without pods and the next pod worker.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::client::CallError;
use crate::images::sandbox_image;
use crate::inner::Inner;
use crate::proto::{StatusRequest, StatusResponse, VersionRequest, VersionResponse};
use crate::spec::{HandlerFeatures, NodeFacts};

/// The name of containerd, as its own version call has it.
const CONTAINERD: &str = "containerd";

/// The version of the interface that the pod worker speaks.
const INTERFACE: &str = "v1";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeFacts {
    /// As the Node object states it: `containerd://1.6.20`.
    pub(crate) version: String,
    /// Whether it is containerd, which has events of its own.
    pub(crate) is_containerd: bool,
    /// The image of every sandbox, where the runtime does not pin it (containerd before 2.0).
    pub(crate) sandbox_image: Option<String>,
    handlers: BTreeMap<String, HandlerFeatures>,
    has_groups_policy: bool,
    has_stop_signal: bool,
    has_cdi: bool,
}

impl RuntimeFacts {
    /// The facts of these answers, of which the status is a verbose one.
    pub(crate) fn of(version: &VersionResponse, status: &StatusResponse) -> Self {
        let handlers = status.runtime_handlers.iter().map(|handler| {
            let features = handler.features.unwrap_or_default();
            let features = HandlerFeatures {
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            };
            (handler.name.clone(), features)
        });
        Self {
            version: format!("{}://{}", version.runtime_name, version.runtime_version),
            is_containerd: version.runtime_name == CONTAINERD,
            sandbox_image: sandbox_image(&status.info),
            handlers: handlers.collect(),
            has_groups_policy: status.features.is_some_and(|it| it.supplemental_groups_policy),
            has_stop_signal: has_stop_signal(version),
            has_cdi: has_cdi(version),
        }
    }

    /// The facts of a node with this runtime.
    pub(crate) fn on(&self, node: NodeFacts) -> NodeFacts {
        NodeFacts {
            handlers: self.handlers.clone(),
            has_groups_policy: self.has_groups_policy,
            has_stop_signal: self.has_stop_signal,
            has_cdi: self.has_cdi,
            ..node
        }
    }
}

/// The request for the version.
pub(crate) fn version_request() -> VersionRequest {
    VersionRequest { version: INTERFACE.to_owned() }
}

impl Inner {
    /// Asks the runtime again what it is.
    pub(crate) async fn read_runtime(&self) -> Result<(), CallError> {
        let version = self.client.version(version_request()).await?;
        let status = self.client.status(StatusRequest { verbose: true }).await?;
        self.set_runtime(RuntimeFacts::of(&version, &status));
        Ok(())
    }

    fn set_runtime(&self, facts: RuntimeFacts) {
        {
            let mut node = self.node.write().unwrap_or_else(PoisonError::into_inner);
            let changed = facts.on((**node).clone());
            if **node != changed {
                *node = Arc::new(changed);
            }
        }
        self.is_containerd.store(facts.is_containerd, Ordering::Relaxed);
        *self.sandbox_image.lock().unwrap_or_else(PoisonError::into_inner) = facts.sandbox_image;
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if *version != facts.version {
            tracing::info!(before = %version, now = facts.version, "the container runtime is another one");
            *version = facts.version;
            self.is_another.notify_one();
        }
    }
}

/// Whether the runtime sends the stop signal of a container's spec: containerd since 2.1, CRI-O since 1.33.
fn has_stop_signal(version: &VersionResponse) -> bool {
    is_since(version, (2, 1), (1, 33))
}

/// Whether the runtime resolves the names of CDI devices by default: containerd since 2.0, CRI-O since 1.28.
fn has_cdi(version: &VersionResponse) -> bool {
    is_since(version, (2, 0), (1, 28))
}

fn is_since(version: &VersionResponse, containerd: (u32, u32), crio: (u32, u32)) -> bool {
    let mut parts = version.runtime_version.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let version_number = (number(), number());
    match version.runtime_name.as_str() {
        CONTAINERD => version_number >= containerd,
        "cri-o" => version_number >= crio,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_says_of_which_kind_it_is_and_what_image_its_sandboxes_have() {
        let name = |name: &str| VersionResponse {
            runtime_name: name.to_owned(),
            runtime_version: "1.2".to_owned(),
            ..VersionResponse::default()
        };
        let config = r#"{"sandboxImage": "localhost/pause:2"}"#;
        let info = [("config".to_owned(), config.to_owned())].into();
        let status = StatusResponse { info, ..StatusResponse::default() };
        let facts = RuntimeFacts::of(&name("containerd"), &status);
        assert_eq!((facts.version.as_str(), facts.is_containerd), ("containerd://1.2", true));
        assert_eq!(facts.sandbox_image.as_deref(), Some("localhost/pause:2"));
        let facts = RuntimeFacts::of(&name("cri-o"), &StatusResponse::default());
        assert_eq!((facts.is_containerd, facts.sandbox_image), (false, None));
    }

    #[test]
    fn the_version_says_whether_a_stop_signal_is_sent() {
        for (name, version, expected) in [
            ("containerd", "1.6.20~ds1", false),
            ("containerd", "v2.0.5", false),
            ("containerd", "v2.1.0-beta.1", true),
            ("containerd", "2.4.2", true),
            ("cri-o", "1.32.1", false),
            ("cri-o", "1.33.0", true),
            ("other", "9.9", false),
        ] {
            let version = VersionResponse {
                runtime_name: name.to_owned(),
                runtime_version: version.to_owned(),
                ..VersionResponse::default()
            };
            assert_eq!(has_stop_signal(&version), expected, "{version:?}");
        }
    }
}
