//! The file by which a client finds the API and proves who it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certificates::{Authority, Credentials};

/// The text of a kubeconfig for the holder of `credentials`.
pub(crate) fn text(server: &str, authority: &Authority, credentials: &Credentials) -> String {
    let [certificate, key] =
        [&credentials.certificate, &credentials.key].map(|pem| STANDARD.encode(pem));
    let user = format!("client-certificate-data: {certificate}\n    client-key-data: {key}");
    text_of(server, authority, &user)
}

/// The text of a kubeconfig for the holder of `token`.
pub(crate) fn text_of_token(server: &str, authority: &Authority, token: &str) -> String {
    text_of(server, authority, &format!("token: {token}"))
}

fn text_of(server: &str, authority: &Authority, user: &str) -> String {
    let ca = STANDARD.encode(authority.certificate());
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
    {user}
"
    )
}
