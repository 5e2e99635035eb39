//! The manifests of `ops/deploy/kubernetes`, applied to a control plane: its controllers have the service
//! account, the roles and the policy that a user's have.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater_cluster::{AuditedRight, ControlPlane, ControlPlaneSettings};
use headwater_kubernetes::{Access, ActAs, Connection, KubernetesSettings, Right, rights};

use crate::world::{Kubectl as _, POLL, only_api};

pub(crate) const NAMESPACE: &str = "headwater-system";
pub(crate) const ACCOUNT: &str = "headwater-controller";

/// The service account as the audit log names it.
pub(crate) const USER: &str = "system:serviceaccount:headwater-system:headwater-controller";

/// How long a role may take to be known to the server.
pub(crate) const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// The folder of the manifests.
pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/deploy/kubernetes")
}

/// The folder of one of the two forms.
pub(crate) fn folder(act_as: ActAs) -> PathBuf {
    let name = match act_as {
        ActAs::Node => "act-as-node",
        ActAs::Controller => "act-as-self",
    };
    deploy().join(name)
}

/// The rights of a controller.
pub(crate) fn needed(act_as: ActAs) -> Vec<Right> {
    rights(&KubernetesSettings::default(), act_as)
}

/// Applies the manifests, and returns the kubeconfig of the service account.
pub(crate) fn apply(cluster: &ControlPlane, act_as: ActAs) -> PathBuf {
    cluster.run(&["apply", "-k", &folder(act_as).display().to_string()]);
    cluster.kubeconfig_of_account(NAMESPACE, ACCOUNT).expect("a token")
}

/// Applies the manifests, and returns the kubeconfig of the service account once the server knows its
/// rights.
pub(crate) fn deployed(cluster: &ControlPlane, act_as: ActAs) -> PathBuf {
    let kubeconfig = apply(cluster, act_as);
    wait_for(kubeconfig.clone(), needed(act_as));
    kubeconfig
}

/// A control plane that only stores objects, and the kubeconfig of a service account that may only read.
pub(crate) fn readable() -> (ControlPlane, PathBuf) {
    readable_with(only_api())
}

/// The same with these settings.
pub(crate) fn readable_with(settings: ControlPlaneSettings) -> (ControlPlane, PathBuf) {
    let settings = ControlPlaneSettings { audit: true, ..settings };
    let cluster = ControlPlane::start(settings).expect("a control plane");
    for file in ["namespace", "service-account", "reading"] {
        let file = deploy().join("base").join(file).with_extension("yaml");
        cluster.run(&["apply", "-f", &file.display().to_string()]);
    }
    let kubeconfig = cluster.kubeconfig_of_account(NAMESPACE, ACCOUNT).expect("a token");
    let is_reading = |right: &Right| matches!(&*right.verb, "get" | "list" | "watch");
    let reading = needed(ActAs::Node).into_iter().filter(is_reading);
    wait_for(kubeconfig.clone(), reading.collect());
    (cluster, kubeconfig)
}

/// Waits until the server knows the rights of a client: it reads roles by a watch of its own. In a thread,
/// because a test may have a runtime, or none yet.
fn wait_for(file: PathBuf, rights: Vec<Right>) {
    let waiting = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let access = Access::Kubeconfig { file, context: None };
            let connection = access.connect().await.expect("a client");
            let end = Instant::now() + KNOWN_WITHIN;
            loop {
                let missing = connection.missing(rights.clone()).await.expect("the server answers");
                if missing.is_empty() {
                    return;
                }
                assert!(Instant::now() < end, "missing {missing:?}");
                tokio::time::sleep(POLL).await;
            }
        });
    });
    waiting.join().expect("the server knows the rights");
}

/// The rights that the client of a connection lacks.
pub(crate) async fn missing(connection: &Connection, act_as: ActAs) -> Vec<Right> {
    connection.missing(needed(act_as)).await.expect("the server answers")
}

/// Checks that the control plane has refused no request of its controllers, and that they needed each of
/// these rights.
pub(crate) fn check_audit(cluster: &ControlPlane, needed: &[Right]) {
    let log = cluster.audit_log().expect("a log");
    let refused = log.refused(USER);
    assert!(refused.is_empty(), "the API server refused {refused:#?}");
    let audited = needed.iter().map(|right| AuditedRight {
        verb: right.verb.clone(),
        group: right.group.clone(),
        resource: right.resource.clone(),
        subresource: right.subresource.clone(),
    });
    let unused = log.unused(USER, &audited.collect::<Vec<_>>());
    assert!(unused.is_empty(), "nothing uses {unused:#?}");
}
