//! What a pod and its containers may do.

use super::super::field::Unless::{Is, Never};
use super::super::field::{Field, Type, field, typed};
use super::{ALL, CRI, PROCESS};

const APP_ARMOR: Field = typed("appArmorProfile", &APP_ARMOR_PROFILE);

const SE_LINUX: Field = field("seLinuxOptions").refused(
    PROCESS,
    Never,
    "a process of the host keeps the label of the edge",
);

const SECCOMP: Field = typed("seccompProfile", &SECCOMP_PROFILE);

const WINDOWS: Field =
    field("windowsOptions").noted(ALL, Never, "the node runs Linux, where they mean nothing");

pub(super) static POD_SECURITY_CONTEXT: Type = Type {
    name: "PodSecurityContext",
    fields: &[
        APP_ARMOR,
        field("fsGroup").remark(
            "a claim and a `local` volume get it with all their files when a pod begins to use them, unless the \
             pod only reads them; a `hostPath` never does",
        ),
        field("fsGroupChangePolicy").remark(
            "of claims, `local` volumes and volumes of storage drivers; the others come with the pod",
        ),
        field("runAsGroup"),
        field("runAsNonRoot"),
        field("runAsUser"),
        field("seLinuxChangePolicy").noted(PROCESS, Never, "no volume gets a label").noted(
            CRI,
            Never,
            "the runtime gives the volumes of a pod its label",
        ),
        SE_LINUX,
        SECCOMP,
        field("supplementalGroups"),
        field("supplementalGroupsPolicy").remark(
            "`process` has no images, whose groups could be merged; `cri` refuses `Strict` where \
                 the runtime does not name the feature",
        ),
        field("sysctls")
            .refused(
                PROCESS,
                Never,
                "they would change the host, whose kernel parameters a process shares",
            )
            .remark(
                "with `cri` a pod with one that is neither safe nor among `allowed_sysctls` of `[cri]` fails \
                 (`SysctlForbidden`), as under a kubelet",
            ),
        WINDOWS,
    ],
};

pub(super) static SECURITY_CONTEXT: Type = Type {
    name: "SecurityContext",
    fields: &[
        field("allowPrivilegeEscalation"),
        APP_ARMOR,
        typed("capabilities", &CAPABILITIES),
        field("privileged").refused(
            PROCESS,
            Is(&["false"]),
            "a process of the host gets no more rights than its user has",
        ),
        field("procMount").refused(PROCESS, Is(&["Default"]), "a process sees the host's /proc"),
        field("readOnlyRootFilesystem").refused(
            PROCESS,
            Is(&["false"]),
            "the root directory of a container is writable",
        ),
        field("runAsGroup"),
        field("runAsNonRoot"),
        field("runAsUser"),
        SE_LINUX,
        SECCOMP,
        WINDOWS,
    ],
};

static CAPABILITIES: Type = Type {
    name: "Capabilities",
    fields: &[
        field("add").refused(
            PROCESS,
            Never,
            "a process of the host gets no capabilities besides those of its user",
        ),
        field("drop"),
    ],
};

static SECCOMP_PROFILE: Type = Type {
    name: "SeccompProfile",
    fields: &[
        field("localhostProfile"),
        field("type").refused(
            PROCESS,
            Is(&["Unconfined"]),
            "no system call of a process is filtered",
        ),
    ],
};

static APP_ARMOR_PROFILE: Type = Type {
    name: "AppArmorProfile",
    fields: &[
        field("localhostProfile"),
        field("type")
            .refused(PROCESS, Is(&["Unconfined"]), "no AppArmor profile confines a process")
            .remark(
                "with `cri` a pod with a profile other than `Unconfined` fails on a node without \
                 AppArmor, as under a kubelet",
            ),
    ],
};
