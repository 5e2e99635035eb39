//! The differences between the requests of the pod worker and those of a kubelet, and which of them are meant.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::canonical::{Flat, PodRequests};

/// The differences that are meant.
const MEANT: &str = include_str!("differences.yaml");

/// A kernel with this file limits swap (cgroup v1); one of version 2 says so elsewhere.
const SWAP_LIMIT: &str = "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes";

/// A difference that is meant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meant {
    /// The path of a value; one that ends in `*` is a prefix.
    path: String,
    /// The pods; without any, all of them.
    #[serde(default)]
    pods: Vec<String>,
    /// Why.
    #[allow(dead_code, reason = "for people")]
    why: String,
}

/// What the file has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeantDifferences {
    /// Pods that the pod worker refuses on the machine of a test, or on any.
    pub(crate) refused: Vec<Refusal>,
    pub(crate) values: Vec<Meant>,
}

/// A pod that the pod worker refuses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    pub(crate) pod: String,
    #[allow(dead_code, reason = "for people")]
    why: String,
}

/// A value that differs.
pub(crate) struct Difference {
    pub(crate) pod: String,
    pub(crate) path: String,
    pub(crate) words: String,
}

impl MeantDifferences {
    pub(crate) fn read() -> Self {
        serde_saphyr::from_str(MEANT).expect("differences")
    }

    pub(crate) fn refuses(&self, pod: &str) -> bool {
        self.refused.iter().any(|refused| refused.pod == pod)
    }

    /// The differences that nothing names, and the named ones that there are not.
    pub(crate) fn judge(&self, differences: &[Difference]) -> (Vec<String>, Vec<String>) {
        let unnamed = differences
            .iter()
            .filter(|difference| !self.values.iter().any(|meant| meant.fits(difference)))
            .map(|it| format!("{}: {}: {}", it.pod, it.path, it.words));
        let stale = self.values.iter().flat_map(|meant| {
            let of_pods = meant.pods.iter().map(|pod| {
                let one = Meant { pods: vec![pod.clone()], ..meant.clone() };
                (differences.iter().any(|it| one.fits(it)), format!("{}: {pod}", meant.path))
            });
            let of_all = meant
                .pods
                .is_empty()
                .then(|| (differences.iter().any(|it| meant.fits(it)), meant.path.clone()));
            of_pods.chain(of_all)
        });
        let stale = stale.filter(|(occurs, _)| !occurs).map(|(_, words)| words);
        (unnamed.collect(), stale.collect())
    }
}

impl Meant {
    fn fits(&self, difference: &Difference) -> bool {
        let is_path = match self.path.strip_suffix('*') {
            Some(prefix) => difference.path.starts_with(prefix),
            None => difference.path == self.path,
        };
        is_path && (self.pods.is_empty() || self.pods.contains(&difference.pod))
    }
}

/// Where the requests for a pod differ.
pub(crate) fn between(pod: &str, kubelet: &PodRequests, own: &PodRequests) -> Vec<Difference> {
    let mut found = differing("sandbox", &kubelet.sandbox, &own.sandbox);
    let names: BTreeSet<&String> = kubelet.containers.keys().chain(own.containers.keys()).collect();
    for name in names {
        let flat = |of: &PodRequests| of.containers.get(name).cloned().unwrap_or_default();
        found.extend(differing("container", &flat(kubelet), &flat(own)));
    }
    found.into_iter().map(|(path, words)| Difference { pod: pod.to_owned(), path, words }).collect()
}

fn differing(what: &str, kubelet: &Flat, own: &Flat) -> Vec<(String, String)> {
    let paths: BTreeSet<&String> = kubelet.keys().chain(own.keys()).collect();
    let value = |flat: &Flat, path: &String| flat.get(path).cloned().unwrap_or(Value::Null);
    paths
        .into_iter()
        .filter(|path| !path.ends_with("memory_swap_limit_in_bytes") || limits_swap())
        .map(|path| (path, value(kubelet, path), value(own, path)))
        .filter(|(_, kubelet, own)| kubelet != own)
        .map(|(path, kubelet, own)| {
            (format!("{what}.{path}"), format!("a kubelet asks for {kubelet}, edged for {own}"))
        })
        .collect()
}

/// Whether the kernel limits swap as that of the kubelet did.
fn limits_swap() -> bool {
    Path::new(SWAP_LIMIT).exists()
}
