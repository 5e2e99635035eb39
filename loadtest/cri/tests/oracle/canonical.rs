//! Requests as values that can be compared: without what differs from run to run, and with the names of things in place of
//! their paths.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use headwater_cri_lab::RecordedRequest;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The values of a request by their paths, such as `config.linux.resources.cpu_shares`.
pub(crate) type Flat = BTreeMap<String, Value>;

/// The folders of volumes in a kubelet's tree begin so.
const KUBELET_VOLUMES: &str = "kubernetes.io~";

/// When a kubelet read the pod.
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

/// The scores of burstable pods.
const BURSTABLE: RangeInclusive<i64> = 3..=999;

/// The requests for a pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PodRequests {
    pub(crate) sandbox: Flat,
    /// By the name of the container.
    pub(crate) containers: BTreeMap<String, Flat>,
}

/// Reads requests as JSON.
pub(crate) struct Reader {
    pool: DescriptorPool,
    /// The paths of the agent, and their names.
    paths: Vec<(String, String)>,
}

impl Reader {
    /// `paths`: what differs from agent to agent, and its name. The first that fits counts.
    pub(crate) fn new(paths: &[(&str, &str)]) -> Self {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
        let files = protox::compile(["cri/runtime.proto"], [protos]).expect("the proto");
        let pool = DescriptorPool::from_file_descriptor_set(files).expect("descriptors");
        let paths = paths.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned()));
        Self { pool, paths: paths.collect() }
    }

    /// The requests for each pod, by its name. `uids`: the UID of each pod.
    pub(crate) fn by_pod(
        &self,
        requests: &[RecordedRequest],
        uids: &BTreeMap<String, String>,
    ) -> BTreeMap<String, PodRequests> {
        let mut pods: BTreeMap<String, PodRequests> = BTreeMap::new();
        for request in requests {
            let (value, sandbox) = match request {
                RecordedRequest::Sandbox(it) => {
                    (self.json("RunPodSandboxRequest", &**it), it.config.as_ref())
                }
                RecordedRequest::Container(it) => {
                    (self.json("CreateContainerRequest", &**it), it.sandbox_config.as_ref())
                }
            };
            let pod = sandbox.and_then(|it| it.metadata.as_ref()).expect("a pod");
            let Some(uid) = uids.get(&pod.name) else { continue };
            let requests = pods.entry(pod.name.clone()).or_default();
            match request {
                RecordedRequest::Sandbox(_) => {
                    requests.sandbox = self.flat(&value["config"], uid);
                    requests
                        .sandbox
                        .insert("runtime_handler".into(), value["runtime_handler"].clone());
                }
                RecordedRequest::Container(it) => {
                    let config = it.config.as_ref().and_then(|config| config.metadata.as_ref());
                    let name = config.expect("a name").name.clone();
                    // The first run.
                    requests
                        .containers
                        .entry(name)
                        .or_insert_with(|| self.flat(&value["config"], uid));
                }
            }
        }
        pods
    }

    fn json(&self, name: &str, message: &impl Message) -> Value {
        let kind = self.pool.get_message_by_name(&format!("runtime.v1.{name}")).expect("a message");
        let bytes = message.encode_to_vec();
        let message = DynamicMessage::decode(kind, &*bytes).expect("the same message");
        let options = prost_reflect::SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(false);
        message.serialize_with_options(serde_json::value::Serializer, &options).expect("JSON")
    }

    fn flat(&self, value: &Value, uid: &str) -> Flat {
        let mut value = keyed(value.clone());
        self.rename(&mut value, uid);
        let mut flat = Flat::new();
        flatten("", &value, &mut flat);
        flat
    }

    fn rename(&self, value: &mut Value, uid: &str) {
        match value {
            Value::String(text) => {
                let mut renamed = text.replace(uid, "UID");
                for (path, name) in &self.paths {
                    renamed = renamed.replace(path, name);
                }
                *text = place(&renamed);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item, uid)),
            Value::Object(fields) => fields.values_mut().for_each(|item| self.rename(item, uid)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The name of what lies at a path of an agent, and of what is not the same on two machines.
fn place(text: &str) -> String {
    if text.starts_with("sha256:") {
        return "(image id)".to_owned();
    }
    if let Some(secret) = text.strip_prefix("/dev/shm/headwater-secrets-") {
        let mut parts = secret.split('/').skip(2);
        return format!("(volume {})", parts.next().unwrap_or_default());
    }
    let Some(below) = text.strip_prefix("ROOT/pods/UID/") else { return text.to_owned() };
    let parts: Vec<&str> = below.split('/').collect();
    match parts[..] {
        ["etc-hosts" | "hosts"] => "(hosts file)".to_owned(),
        ["volumes", kind, name] if kind.starts_with(KUBELET_VOLUMES) => format!("(volume {name})"),
        ["volumes", name] => format!("(volume {name})"),
        ["volume-subpaths", name, ..] | ["volumes", name, ..] => format!("(part of volume {name})"),
        ["containers", ..] => "(termination message)".to_owned(),
        _ => text.to_owned(),
    }
}

/// Lists whose order means nothing become objects or are sorted, and what the machine decides has a name.
fn keyed(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let fields = fields.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            ("mounts", value) => by(&value, "container_path"),
            ("envs", value) => environment(&by(&value, "key")),
            ("annotations", Value::Object(all)) => Value::Object(annotations(all)),
            (
                "add_capabilities"
                | "drop_capabilities"
                | "supplemental_groups"
                | "masked_paths"
                | "readonly_paths"
                | "options",
                Value::Array(items),
            ) => sorted(items),
            ("hugepage_limits", value) => huge_pages(value),
            // The files of cgroup v2, which the machine of the record did not have.
            ("unified", _) => Value::Null,
            ("oom_score_adj", value)
                if value.as_i64().is_some_and(|it| BURSTABLE.contains(&it)) =>
            {
                "(by the memory of the machine)".into()
            }
            (_, value) => keyed(value),
        };
        (name, value)
    });
    Value::Object(fields.collect())
}

fn by(list: &Value, key: &str) -> Value {
    let items = list.as_array().into_iter().flatten();
    let items = items.map(|item| {
        let mut item = item.clone();
        let name = item.as_object_mut().and_then(|item| item.remove(key));
        (name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(), item)
    });
    Value::Object(items.collect::<Map<_, _>>())
}

/// Values are bytes, and addresses are those of the run.
fn environment(variables: &Value) -> Value {
    let variables = variables.as_object().into_iter().flatten();
    let variables = variables.map(|(name, variable)| {
        let encoded = variable["value"].as_str().unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(encoded).expect("base64");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_address = text.parse::<IpAddr>().is_ok();
        (name.clone(), if is_address { "(address)".into() } else { Value::String(text) })
    });
    Value::Object(variables.collect())
}

/// Some annotations are JSON, in which order means nothing.
fn annotations(all: Map<String, Value>) -> Map<String, Value> {
    let read = |(name, value): (String, Value)| {
        if name == CONFIG_SEEN {
            return (name, "(time)".into());
        }
        let json = value.as_str().filter(|text| text.starts_with(['{', '[']));
        let json = json.and_then(|text| serde_json::from_str::<Value>(text).ok());
        // As text, so that it stays one value.
        (name, json.map_or(value, |json| Value::String(json.to_string())))
    };
    all.into_iter().map(read).collect()
}

fn sorted(mut items: Vec<Value>) -> Value {
    items.sort_by_key(Value::to_string);
    Value::Array(items)
}

/// The sizes are those of the kernel.
fn huge_pages(limits: Value) -> Value {
    let mut has_limit = limits.as_array().into_iter().flatten().map(|it| !it["limit"].is_null());
    if has_limit.any(|has| has) { limits } else { Value::Null }
}

fn flatten(path: &str, value: &Value, flat: &mut Flat) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // Names such as those of labels contain dots.
                let name = if name.contains('.') { format!("[{name}]") } else { name.clone() };
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, flat);
            }
        }
        Value::Null => {}
        Value::Array(items) if items.is_empty() => {}
        _ => drop(flat.insert(path.to_owned(), value.clone())),
    }
}
