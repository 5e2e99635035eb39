//! Which Events a pod worker sends.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which Events of its pods a node sends to the cloud.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Events {
    /// No Events
    None,
    /// Events about what goes wrong
    #[default]
    Warnings,
    /// Also Events about what goes as it should: started and stopped containers
    All,
}
