//! The kinds of objects that are watched, and what of each the controller gets.

use headwater_object::{OBJECT_TYPES, ObjectType};

use crate::raw_object::RawObject;
use crate::settings::KubernetesSettings;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Namespace,
    Node,
    Pod,
    VolumeAttachment,
    Service,
    Endpoints,
    EndpointSlice,
    PersistentVolumeClaim,
    ServiceAccount,
    RuntimeClass,
    PersistentVolume,
    ConfigMap,
    Secret,
    CsiDriver,
}

/// Which objects of a kind the controller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Every one, for the shared stream.
    Shared,
    /// Every one that is listed: the edge nodes.
    EdgeNode,
    /// Those whose spec names an edge node.
    OfNode,
    /// Those that other objects name.
    Named,
}

/// The namespace whose UID is the identity of a cluster.
pub(crate) const IDENTITY_NAMESPACE: &str = "kube-system";

/// Neither releases of Helm, which are large and many, nor tokens by which nodes join the cluster.
const SECRET_FIELDS: &str = "type!=helm.sh/release.v1,type!=bootstrap.kubernetes.io/token";
const SECRET_TYPES_LEFT_OUT: [&str; 2] = ["helm.sh/release.v1", "bootstrap.kubernetes.io/token"];

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 14] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::VolumeAttachment,
        Self::Service,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::PersistentVolumeClaim,
        Self::ServiceAccount,
        Self::RuntimeClass,
        Self::PersistentVolume,
        Self::ConfigMap,
        Self::Secret,
        Self::CsiDriver,
    ];

    /// The number of waves of the first list.
    pub(crate) const WAVES: u8 = 5;

    /// The kind of the objects with the type `name` in their keys.
    pub(crate) fn of_key(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The type in keys: `configmap`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Node => "node",
            Self::Pod => "pod",
            Self::VolumeAttachment => "volumeattachment",
            Self::Service => "service",
            Self::Endpoints => "endpoints",
            Self::EndpointSlice => "endpointslice",
            Self::PersistentVolumeClaim => "persistentvolumeclaim",
            Self::ServiceAccount => "serviceaccount",
            Self::RuntimeClass => "runtimeclass",
            Self::PersistentVolume => "persistentvolume",
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::CsiDriver => "csidriver",
        }
    }

    /// The type of the objects.
    pub(crate) fn object_type(self) -> &'static ObjectType {
        let mut types = OBJECT_TYPES.iter();
        types.find(|one| one.name == self.name()).expect("the table of types has every kind")
    }

    /// The plural, by which states name the kind.
    pub(crate) fn plural(self) -> &'static str {
        self.object_type().plural
    }

    /// Which objects the controller gets.
    pub(crate) fn usage(self) -> Usage {
        match self {
            Self::Namespace | Self::Service | Self::Endpoints | Self::EndpointSlice => {
                Usage::Shared
            }
            Self::Node => Usage::EdgeNode,
            Self::Pod | Self::VolumeAttachment => Usage::OfNode,
            Self::PersistentVolumeClaim
            | Self::ServiceAccount
            | Self::RuntimeClass
            | Self::PersistentVolume
            | Self::ConfigMap
            | Self::Secret
            | Self::CsiDriver => Usage::Named,
        }
    }

    /// When the kind is listed for the first time: after the kinds whose objects name objects of it, so
    /// that it is known which of them are needed.
    pub(crate) fn wave(self) -> u8 {
        match self {
            Self::Namespace | Self::Node => 0,
            Self::Pod
            | Self::VolumeAttachment
            | Self::Service
            | Self::Endpoints
            | Self::EndpointSlice => 1,
            Self::PersistentVolumeClaim | Self::ServiceAccount | Self::RuntimeClass => 2,
            Self::PersistentVolume => 3,
            Self::ConfigMap | Self::Secret | Self::CsiDriver => 4,
        }
    }

    /// Whether the source watches the kind.
    pub(crate) fn is_watched(self, settings: &KubernetesSettings) -> bool {
        self != Self::Endpoints || settings.endpoints
    }

    /// The label selector of the kind.
    pub(crate) fn labels(self, settings: &KubernetesSettings) -> Option<&str> {
        match self {
            Self::Node => Some(&settings.node_selector),
            Self::Service | Self::Endpoints | Self::EndpointSlice => {
                settings.service_selector.as_deref()
            }
            _ => None,
        }
    }

    /// The field selector of the kind.
    pub(crate) fn fields(self) -> Option<&'static str> {
        match self {
            Self::Namespace => Some("metadata.name=kube-system"),
            Self::Pod => Some("spec.nodeName!="),
            Self::Secret => Some(SECRET_FIELDS),
            _ => None,
        }
    }

    /// Whether the field selector of the kind leaves this object out. A request for one object has no selector.
    pub(crate) fn leaves_out(self, object: &RawObject) -> bool {
        let of_type = object.value()["type"].as_str();
        self == Self::Secret && of_type.is_some_and(|it| SECRET_TYPES_LEFT_OUT.contains(&it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_a_type_with_a_wave() {
        for kind in Kind::ALL {
            assert_eq!(kind.object_type().name, kind.name());
            assert_eq!(Kind::of_key(kind.name()), Some(kind));
            assert!(kind.wave() < Kind::WAVES);
        }
        let left_out = SECRET_TYPES_LEFT_OUT.map(|it| format!("type!={it}"));
        assert_eq!(Kind::Secret.fields(), Some(&*left_out.join(",")));
        assert_eq!(Kind::Namespace.fields(), Some(&*format!("metadata.name={IDENTITY_NAMESPACE}")));
    }
}
