//! The logins for the image of a pod with one pull Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::container::pull_credentials::{CONFIG_JSON, CONFIG_OLD, PullCredentials};
use crate::runtime::RegistryCredentials;

/// The form of a docker config, which the type of its Secret names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigForm {
    /// `{"auths": {SERVER: ENTRY}}`, that of a node's file, too.
    Current,
    /// `{SERVER: ENTRY}`.
    Old,
}

/// What a node would use to pull an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullPreview {
    /// The logins, in the order of their trials.
    pub logins: Vec<RegistryCredentials>,
    /// What is malformed in the config, and was left out.
    pub problems: Vec<String>,
}

/// Previews the pull of `image` with the docker config of a Secret.
pub fn preview_pull(form: ConfigForm, config: &[u8], image: &str) -> PullPreview {
    let (kind, key) = match form {
        ConfigForm::Current => CONFIG_JSON,
        ConfigForm::Old => CONFIG_OLD,
    };
    let data = BTreeMap::from([(key.to_owned(), ByteString(config.to_vec()))]);
    let secret = Secret { type_: Some(kind.to_owned()), data: Some(data), ..Secret::default() };
    let PullCredentials { logins, problems } = PullCredentials::of_secret(&secret, image);
    PullPreview { logins, problems }
}
