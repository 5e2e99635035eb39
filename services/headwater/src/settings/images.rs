//! How the images of a node's pods are pulled, and when they are removed: settings of `edge` and `edged`.

use std::path::PathBuf;
use std::time::Duration;

use headwater_edged::{EdgedConfig, ImageCollection};
use headwater_settings::{InvalidSetting, duration_text};
use serde::{Deserialize, Serialize};

/// The `[images]` table, for a runtime that has images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Images {
    /// What the pull policy `Always` means while the registry cannot be reached.
    pub(crate) pull_offline: PullOffline,
    /// A docker config with credentials for all pods of the node.
    pub(crate) registry_config: Option<PathBuf>,
    /// The part of the images' file system in use, in percent, at which images that no container has are removed.
    pub(crate) collect_high_percent: u8,
    /// The part down to which they are.
    pub(crate) collect_low_percent: u8,
    /// The time for which an image stays after it came.
    #[serde(with = "duration_text")]
    pub(crate) collect_age_min: Duration,
    /// The time after which an image goes that no container had; `None`: it stays.
    pub(crate) collect_age_max: Option<Age>,
}

/// An age as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Age(#[serde(with = "duration_text")] pub(crate) Duration);

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

impl Default for Images {
    fn default() -> Self {
        let ImageCollection { high_percent, low_percent, age_min, age_max } =
            ImageCollection::default();
        Self {
            pull_offline: PullOffline::default(),
            registry_config: None,
            collect_high_percent: high_percent,
            collect_low_percent: low_percent,
            collect_age_min: age_min,
            collect_age_max: age_max.map(Age),
        }
    }
}

impl Images {
    /// Checks the thresholds and ages.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let (high, low) = (self.collect_high_percent, self.collect_low_percent);
        if !(1..=100).contains(&high) {
            let what =
                format!("{high} is out of range: set 1 to 100; 100 removes no image for its space");
            return Err(InvalidSetting::new("images.collect_high_percent", what));
        }
        if low > high {
            let what = format!("{low} is above collect_high_percent: set 0 to {high}");
            return Err(InvalidSetting::new("images.collect_low_percent", what));
        }
        if self.collect_age_max.is_some_and(|Age(max)| max <= self.collect_age_min) {
            let what = "images would go before the time for which they stay: set more than \
                        collect_age_min";
            return Err(InvalidSetting::new("images.collect_age_max", what));
        }
        Ok(())
    }

    /// Sets them in a pod worker's configuration.
    pub(crate) fn set(&self, config: &mut EdgedConfig) {
        config.settings.pull_offline = match self.pull_offline {
            PullOffline::Present => headwater_edged::PullOffline::Present,
            PullOffline::Strict => headwater_edged::PullOffline::Strict,
        };
        config.settings.registry_config = self.registry_config.clone();
        config.settings.image_collection = ImageCollection {
            high_percent: self.collect_high_percent,
            low_percent: self.collect_low_percent,
            age_min: self.collect_age_min,
            age_max: self.collect_age_max.map(|Age(age)| age),
        };
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
        assert_eq!(config.settings.image_collection, default.image_collection);
        let images = Images {
            pull_offline: PullOffline::Strict,
            registry_config: file.clone(),
            collect_high_percent: 70,
            collect_low_percent: 60,
            collect_age_min: Duration::from_secs(7),
            collect_age_max: Some(Age(Duration::from_secs(9))),
        };
        images.set(&mut config);
        let collection = ImageCollection {
            high_percent: 70,
            low_percent: 60,
            age_min: Duration::from_secs(7),
            age_max: Some(Duration::from_secs(9)),
        };
        assert_eq!(config.settings.image_collection, collection);
        assert_eq!(config.settings.pull_offline, headwater_edged::PullOffline::Strict);
        assert_eq!(config.settings.registry_config, file);
    }

    #[test]
    fn thresholds_and_ages_that_contradict_each_other_are_named() {
        Images::default().check().expect("the defaults");
        let with = |change: &dyn Fn(&mut Images)| {
            let mut images = Images::default();
            change(&mut images);
            images.check()
        };
        with(&|it| it.collect_high_percent = 100).expect("no image goes");
        for (key, result) in [
            ("images.collect_high_percent", with(&|it| it.collect_high_percent = 101)),
            ("images.collect_high_percent", with(&|it| it.collect_high_percent = 0)),
            ("images.collect_low_percent", with(&|it| it.collect_low_percent = 86)),
            (
                "images.collect_age_max",
                with(&|it| it.collect_age_max = Some(Age(Duration::from_mins(2)))),
            ),
        ] {
            assert_eq!(result.expect_err(key).key, key);
        }
    }
}
