//! The `[kubelet]` table: the server with a kubelet's paths. Settings of `edge` and `edged`, and
//! of `hub` for all of its nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_identity::{Acceptor, TlsFiles, system_clock};
use headwater_kubelet::access::{Access, GROUP_DEFAULT, USER_DEFAULT};
use headwater_settings::InvalidSetting;
use headwater_telemetry::error_chain;
use serde::{Deserialize, Serialize};

/// The settings of the kubelet's server. Its local socket is always there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Kubelet {
    /// The address for API servers; a kubelet has port 10350 or 10250. Without one there is none.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether to listen without TLS, on a loopback address.
    pub(crate) insecure_loopback: bool,
    /// The certificates of the CAs of API servers.
    pub(crate) client_ca: Option<PathBuf>,
    /// The server's own certificate, which the API servers verify.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(crate) tls_key: Option<PathBuf>,
    /// The users that may ask, comma-separated: common names of certificates.
    pub(crate) users: String,
    /// The groups that may ask, comma-separated: organizations in certificates.
    pub(crate) groups: String,
}

/// The door for API servers, by the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// There is none.
    Off,
    /// Without TLS.
    Loopback(SocketAddr),
    /// With TLS.
    Tls(SocketAddr, TlsFiles, Access),
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            listen: None,
            insecure_loopback: false,
            client_ca: None,
            tls_cert: None,
            tls_key: None,
            users: USER_DEFAULT.to_owned(),
            groups: GROUP_DEFAULT.to_owned(),
        }
    }
}

impl Kubelet {
    /// The door, if the settings are whole.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn door(&self) -> Result<Listen, InvalidSetting> {
        let wrong = |key, what: &str| Err(InvalidSetting::new(key, what));
        let Some(listen) = self.listen else {
            if *self != Self::default() {
                let what = "set the address of the server, such as 0.0.0.0:10350, or leave the other \
                            settings of the table out";
                return wrong("kubelet.listen", what);
            }
            return Ok(Listen::Off);
        };
        let files = (&self.client_ca, &self.tls_cert, &self.tls_key);
        match files {
            (None, None, None) if self.insecure_loopback && listen.ip().is_loopback() => {
                Ok(Listen::Loopback(listen))
            }
            (None, None, None) if self.insecure_loopback => {
                let what =
                    format!("{listen} is not loopback: without TLS the server listens there only");
                wrong("kubelet.listen", &what)
            }
            _ if self.insecure_loopback => {
                let what = "it excludes certificates: remove one of them";
                wrong("kubelet.insecure_loopback", what)
            }
            (Some(ca), Some(certificate), Some(key)) => {
                let files =
                    TlsFiles { ca: ca.clone(), certificate: certificate.clone(), key: key.clone() };
                let access = Access { users: words(&self.users), groups: words(&self.groups) };
                if access.users.is_empty() && access.groups.is_empty() {
                    return wrong("kubelet.users", "no client may ask: set users or groups");
                }
                Ok(Listen::Tls(listen, files, access))
            }
            (None, _, _) => wrong("kubelet.client_ca", MISSING),
            (_, None, _) => wrong("kubelet.tls_cert", MISSING),
            (_, _, None) => wrong("kubelet.tls_key", MISSING),
        }
    }
}

impl Kubelet {
    /// Checks that the files can be used.
    ///
    /// # Errors
    /// The reason and the remedy, for people.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        if let Ok(Listen::Tls(_, files, _)) = self.door() {
            let opened = Acceptor::open_http1(files, system_clock());
            opened.map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }
}

/// What to do about a missing file.
const MISSING: &str = "set client_ca (the CA of the API server's client certificate), tls_cert and \
                       tls_key, or insecure_loopback for experiments on one machine";

fn words(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str) -> Kubelet {
        Kubelet { listen: Some(address.parse().expect("an address")), ..Kubelet::default() }
    }

    #[test]
    fn without_an_address_there_is_no_door_and_no_setting_of_one() {
        assert_eq!(Kubelet::default().door().expect("nothing is set"), Listen::Off);
        let unused = Kubelet { insecure_loopback: true, ..Kubelet::default() };
        assert_eq!(unused.door().expect_err("no address").key, "kubelet.listen");
    }

    #[test]
    fn without_tls_the_server_is_on_loopback_and_only_if_told() {
        let plain = |address| Kubelet { insecure_loopback: true, ..listening(address) };
        assert!(matches!(plain("127.0.0.1:10350").door(), Ok(Listen::Loopback(_))));
        assert!(matches!(plain("[::1]:0").door(), Ok(Listen::Loopback(_))));
        assert_eq!(plain("0.0.0.0:10350").door().expect_err("far").key, "kubelet.listen");
        let error = listening("127.0.0.1:10350").door().expect_err("not told");
        assert_eq!(error.key, "kubelet.client_ca");
    }

    #[test]
    fn certificates_go_together_and_someone_may_ask() {
        let file = |name: &str| Some(PathBuf::from(name));
        let whole = Kubelet {
            client_ca: file("ca"),
            tls_cert: file("cert"),
            tls_key: file("key"),
            ..listening("0.0.0.0:10350")
        };
        let Ok(Listen::Tls(_, _, access)) = whole.door() else { panic!("{:?}", whole.door()) };
        assert_eq!(access, Access::default());
        for (wrong, key) in [
            (Kubelet { tls_key: None, ..whole.clone() }, "kubelet.tls_key"),
            (Kubelet { client_ca: None, ..whole.clone() }, "kubelet.client_ca"),
            (Kubelet { insecure_loopback: true, ..whole.clone() }, "kubelet.insecure_loopback"),
            (
                Kubelet { users: " ,".to_owned(), groups: String::new(), ..whole.clone() },
                "kubelet.users",
            ),
        ] {
            assert_eq!(wrong.door().expect_err(key).key, key);
        }
    }
}
