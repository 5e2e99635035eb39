//! Which clients may ask. Pure: decided from the names in a certificate.
//!
//! A kubelet asks the API server about each client. A node must answer while it is cut off, so that a
//! setting names the clients: users (common names) and groups (organizations). The certificate of a node
//! never opens the server of a node, whatever the setting says: a stolen gateway is no operator.

use std::collections::BTreeSet;
use std::net::IpAddr;

use headwater_identity::{Certificate, Principal};
use http::uri::Authority;
use http::{HeaderMap, header};

use crate::route::{Resource, Route};

/// The user of an API server that kubeadm sets up.
pub const USER_DEFAULT: &str = "kube-apiserver-kubelet-client";

/// The group that may do everything in a cluster.
pub const GROUP_DEFAULT: &str = "system:masters";

/// The group of nodes, and the beginning of their user names.
const NODES: &str = "system:nodes";
const NODE_USER: &str = "system:node:";

/// The clients that may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Their common names.
    pub users: BTreeSet<String>,
    /// Their organizations.
    pub groups: BTreeSet<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The client showed no certificate that is valid now: 401.
    #[error("Unauthorized")]
    Unauthorized,
    /// A browser asks for a page, without a certificate: 403. Any page could run commands in pods otherwise.
    #[error("Forbidden: a request with an Origin header needs TLS and a client certificate")]
    Browser,
    /// A request without TLS names another host than this machine: 403. A page whose name leads to loopback
    /// could read pods and logs otherwise.
    #[error("Forbidden: the Host {host:?} is no address and not localhost")]
    ForeignHost {
        /// The header.
        host: String,
    },
    /// The client is known, and may not ask: 403, in a kubelet's words.
    #[error(
        "Forbidden (user={user}, verb={}, resource=nodes, subresource(s)=[{}])\n",
        resource.verb,
        resource.subresource
    )]
    Forbidden {
        /// The user.
        user: String,
        /// What the request names.
        resource: Resource,
    },
}

impl Default for Access {
    fn default() -> Self {
        Self { users: [USER_DEFAULT.to_owned()].into(), groups: [GROUP_DEFAULT.to_owned()].into() }
    }
}

impl Access {
    /// Whether the holder of a certificate may ask for `route`.
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn check(&self, certificate: &Certificate, route: &Route) -> Result<(), Denial> {
        let subject = &certificate.subject;
        let is_of_node = matches!(certificate.principal, Ok(Principal::Node(_)))
            || subject.common_name.starts_with(NODE_USER)
            || subject.organizations.iter().any(|group| group == NODES);
        let is_named = self.users.contains(&subject.common_name)
            || subject.organizations.iter().any(|group| self.groups.contains(group));
        if is_named && !is_of_node {
            return Ok(());
        }
        Err(Denial::Forbidden { user: subject.common_name.clone(), resource: route.resource() })
    }
}

/// Whether a client without a certificate may ask: any program of this machine, but no page of a browser. Every
/// page that a browser of this machine shows can connect to loopback. It names its origin, or, where its own name
/// leads to loopback, that name as the host.
///
/// # Errors
/// See [`Denial`].
pub(crate) fn check_local(headers: &HeaderMap) -> Result<(), Denial> {
    if headers.contains_key(header::ORIGIN) {
        return Err(Denial::Browser);
    }
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let is_own = authority.is_some_and(|authority| {
        let name = authority.host();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        name == "localhost" || address.unwrap_or(name).parse::<IpAddr>().is_ok()
    });
    if is_own {
        return Ok(());
    }
    Err(Denial::ForeignHost { host: String::from_utf8_lossy(host.as_bytes()).into_owned() })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use headwater_identity::{NameFault, Subject};

    use super::*;

    fn certificate(user: &str, groups: &[&str], uri: Option<&str>) -> Certificate {
        Certificate {
            principal: uri.map_or(Err(NameFault::Missing), |uri| Ok(uri.parse().expect("a URI"))),
            subject: Subject {
                common_name: user.to_owned(),
                organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
            },
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn the_named_may_ask_and_a_node_never() {
        let access = Access::default();
        let may = |user, groups: &[&str], uri| {
            access.check(&certificate(user, groups, uri), &Route::Pods).is_ok()
        };
        assert!(may("kube-apiserver-kubelet-client", &["kubeadm:cluster-admins"], None));
        assert!(may("anyone", &["a", "system:masters"], None));
        assert!(!may("anyone", &["a"], None));
        assert!(!may("", &[], None));
        assert!(!may("gw-1", &["system:masters"], Some("headwater://node/gw-1")));
        assert!(!may("system:node:gw-1", &["system:masters"], None));
        assert!(!may("kube-apiserver-kubelet-client", &["system:nodes"], None));
    }

    #[test]
    fn a_client_without_a_certificate_is_a_program_of_this_machine_and_no_page() {
        let check = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a value"));
            check_local(&headers)
        };
        assert_eq!(check_local(&HeaderMap::new()), Ok(()));
        for host in ["localhost", "localhost:10350", "127.0.0.1:10350", "[::1]:10350", "::1"] {
            let is_valid = host != "::1";
            assert_eq!(check(header::HOST, host).is_ok(), is_valid, "{host}");
        }
        for host in ["pages.example", "localhost.example:1", "127.0.0.1.example", "", "a b"] {
            let denial = Denial::ForeignHost { host: host.to_owned() };
            assert_eq!(check(header::HOST, host), Err(denial));
        }
        assert_eq!(check(header::ORIGIN, "http://127.0.0.1"), Err(Denial::Browser));
    }

    #[test]
    fn a_refusal_has_the_words_of_a_kubelet() {
        let denial = Access::default().check(&certificate("mallory", &[], None), &Route::Pods);
        assert_eq!(
            denial.expect_err("unknown").to_string(),
            "Forbidden (user=mallory, verb=get, resource=nodes, subresource(s)=[pods])\n"
        );
    }
}
