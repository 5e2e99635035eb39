//! The file by which a client finds the API and proves who it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certificates::{Authority, Credentials};

/// The text of a kubeconfig for the holder of `credentials`.
pub(crate) fn text(server: &str, authority: &Authority, credentials: &Credentials) -> String {
    let [ca, certificate, key] =
        [authority.certificate(), &credentials.certificate, &credentials.key]
            .map(|pem| STANDARD.encode(pem));
    format!(
        "\
apiVersion: v1
kind: Config
current-context: headwater
contexts:
- name: headwater
  context: {{cluster: headwater, user: headwater}}
clusters:
- name: headwater
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: headwater
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
    )
}
