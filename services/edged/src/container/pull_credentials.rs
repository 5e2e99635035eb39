//! The credentials with which the image of a pod is pulled: of the Secrets that the pod or its ServiceAccount names, then
//! of the node's own file. Pure.
//!
//! | module | job |
//! |---|---|
//! | `docker_config` | the logins of a docker config, in both of its forms |
//! | `registry_path` | the registry and the repository of an image, and the entries that match them |
//!
//! The rules are those of a kubelet's keyring (`k8s.io/kubernetes/pkg/credentialprovider`): the entry
//! with the longest path comes first, and every entry that matches is tried.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::{Pod, Secret};

pub(crate) use docker_config::CONFIG_BYTES_MAX;
use docker_config::{DockerConfig, Login};
use registry_path::{EntryPath, Repository};

use crate::desired::objects::Objects;
use crate::pod::{self, namespace};
use crate::runtime::RegistryCredentials;

mod docker_config;
mod registry_path;

/// The key of a docker config in a Secret of the type `kubernetes.io/dockerconfigjson`.
pub(crate) const CONFIG_JSON: (&str, &str) =
    ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");

/// The key of the older form in a Secret of the type `kubernetes.io/dockercfg`.
pub(crate) const CONFIG_OLD: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// The logins for one pull, in the order of their trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PullCredentials {
    /// The logins.
    pub(crate) logins: Vec<RegistryCredentials>,
    /// The docker configs that are absent or malformed, and were left out.
    pub(crate) problems: Vec<String>,
}

impl PullCredentials {
    /// The logins for `image` of the pod's Secrets, then those of the node's docker config.
    pub(crate) fn of(
        pod: &Pod,
        objects: &Objects,
        node_config: Option<&[u8]>,
        image: &str,
    ) -> Self {
        let mut found = Self::default();
        let mut keyring = Keyring::default();
        for name in secret_names(pod, objects) {
            match objects.secret(namespace(pod), name) {
                Some(secret) => keyring.add_secret(secret, &mut found.problems, name),
                None => found.problems.push(format!("secret {name:?} not found")),
            }
        }
        let mut own = Keyring::default();
        if let Some(bytes) = node_config {
            match DockerConfig::parse(bytes) {
                Ok(config) => own.add(config, &mut found.problems, "of the node"),
                Err(why) => found.problems.push(format!("the node's docker config: {why}")),
            }
        }
        if let Some(repository) = Repository::of(image) {
            found.logins = keyring.lookup(&repository);
            found.logins.extend(own.lookup(&repository));
        }
        found
    }

    /// The logins for `image` of one Secret.
    pub(crate) fn of_secret(secret: &Secret, image: &str) -> Self {
        let (mut found, mut keyring) = (Self::default(), Keyring::default());
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        keyring.add_secret(secret, &mut found.problems, name);
        if let Some(repository) = Repository::of(image) {
            found.logins = keyring.lookup(&repository);
        }
        found
    }

    /// A number that changes with the logins, and from which they cannot be read.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for login in &self.logins {
            (&login.username, &login.password).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The Secrets that the pod names, else those of its ServiceAccount. The admission of an API server copies these into a
/// pod that names none; a pod from a manifest comes without. A static pod has no account.
fn secret_names<'a>(pod: &'a Pod, objects: &'a Objects) -> Vec<&'a str> {
    let own: Vec<&str> = pod.spec.iter().flat_map(pod::pull_secrets).collect();
    if !own.is_empty() || pod::is_of_file(pod) {
        return own;
    }
    let account = objects.account(namespace(pod), pod::account(pod));
    account.into_iter().flat_map(|it| pod::named(it.image_pull_secrets.as_deref())).collect()
}

/// The docker config of a Secret.
fn docker_config(secret: &Secret) -> Result<DockerConfig, String> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    let (_, key) =
        [CONFIG_JSON, CONFIG_OLD].into_iter().find(|(of, _)| *of == kind).ok_or_else(|| {
            format!("its type is {kind:?}: use {} or {}", CONFIG_JSON.0, CONFIG_OLD.0)
        })?;
    let text = secret.string_data.as_ref().and_then(|text| text.get(key)).map(String::as_bytes);
    let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| &*bytes.0);
    let bytes = text.or(bytes).ok_or_else(|| format!("it has no key {key:?}"))?;
    if key == CONFIG_JSON.1 { DockerConfig::parse(bytes) } else { DockerConfig::parse_old(bytes) }
}

/// Logins by the paths for which they are.
#[derive(Default)]
struct Keyring {
    entries: Vec<(EntryPath, Login)>,
}

impl Keyring {
    fn add_secret(&mut self, secret: &Secret, problems: &mut Vec<String>, name: &str) {
        match docker_config(secret) {
            Ok(config) => self.add(config, problems, name),
            Err(why) => problems.push(format!("secret {name:?}: {why}")),
        }
    }

    fn add(&mut self, config: DockerConfig, problems: &mut Vec<String>, place: &str) {
        problems.extend(config.problems.iter().map(|why| format!("docker config {place}: {why}")));
        for (server, login) in config.logins {
            self.entries.push((EntryPath::of(&server), login));
        }
        // The longest path first, as in a kubelet's index, which is in reverse order of its text.
        // Secrets keep their order.
        self.entries.sort_by(|(a, _), (b, _)| b.as_str().cmp(a.as_str()));
    }

    fn lookup(&self, repository: &Repository) -> Vec<RegistryCredentials> {
        let found: Vec<&Login> = self
            .entries
            .iter()
            .filter(|(path, _)| path.matches(repository))
            .map(|(_, login)| login)
            .collect();
        let found = if found.is_empty() && repository.is_docker_hub() {
            let hub = self.entries.iter().filter(|(path, _)| path.is_docker_hub());
            hub.map(|(_, login)| login).collect()
        } else {
            found
        };
        found.into_iter().map(Login::credentials).collect()
    }
}

#[cfg(test)]
mod tests;
