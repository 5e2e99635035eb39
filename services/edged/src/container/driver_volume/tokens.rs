//! Tokens of ServiceAccounts for storage drivers (`tokenRequests` of a CSIDriver; `pkg/volume/csi/csi_mounter.go` of
//! Kubernetes, `podServiceAccountTokenAttrs`). Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Volume};
use k8s_openapi::api::storage::v1::{CSIDriverSpec, TokenRequest};
use serde_json::{Value, json};

use super::DriverSecrets;
use crate::container::token::{self, FindToken, TokenFile};
use crate::desired::objects::Objects;
use crate::pod::{claim_name, namespace};

/// The attribute, or the secret, in which a driver gets tokens: a JSON object from audience to token.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The audience and the life of each token that the drivers of the pod's volumes ask for.
pub(crate) fn wishes<'a>(
    pod: &'a Pod,
    objects: &'a Objects,
) -> impl Iterator<Item = (Option<&'a str>, Option<i64>)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let drivers = volumes.filter_map(|volume| driver_of(pod, volume, objects));
    drivers.flat_map(requests).map(wish)
}

/// The tokens that the driver asks for. One that the cloud does not issue at present is left out: the volume of a pod
/// that has run is published without it.
///
/// # Errors
/// The pod has to wait for one.
pub(super) fn tokens(
    pod: &Pod,
    driver: Option<&CSIDriverSpec>,
    find: &FindToken<'_>,
) -> Result<DriverSecrets, String> {
    let mut found = serde_json::Map::new();
    for request in driver.into_iter().flat_map(requests) {
        let (audience, life) = wish(request);
        let claim = token::claim(pod, audience, life)?;
        let failed = |why: String| format!("failed to get service account token attributes: {why}");
        if let TokenFile::Token(token) = find(&claim).map_err(failed)? {
            let status = json!({"token": token.text(), "expirationTimestamp": token.expires()});
            found.insert(request.audience.clone(), status);
        }
    }
    let entry = (TOKENS.to_owned(), Value::Object(found));
    let tokens =
        Some(entry).filter(|(_, found)| found.as_object().is_some_and(|it| !it.is_empty()));
    let tokens = tokens.map(|(key, found)| (key, found.to_string()));
    Ok(DriverSecrets(BTreeMap::from_iter(tokens)))
}

fn requests(driver: &CSIDriverSpec) -> impl Iterator<Item = &TokenRequest> {
    driver.token_requests.iter().flatten()
}

fn wish(request: &TokenRequest) -> (Option<&str>, Option<i64>) {
    (Some(&*request.audience), request.expiration_seconds)
}

/// The driver of a volume.
fn driver_of<'a>(pod: &Pod, volume: &Volume, objects: &'a Objects) -> Option<&'a CSIDriverSpec> {
    if let Some(source) = &volume.csi {
        return objects.csi_driver(&source.driver);
    }
    let claim = objects.claim(namespace(pod), &claim_name(pod, volume)?)?;
    let bound = objects.volume(claim.spec.as_ref()?.volume_name.as_deref()?)?;
    objects.csi_driver(&bound.spec.as_ref()?.csi.as_ref()?.driver)
}
