//! The pod that a command reaches, on this machine or through a hub, and the container in it.

use headwater_event::NodeName;
use headwater_identity::{Connector, TlsFiles, system_clock};
use headwater_kubelet::client::NodeClient;
use k8s_openapi::api::core::v1::Pod;

use crate::args::Target;
use crate::args::hub::HubArgs;
use crate::args::tls::TlsArgs;
use crate::exit::Failure;

/// A pod, and the server that reaches it.
pub(super) struct PodTarget {
    pub(super) node: NodeClient,
    /// The pod's name.
    pub(super) name: String,
    /// Its first container, if the server listed the pod.
    first_container: Option<String>,
}

/// The pod that a person names.
#[derive(Clone, Copy)]
pub(super) struct PodPlace<'a> {
    pub(super) namespace: &'a str,
    /// `NAME` or `pod/NAME`.
    pub(super) word: &'a str,
}

impl PodTarget {
    /// Finds the pod: `up` has several nodes, each with a pod worker of its own, and a hub knows which node has the
    /// pod. A hub lists the pods of a named node alone: without one, a command that `needs_first` container of the pod
    /// cannot know it.
    pub(super) async fn find(
        target: &Target,
        hub: &HubArgs,
        pod: PodPlace<'_>,
        needs_first: bool,
    ) -> Result<Self, Failure> {
        let name = pod_name(pod.word)?;
        match &hub.hub {
            Some(address) => Self::through(address, hub, pod.namespace, name, needs_first).await,
            None => {
                check_no_tls(hub)?;
                Self::on_machine(target, pod.namespace, name).await
            }
        }
    }

    async fn through(
        address: &str,
        hub: &HubArgs,
        namespace: &str,
        name: &str,
        needs_first: bool,
    ) -> Result<Self, Failure> {
        let node = hub.node.as_ref().map(NodeName::as_str);
        if node.is_some() && hub.tls.insecure_loopback {
            let words = "a hub without TLS takes no other host than this machine: name the container \
                         with --container instead of --node";
            return Err(Failure::Usage(words.to_owned()));
        }
        let client = NodeClient::of_hub(address, connector(&hub.tls)?, node)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        if node.is_some() {
            let found = client.pods().await?.into_iter().find(|pod| is_meant(pod, namespace, name));
            let found = found.ok_or_else(|| Failure::not_found("pods", name))?;
            return Ok(Self::of(client, &found));
        }
        if needs_first {
            let words = "a hub lists the pods of a named node alone: name the container with \
                         --container, or the node with --node";
            return Err(Failure::Usage(words.to_owned()));
        }
        Ok(Self { node: client, name: name.to_owned(), first_container: None })
    }

    async fn on_machine(target: &Target, namespace: &str, name: &str) -> Result<Self, Failure> {
        let nodes = NodeClient::all(&target.data)?;
        if nodes.is_empty() {
            return Err(Failure::message(format!(
                "no pod worker uses the directory {}: name with --data the directory of `headwater \
                 edge`, `edged` or `up` on the pod's own machine, or with --hub the port of a hub",
                target.data.display()
            )));
        }
        let mut unreachable = None;
        for node in nodes {
            // A socket without a server is of a process that was killed.
            let pods = match node.pods().await {
                Ok(pods) => pods,
                Err(error) => {
                    unreachable = Some(error);
                    continue;
                }
            };
            if let Some(pod) = pods.into_iter().find(|pod| is_meant(pod, namespace, name)) {
                return Ok(Self::of(node, &pod));
            }
        }
        match unreachable {
            Some(error) => Err(error.into()),
            None => Err(Failure::not_found("pods", name)),
        }
    }

    fn of(node: NodeClient, pod: &Pod) -> Self {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let first_container = containers.map(|container| container.name.clone()).next();
        let name = pod.metadata.name.clone().unwrap_or_default();
        Self { node, name, first_container }
    }

    /// The container that is meant: the first one, unless another is named.
    pub(super) fn container(&self, named: Option<&str>) -> Result<String, Failure> {
        let name = named.or(self.first_container.as_deref());
        name.map(str::to_owned).ok_or_else(|| Failure::message("the pod has no containers"))
    }
}

fn is_meant(pod: &Pod, namespace: &str, name: &str) -> bool {
    pod.metadata.name.as_deref() == Some(name)
        && pod.metadata.namespace.as_deref() == Some(namespace)
}

/// Checks that a command without a hub names no certificates.
pub(super) fn check_no_tls(hub: &HubArgs) -> Result<(), Failure> {
    let TlsArgs { tls_ca, tls_cert, tls_key, insecure_loopback } = &hub.tls;
    if *insecure_loopback || [tls_ca, tls_cert, tls_key].iter().any(|file| file.is_some()) {
        return Err(Failure::Usage("the flags of TLS are those for --hub HOST:PORT".to_owned()));
    }
    Ok(())
}

/// The certificates for a hub; `None`: none, on this machine.
fn connector(tls: &TlsArgs) -> Result<Option<Connector>, Failure> {
    let usage = |words: &str| Err(Failure::Usage(words.to_owned()));
    match (&tls.tls_ca, &tls.tls_cert, &tls.tls_key, tls.insecure_loopback) {
        (Some(ca), Some(certificate), Some(key), false) => {
            let (ca, certificate, key) = (ca.clone(), certificate.clone(), key.clone());
            let opened = Connector::open_http1(TlsFiles { ca, certificate, key }, system_clock());
            Ok(Some(opened.map_err(|error| Failure::Failed(error.into()))?))
        }
        (None, None, None, true) => Ok(None),
        (None, None, None, false) => usage(
            "name the certificates for the hub: --tls-ca FILE --tls-cert FILE --tls-key FILE, or \
             --insecure-loopback for one on this machine without TLS",
        ),
        (_, _, _, true) => usage("--insecure-loopback excludes a certificate: remove one of them"),
        _ => usage("--tls-ca, --tls-cert and --tls-key go together: one is missing"),
    }
}

/// The pod's name in `NAME` or `pod/NAME`.
fn pod_name(word: &str) -> Result<&str, Failure> {
    match word.split_once('/') {
        None => Ok(word),
        Some(("pod" | "pods" | "po", name)) => Ok(name),
        Some((of, _)) => Err(Failure::Usage(format!("{of} is no pod: name a pod"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_type_or_without() {
        for word in ["web", "pod/web", "po/web"] {
            assert_eq!(pod_name(word).expect("a pod"), "web");
        }
        assert!(matches!(pod_name("svc/web"), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_hub_needs_all_certificates_or_none_on_loopback() {
        let file = || Some(std::path::PathBuf::from("/no/such.pem"));
        let refused = |tls: TlsArgs| match connector(&tls) {
            Err(Failure::Usage(words)) => words,
            other => panic!("{:?}", other.map(|_| ())),
        };
        assert!(refused(TlsArgs::default()).contains("--tls-ca FILE"));
        let one = TlsArgs { tls_ca: file(), ..TlsArgs::default() };
        assert!(refused(one.clone()).contains("go together"));
        assert!(refused(TlsArgs { insecure_loopback: true, ..one }).contains("excludes"));
        let none = TlsArgs { insecure_loopback: true, ..TlsArgs::default() };
        assert!(matches!(connector(&none), Ok(None)));
        let (tls_ca, tls_cert, tls_key) = (file(), file(), file());
        let absent = TlsArgs { tls_ca, tls_cert, tls_key, insecure_loopback: false };
        assert!(matches!(connector(&absent), Err(Failure::Failed(_))), "a file that is not there");
    }
}
