//! Containers: what they run, their ports, mounts and resources.

use super::super::field::Unless::{Is, Never, SameAs};
use super::super::field::{Type, field, typed};
use super::environment::{ENV_FROM_SOURCE, ENV_VAR};
use super::probe::{LIFECYCLE, PROBE};
use super::security::SECURITY_CONTEXT;
use super::{ALL, OTHERS, PROCESS, WITHOUT_IMAGES};

pub(super) static CONTAINER: Type = Type {
    name: "Container",
    fields: &[
        field("args"),
        field("command").remark("`process` demands it, and finds it on the host"),
        typed("env", &ENV_VAR),
        typed("envFrom", &ENV_FROM_SOURCE),
        field("image").noted(
            PROCESS,
            Never,
            "a process of the host has no image: its command is the host's",
        ),
        field("imagePullPolicy").remark("`process` pulls nothing"),
        typed("lifecycle", &LIFECYCLE),
        typed("livenessProbe", &PROBE),
        field("name"),
        typed("ports", &CONTAINER_PORT),
        typed("readinessProbe", &PROBE),
        field("resizePolicy").noted(WITHOUT_IMAGES, Never, "a running container is not resized"),
        typed("resources", &RESOURCE_REQUIREMENTS),
        field("restartPolicy"),
        typed("restartPolicyRules", &RESTART_RULE),
        typed("securityContext", &SECURITY_CONTEXT),
        typed("startupProbe", &PROBE),
        field("stdin").noted(OTHERS, Is(&["false"]), "the standard input of a container is empty"),
        field("stdinOnce").noted(
            OTHERS,
            Is(&["false"]),
            "the standard input of a container is empty",
        ),
        field("terminationMessagePath"),
        field("terminationMessagePolicy"),
        field("tty").noted(OTHERS, Is(&["false"]), "a container has no terminal"),
        typed("volumeDevices", &VOLUME_DEVICE).refused(
            WITHOUT_IMAGES,
            Never,
            "a container is given no devices",
        ),
        typed("volumeMounts", &VOLUME_MOUNT),
        field("workingDir"),
    ],
};

static RESTART_RULE: Type = Type {
    name: "ContainerRestartRule",
    fields: &[
        field("action").refused(
            ALL,
            Is(&["Restart", "RestartAllContainers"]),
            "there is no such action",
        ),
        typed("exitCodes", &RESTART_CODES),
    ],
};

static RESTART_CODES: Type =
    Type { name: "ContainerRestartRuleOnExitCodes", fields: &[field("operator"), field("values")] };

/// The fields of a container, and the one whose processes it sees.
pub(super) static EPHEMERAL_CONTAINER: Type = Type {
    name: "EphemeralContainer",
    fields: &[
        field("args"),
        field("command").remark("`process` demands it, and finds it on the host"),
        typed("env", &ENV_VAR),
        typed("envFrom", &ENV_FROM_SOURCE),
        field("image").noted(
            PROCESS,
            Never,
            "a process of the host has no image: its command is the host's",
        ),
        field("imagePullPolicy").remark("`process` pulls nothing"),
        field("lifecycle").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("livenessProbe").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("name"),
        field("ports").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("readinessProbe").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("resizePolicy").noted(ALL, Never, "it means nothing for an ephemeral container"),
        typed("resources", &RESOURCE_REQUIREMENTS),
        field("restartPolicy").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("restartPolicyRules").noted(
            ALL,
            Never,
            "it means nothing for an ephemeral container",
        ),
        typed("securityContext", &SECURITY_CONTEXT),
        field("startupProbe").noted(ALL, Never, "it means nothing for an ephemeral container"),
        field("stdin").noted(OTHERS, Is(&["false"]), "the standard input of a container is empty"),
        field("stdinOnce").noted(
            OTHERS,
            Is(&["false"]),
            "the standard input of a container is empty",
        ),
        field("targetContainerName")
            .remark("by the runtimes whose containers have processes of their own"),
        field("terminationMessagePath"),
        field("terminationMessagePolicy"),
        field("tty").noted(OTHERS, Is(&["false"]), "a container has no terminal"),
        typed("volumeDevices", &VOLUME_DEVICE).refused(
            WITHOUT_IMAGES,
            Never,
            "a container is given no devices",
        ),
        typed("volumeMounts", &VOLUME_MOUNT),
        field("workingDir"),
    ],
};

static CONTAINER_PORT: Type = Type {
    name: "ContainerPort",
    fields: &[
        field("containerPort"),
        field("hostIP").refused(
            PROCESS,
            Is(&["0.0.0.0", "::"]),
            "a process of the host itself chooses the address on which it listens",
        ),
        field("hostPort").refused(
            PROCESS,
            SameAs("containerPort"),
            "a process listens on the host's own ports, and nothing is forwarded",
        ),
        field("name"),
        field("protocol"),
    ],
};

static RESOURCE_REQUIREMENTS: Type = Type {
    name: "ResourceRequirements",
    fields: &[
        field("claims")
            .refused(ALL, Never, "the node allocates no claims of devices")
            .remark("`cri` gives containers the devices of device plugins, which `limits` name"),
        field("limits").noted(
            PROCESS,
            Never,
            "no limit of a container is enforced: the edge's own unit bounds all pods together",
        ),
        field("requests").remark(
            "by a cluster's scheduler, when the node admits the pod (not with `hollow`), in the \
             downward API and, with `cri`, as shares of the CPU and in the ranking of evictions",
        ),
    ],
};

static VOLUME_DEVICE: Type =
    Type { name: "VolumeDevice", fields: &[field("devicePath"), field("name")] };

static VOLUME_MOUNT: Type = Type {
    name: "VolumeMount",
    fields: &[
        field("mountPath").remark(
            "with `process` a relative path lies below the container's working directory, \
             `$HEADWATER_ROOT`; an absolute one needs a pod worker with the rights of root, and is \
             refused otherwise, but for that of the token which an API server adds: it lies below \
             `$HEADWATER_ROOT` then",
        ),
        field("mountPropagation")
            .refused(
                PROCESS,
                Is(&["None", "HostToContainer"]),
                "a mount that a container makes does not reach its volume",
            )
            .remark(
                "`cri` refuses it for a directory whose mount on the host does not pass mounts on",
            ),
        field("name"),
        field("readOnly"),
        field("recursiveReadOnly")
            .refused(
                PROCESS,
                Is(&["Disabled", "IfPossible"]),
                "mounts below a read-only mount stay writable",
            )
            .remark(
                "`cri` refuses `Enabled` where the runtime's handler does not name the feature",
            ),
        field("subPath"),
        field("subPathExpr"),
    ],
};
