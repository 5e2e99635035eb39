//! The pod as a whole.

use super::super::field::Unless::{Is, Never};
use super::super::field::{Type, field, typed};
use super::affinity::{AFFINITY, SPREAD, TOLERATION};
use super::container::{CONTAINER, EPHEMERAL_CONTAINER};
use super::security::POD_SECURITY_CONTEXT;
use super::volume::VOLUME;
use super::{ALL, CRI, OTHERS, PROCESS, WITHOUT_IMAGES};

const PLACEMENT: &str = "by what places the pod";

const SHARED: &str = "`process`: containers share it with the host, whatever the value";

const RANK: &str = "the node does not rank pods: none is evicted for another";

pub(in super::super) static POD_SPEC: Type = Type {
    name: "PodSpec",
    fields: &[
        field("activeDeadlineSeconds"),
        typed("affinity", &AFFINITY),
        field("automountServiceAccountToken")
            .remark("an API server adds the volume; a manifest folder has none to add"),
        typed("containers", &CONTAINER),
        typed("dnsConfig", &POD_DNS_CONFIG),
        field("dnsPolicy").refused(
            PROCESS,
            Is(&["ClusterFirst", "ClusterFirstWithHostNet", "Default"]),
            "a process of the host resolves names as the host does",
        ),
        field("enableServiceLinks")
            .remark("no container gets variables of Services, whatever the value"),
        typed("ephemeralContainers", &EPHEMERAL_CONTAINER).remark("each starts once"),
        typed("hostAliases", &HOST_ALIAS).refused(
            PROCESS,
            Never,
            "a process of the host reads the host's /etc/hosts",
        ),
        field("hostIPC").remark(SHARED),
        field("hostNetwork").remark(SHARED),
        field("hostPID").remark(SHARED),
        field("hostUsers")
            .refused(
                PROCESS,
                Is(&["true"]),
                "a process of the host is in the host's user namespace",
            )
            .refused(CRI, Is(&["true"]), "the node assigns no ranges of users to pods"),
        field("hostname").noted(
            PROCESS,
            Never,
            "only the variable HOSTNAME has it, and the host keeps its name",
        ),
        field("hostnameOverride").noted(
            PROCESS,
            Never,
            "only the variable HOSTNAME has it, and the host keeps its name",
        ),
        field("imagePullSecrets")
            .noted(WITHOUT_IMAGES, Never, "no image is pulled")
            .remark("a pod that names none has those of its ServiceAccount"),
        typed("initContainers", &CONTAINER),
        field("nodeName"),
        field("nodeSelector").remark(PLACEMENT),
        typed("os", &POD_OS),
        field("overhead").remark("it counts as a request when the node admits the pod"),
        field("preemptionPolicy").remark(PLACEMENT),
        field("priority")
            .noted(OTHERS, Is(&["0"]), RANK)
            .remark("but a critical pod takes the place of others where it has no room"),
        field("priorityClassName").noted(OTHERS, Never, RANK),
        typed("readinessGates", &POD_READINESS_GATE),
        field("resourceClaims")
            .refused(ALL, Never, "the node allocates no claims of devices")
            .remark("`cri` gives containers the devices of device plugins, which `limits` name"),
        field("resources").noted(
            PROCESS,
            Never,
            "no limit of the pod is enforced: the edge's own unit bounds all pods together",
        ),
        field("restartPolicy"),
        field("runtimeClassName")
            .refused(PROCESS, Never, "the node has one runtime, and no classes")
            .remark(
                "`cri` refuses a class that the node does not know, and one whose handler the runtime \
                 does not name",
            ),
        field("schedulerName").remark(PLACEMENT),
        field("schedulingGates").refused(
            ALL,
            Never,
            "the pod is not to be scheduled yet, and has reached its node",
        ),
        typed("schedulingGroup", &POD_SCHEDULING_GROUP).remark(PLACEMENT),
        typed("securityContext", &POD_SECURITY_CONTEXT),
        field("serviceAccount").remark("as `serviceAccountName`, whose old name it is"),
        field("serviceAccountName")
            .remark("in the downward API, and for the tokens of projected volumes"),
        field("setHostnameAsFQDN").noted(PROCESS, Is(&["false"]), "the host keeps its name"),
        field("shareProcessNamespace").remark(SHARED),
        field("subdomain").noted(OTHERS, Never, "the pod gets no name in DNS"),
        field("terminationGracePeriodSeconds"),
        typed("tolerations", &TOLERATION).remark(PLACEMENT),
        field("topologySpreadConstraints").noted(ALL, Never, SPREAD),
        typed("volumes", &VOLUME),
    ],
};

static POD_SCHEDULING_GROUP: Type =
    Type { name: "PodSchedulingGroup", fields: &[field("podGroupName")] };

static POD_DNS_CONFIG: Type = Type {
    name: "PodDNSConfig",
    fields: &[
        field("nameservers").refused(
            PROCESS,
            Never,
            "a process of the host asks the host's name servers",
        ),
        field("options").noted(PROCESS, Never, "the options of the host's resolver stay"),
        field("searches").noted(PROCESS, Never, "the host's search list stays"),
    ],
};

static HOST_ALIAS: Type = Type { name: "HostAlias", fields: &[field("hostnames"), field("ip")] };

static POD_OS: Type = Type {
    name: "PodOS",
    fields: &[field("name")
        .refused(ALL, Is(&["linux"]), "the node runs Linux")
        .remark("with `cri` the pod fails (`PodOSNotSupported`), as under a kubelet")],
};

static POD_READINESS_GATE: Type =
    Type { name: "PodReadinessGate", fields: &[field("conditionType")] };
