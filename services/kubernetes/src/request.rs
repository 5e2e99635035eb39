//! The requests: a page of a list, a watch, one object.

use headwater_event::ResourceKey;
use headwater_object::object_type::group;
use kube::api::{GetParams, ListParams, PostParams, WatchParams};
use serde::Deserialize;

use crate::kind::Kind;
use crate::raw_object::RawObject;
use crate::settings::KubernetesSettings;

/// A request, as kube sends it.
pub(crate) type HttpRequest = kube::core::Request;

/// The objects of a page: some 1 MB of pods.
const PAGE_OBJECTS: u32 = 250;

/// The length of a watch. A server ends a watch then, so a connection that is silent for longer is dead.
pub(crate) const WATCH_SECONDS: u32 = 60;

/// A page of a list. The type of kube would buffer it a second time.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<RawObject>>,
}

/// The place of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMetadata {
    /// The version of the list.
    #[serde(default)]
    pub(crate) resource_version: String,
    /// The token of the next page; empty on the last one.
    #[serde(default, rename = "continue")]
    pub(crate) continue_token: String,
}

impl Page {
    /// The objects.
    pub(crate) fn items(self) -> (PageMetadata, Vec<RawObject>) {
        (self.metadata, self.items.unwrap_or_default())
    }
}

/// Which objects of a kind are listed and watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: Option<String>,
    fields: Option<String>,
}

impl Selection {
    /// The selection of a kind.
    pub(crate) fn of(kind: Kind, settings: &KubernetesSettings) -> Self {
        Self {
            labels: kind.labels(settings).map(ToOwned::to_owned),
            fields: kind.fields().map(ToOwned::to_owned),
        }
    }

    /// The objects whose field has a value.
    pub(crate) fn with_field(field: &str, value: &str) -> Self {
        Self { labels: None, fields: Some(format!("{field}={value}")) }
    }
}

/// A page of all objects of a kind, as the API has them now: without a version, so that no stale cache
/// answers.
pub(crate) fn page(
    kind: Kind,
    selection: &Selection,
    continue_token: Option<&str>,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let params = ListParams {
        label_selector: selection.labels.clone(),
        field_selector: selection.fields.clone(),
        limit: Some(PAGE_OBJECTS),
        continue_token: continue_token.map(ToOwned::to_owned),
        ..ListParams::default()
    };
    HttpRequest::new(path(kind, None)).list(&params)
}

/// All objects of a kind at once, for a selection of few.
pub(crate) fn list(
    kind: Kind,
    selection: &Selection,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let params = ListParams {
        label_selector: selection.labels.clone(),
        field_selector: selection.fields.clone(),
        ..ListParams::default()
    };
    HttpRequest::new(path(kind, None)).list(&params)
}

/// The changes of a kind after `version`, for so many seconds.
pub(crate) fn watch(
    kind: Kind,
    selection: &Selection,
    version: &str,
    seconds: u32,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let params = WatchParams {
        label_selector: selection.labels.clone(),
        field_selector: selection.fields.clone(),
        timeout: Some(seconds),
        bookmarks: true,
        send_initial_events: false,
    };
    HttpRequest::new(path(kind, None)).watch(&params, version)
}

/// One object, as the API has it now.
pub(crate) fn object(
    kind: Kind,
    key: &ResourceKey,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    HttpRequest::new(path(kind, key.namespace())).get(key.name(), &GetParams::default())
}

/// Where certificates are requested.
const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A token of a ServiceAccount; `body` is a `TokenRequest`.
pub(crate) fn tokens(
    account: &ResourceKey,
    body: Vec<u8>,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let accounts = HttpRequest::new(path(Kind::ServiceAccount, account.namespace()));
    accounts.create_subresource("token", account.name(), &PostParams::default(), body)
}

/// A new request for a certificate; `body` is a `CertificateSigningRequest`.
pub(crate) fn signing_requests(
    body: Vec<u8>,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    HttpRequest::new(SIGNING_REQUESTS).create(&PostParams::default(), body)
}

/// A request for a certificate, as the API has it now.
pub(crate) fn signing_request(
    key: &ResourceKey,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    HttpRequest::new(SIGNING_REQUESTS).get(key.name(), &GetParams::default())
}

/// The path of a kind, in all namespaces or one.
fn path(kind: Kind, namespace: Option<&str>) -> String {
    let object_type = kind.object_type();
    let api = if group(object_type.api_version).is_empty() { "api" } else { "apis" };
    let namespace = namespace.map(|namespace| format!("namespaces/{namespace}/"));
    let (version, plural) = (object_type.api_version, object_type.plural);
    format!("/{api}/{version}/{}{plural}", namespace.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let key: ResourceKey = "shop/configmap/c".parse().expect("a key");
        assert_eq!(path(Kind::Pod, None), "/api/v1/pods");
        assert_eq!(path(Kind::EndpointSlice, None), "/apis/discovery.k8s.io/v1/endpointslices");
        let request = object(Kind::ConfigMap, &key).expect("a request");
        assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/configmaps/c");
        let account: ResourceKey = "shop/serviceaccount/robot".parse().expect("a key");
        let request = tokens(&account, Vec::new()).expect("a request");
        assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/serviceaccounts/robot/token");
    }

    #[test]
    fn a_list_asks_for_no_version_so_that_no_cache_answers() {
        let selection = Selection::of(Kind::Pod, &KubernetesSettings::default());
        let request = page(Kind::Pod, &selection, Some("next")).expect("a request");
        let query = request.uri().query().expect("a query");
        assert!(!query.contains("resourceVersion"), "{query}");
        assert!(query.contains("limit=250") && query.contains("continue=next"), "{query}");
    }

    #[test]
    fn a_page_without_items_is_empty() {
        let page: Page =
            serde_json::from_str(r#"{"metadata":{"resourceVersion":"5"},"items":null}"#)
                .expect("a page");
        let (metadata, items) = page.items();
        assert_eq!((&*metadata.resource_version, items.len()), ("5", 0));
        assert!(metadata.continue_token.is_empty());
    }
}
