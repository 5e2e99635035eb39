//! Volumes and their sources.

use super::super::field::Unless::{Is, Never};
use super::super::field::{Column, Field, Type, field, typed};
use super::environment::{OBJECT_FIELD_SELECTOR, RESOURCE_FIELD_SELECTOR};
use super::{ALL, CRI, PROCESS, RUNNING};

/// The runtimes that measure no volume.
const SIZELESS: &[Column] = &[Column::Process, Column::Memory];

/// The runtimes that mount no volume as a whole.
const WITHOUT_MOUNTS: &[Column] = &[Column::Process, Column::Memory];

/// A source that needs a storage driver.
const fn driver(name: &'static str) -> Field {
    field(name).refused(
        RUNNING,
        Never,
        "the node mounts no volume of this type; use a claim, hostPath, emptyDir, configMap, \
         secret, downwardAPI or projected instead",
    )
}

pub(super) static VOLUME: Type = Type {
    name: "Volume",
    fields: &[
        driver("awsElasticBlockStore"),
        driver("azureDisk"),
        driver("azureFile"),
        driver("cephfs"),
        driver("cinder"),
        typed("configMap", &CONFIG_MAP_VOLUME_SOURCE),
        typed("csi", &CSI_VOLUME_SOURCE).refused(
            PROCESS,
            Never,
            "the node has no storage drivers; use another volume instead",
        ),
        typed("downwardAPI", &DOWNWARD_API_VOLUME_SOURCE),
        typed("emptyDir", &EMPTY_DIR_VOLUME_SOURCE),
        typed("ephemeral", &EPHEMERAL_VOLUME_SOURCE),
        driver("fc"),
        driver("flexVolume"),
        driver("flocker"),
        driver("gcePersistentDisk"),
        driver("gitRepo"),
        driver("glusterfs"),
        typed("hostPath", &HOST_PATH_VOLUME_SOURCE),
        driver("image"),
        driver("iscsi"),
        field("name"),
        driver("nfs"),
        typed("persistentVolumeClaim", &CLAIM_VOLUME_SOURCE),
        driver("photonPersistentDisk"),
        driver("portworxVolume"),
        typed("projected", &PROJECTED_VOLUME_SOURCE),
        driver("quobyte"),
        driver("rbd"),
        driver("scaleIO"),
        typed("secret", &SECRET_VOLUME_SOURCE),
        driver("storageos"),
        driver("vsphereVolume"),
    ],
};

static EPHEMERAL_VOLUME_SOURCE: Type = Type {
    name: "EphemeralVolumeSource",
    fields: &[field("volumeClaimTemplate")
        .of_cluster("the cluster makes the claim POD-VOLUME of it; the pod waits for that claim")],
};

static CSI_VOLUME_SOURCE: Type = Type {
    name: "CSIVolumeSource",
    fields: &[
        field("driver").remark(
            "with `cri` it needs `plugins_dir`; it registers in plugins_registry, and the pod waits \
             for it",
        ),
        field("fsType"),
        typed("nodePublishSecretRef", &LOCAL_OBJECT_REFERENCE),
        field("readOnly"),
        field("volumeAttributes"),
    ],
};

static LOCAL_OBJECT_REFERENCE: Type =
    Type { name: "LocalObjectReference", fields: &[field("name")] };

static CONFIG_MAP_VOLUME_SOURCE: Type = Type {
    name: "ConfigMapVolumeSource",
    fields: &[field("defaultMode"), typed("items", &KEY_TO_PATH), field("name"), field("optional")],
};

static SECRET_VOLUME_SOURCE: Type = Type {
    name: "SecretVolumeSource",
    fields: &[
        field("defaultMode"),
        typed("items", &KEY_TO_PATH),
        field("optional"),
        field("secretName"),
    ],
};

static KEY_TO_PATH: Type =
    Type { name: "KeyToPath", fields: &[field("key"), field("mode"), field("path")] };

static DOWNWARD_API_VOLUME_SOURCE: Type = Type {
    name: "DownwardAPIVolumeSource",
    fields: &[field("defaultMode"), typed("items", &DOWNWARD_API_VOLUME_FILE)],
};

static DOWNWARD_API_VOLUME_FILE: Type = Type {
    name: "DownwardAPIVolumeFile",
    fields: &[
        typed("fieldRef", &OBJECT_FIELD_SELECTOR),
        field("mode"),
        field("path"),
        typed("resourceFieldRef", &RESOURCE_FIELD_SELECTOR),
    ],
};

static EMPTY_DIR_VOLUME_SOURCE: Type = Type {
    name: "EmptyDirVolumeSource",
    fields: &[
        field("medium").noted(PROCESS, Never, "an emptyDir lies on the disk of the edge").noted(
            CRI,
            Is(&["Memory"]),
            "an emptyDir lies on the disk of the edge or in its memory",
        ),
        field("sizeLimit")
            .noted(SIZELESS, Never, "the size of an emptyDir is not bounded")
            .remark("`cri` evicts a pod that exceeds it, and `medium: Memory` has this size"),
    ],
};

static HOST_PATH_VOLUME_SOURCE: Type =
    Type { name: "HostPathVolumeSource", fields: &[field("path"), field("type")] };

static CLAIM_VOLUME_SOURCE: Type = Type {
    name: "PersistentVolumeClaimVolumeSource",
    fields: &[
        field("claimName"),
        field("readOnly").refused(
            WITHOUT_MOUNTS,
            Is(&["false"]),
            "a claim is writable as a whole; set readOnly at its volumeMounts instead",
        ),
    ],
};

static PROJECTED_VOLUME_SOURCE: Type = Type {
    name: "ProjectedVolumeSource",
    fields: &[field("defaultMode"), typed("sources", &VOLUME_PROJECTION)],
};

static VOLUME_PROJECTION: Type = Type {
    name: "VolumeProjection",
    fields: &[
        field("clusterTrustBundle").refused(ALL, Never, "the edge has no trust bundles"),
        typed("configMap", &CONFIG_MAP_PROJECTION),
        typed("downwardAPI", &DOWNWARD_API_PROJECTION),
        field("podCertificate").refused(ALL, Never, "the edge asks for no certificates of pods"),
        typed("secret", &SECRET_PROJECTION),
        typed("serviceAccountToken", &SERVICE_ACCOUNT_TOKEN_PROJECTION)
            .remark("needs a Kubernetes API behind the controller, and waits without one"),
    ],
};

static CONFIG_MAP_PROJECTION: Type = Type {
    name: "ConfigMapProjection",
    fields: &[typed("items", &KEY_TO_PATH), field("name"), field("optional")],
};

static SECRET_PROJECTION: Type = Type {
    name: "SecretProjection",
    fields: &[typed("items", &KEY_TO_PATH), field("name"), field("optional")],
};

static SERVICE_ACCOUNT_TOKEN_PROJECTION: Type = Type {
    name: "ServiceAccountTokenProjection",
    fields: &[
        field("audience"),
        field("expirationSeconds")
            .remark("600 to 86400: a value outside is the nearest one inside"),
        field("path"),
    ],
};

static DOWNWARD_API_PROJECTION: Type =
    Type { name: "DownwardAPIProjection", fields: &[typed("items", &DOWNWARD_API_VOLUME_FILE)] };
