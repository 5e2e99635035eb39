//! What the controller may not do at an API server, in words.

use std::time::Duration;

use kube::Client;

use crate::act_as::ActAs;
use crate::failure::RequestError;
use crate::rights::{Right, missing, rights};
use crate::server::{ServerVersion, ask_version};
use crate::settings::KubernetesSettings;

/// How often rights that were missing are asked for again. A person grants them.
pub(crate) const REVIEW_INTERVAL: Duration = Duration::from_secs(60);

/// The rights that a sentence names; `headwater doctor` names all.
const NAMED_MAX: usize = 5;

/// The rights to ask for.
#[derive(Clone, Debug)]
pub(crate) struct RightsReview {
    rights: Vec<Right>,
    act_as: ActAs,
}

impl RightsReview {
    /// The rights of a controller.
    pub(crate) fn new(settings: &KubernetesSettings, act_as: ActAs) -> Self {
        Self { rights: rights(settings, act_as), act_as }
    }

    /// Asks the server, and returns what the controller may not do; `None`: it may do everything.
    pub(crate) async fn ask(&self, client: &Client) -> Result<Option<String>, RequestError> {
        let version = ask_version(client).await?;
        if let Some(cause) = no_impersonation(self.act_as, &version) {
            return Ok(Some(cause));
        }
        Ok(sentence(&missing(client, self.rights.clone()).await?))
    }
}

/// Why a controller cannot act as a node at a server of this version; `None`: it can, or need not.
fn no_impersonation(act_as: ActAs, version: &ServerVersion) -> Option<String> {
    let is_wrong = act_as == ActAs::Node && !version.has_impersonation();
    is_wrong.then(|| {
        format!(
            "version {} cannot let the controller act as a node, which needs 1.36: set \
             act_as = \"self\" in [kubernetes], and apply ops/deploy/kubernetes/act-as-self",
            version.text
        )
    })
}

/// Names missing rights; `None`: none is missing.
fn sentence(missing: &[Right]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let named =
        missing.iter().take(NAMED_MAX).map(|right| format!("{right} (to {})", right.purpose));
    let named: Vec<String> = named.collect();
    let more = missing.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let count = missing.len();
    let noun = if count == 1 { "a right" } else { "rights" };
    Some(format!(
        "the controller lacks {noun}: {}{more}; apply the roles of ops/deploy/kubernetes, or see \
         `headwater doctor --kubeconfig FILE`",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named_with_what_they_are_for() {
        let all = rights(&KubernetesSettings::default(), ActAs::Node);
        assert_eq!(sentence(&[]), None);
        let one = sentence(&all[..1]).expect("one is missing");
        assert!(one.starts_with("the controller lacks a right: ") && one.contains("(to "), "{one}");
        let many = sentence(&all[..8]).expect("eight are missing");
        assert!(many.contains(" and 3 more; apply the roles"), "{many}");
    }
}
