//! How the images of a node's pods are pulled: settings of `edge` and `edged`.

use std::path::PathBuf;

use headwater_edged::EdgedConfig;
use serde::{Deserialize, Serialize};

/// The `[images]` table, for a runtime that has images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Images {
    /// What the pull policy `Always` means while the registry cannot be reached.
    pub(crate) pull_offline: PullOffline,
    /// A docker config with credentials for all pods of the node.
    pub(crate) registry_config: Option<PathBuf>,
}

/// What the pull policy `Always` means while the registry cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PullOffline {
    /// A container that ran before starts from the same image.
    #[default]
    Present,
    /// The container waits for the registry.
    Strict,
}

impl Images {
    /// Sets them in a pod worker's configuration.
    pub(crate) fn set(&self, config: &mut EdgedConfig) {
        config.settings.pull_offline = match self.pull_offline {
            PullOffline::Present => headwater_edged::PullOffline::Present,
            PullOffline::Strict => headwater_edged::PullOffline::Strict,
        };
        config.settings.registry_config = self.registry_config.clone();
    }
}

#[cfg(test)]
mod tests {
    use headwater_edged::RuntimeKind;

    use super::*;

    #[test]
    fn a_pod_worker_has_the_settings_of_images() {
        let (node, path) = ("gw-1".parse().expect("a name"), || PathBuf::from("x"));
        let mut config = EdgedConfig::new(node, path(), path(), RuntimeKind::Hollow);
        Images::default().set(&mut config);
        let default = headwater_edged::Settings::default();
        assert_eq!(config.settings.pull_offline, default.pull_offline);
        assert_eq!(config.settings.registry_config, None);
        let file = Some(PathBuf::from("/etc/headwater/registries.json"));
        let images = Images { pull_offline: PullOffline::Strict, registry_config: file.clone() };
        images.set(&mut config);
        assert_eq!(config.settings.pull_offline, headwater_edged::PullOffline::Strict);
        assert_eq!(config.settings.registry_config, file);
    }
}
