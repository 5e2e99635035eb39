//! Variables, and the fields and resources that they and files take their values from.

use super::super::field::Unless::Never;
use super::super::field::{Type, field, typed};
use super::WITHOUT_FILES;

pub(super) static ENV_VAR: Type = Type {
    name: "EnvVar",
    fields: &[field("name"), field("value"), typed("valueFrom", &ENV_VAR_SOURCE)],
};

static ENV_VAR_SOURCE: Type = Type {
    name: "EnvVarSource",
    fields: &[
        typed("configMapKeyRef", &CONFIG_MAP_KEY_SELECTOR),
        typed("fieldRef", &OBJECT_FIELD_SELECTOR),
        typed("fileKeyRef", &FILE_KEY_SELECTOR).refused(
            WITHOUT_FILES,
            Never,
            "no variable is read from a file of a volume",
        ),
        typed("resourceFieldRef", &RESOURCE_FIELD_SELECTOR),
        typed("secretKeyRef", &SECRET_KEY_SELECTOR),
    ],
};

pub(super) static ENV_FROM_SOURCE: Type = Type {
    name: "EnvFromSource",
    fields: &[
        typed("configMapRef", &CONFIG_MAP_ENV_SOURCE),
        field("prefix"),
        typed("secretRef", &SECRET_ENV_SOURCE),
    ],
};

static CONFIG_MAP_KEY_SELECTOR: Type = Type {
    name: "ConfigMapKeySelector",
    fields: &[field("key"), field("name"), field("optional")],
};

static FILE_KEY_SELECTOR: Type = Type {
    name: "FileKeySelector",
    fields: &[field("key"), field("optional"), field("path"), field("volumeName")],
};

static SECRET_KEY_SELECTOR: Type =
    Type { name: "SecretKeySelector", fields: &[field("key"), field("name"), field("optional")] };

static CONFIG_MAP_ENV_SOURCE: Type =
    Type { name: "ConfigMapEnvSource", fields: &[field("name"), field("optional")] };

static SECRET_ENV_SOURCE: Type =
    Type { name: "SecretEnvSource", fields: &[field("name"), field("optional")] };

pub(super) static OBJECT_FIELD_SELECTOR: Type =
    Type { name: "ObjectFieldSelector", fields: &[field("apiVersion"), field("fieldPath")] };

pub(super) static RESOURCE_FIELD_SELECTOR: Type = Type {
    name: "ResourceFieldSelector",
    fields: &[
        field("containerName"),
        field("divisor"),
        field("resource").remark("a limit that is not set is what the node has for pods"),
    ],
};
