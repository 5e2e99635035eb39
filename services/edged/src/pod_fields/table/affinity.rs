//! Where a pod may run. What places the pod decides it, before the pod reaches its node.

use super::super::field::Unless::Never;
use super::super::field::{Type, field, typed};
use super::ALL;

const PREFERENCE: &str = "a manifest folder places pods by demands only; a cluster's scheduler \
                          weighs preferences before the pod reaches its node";

const RELATION: &str = "a manifest folder places pods without regard to other pods; a cluster's \
                        scheduler weighs them before the pod reaches its node";

pub(super) static AFFINITY: Type = Type {
    name: "Affinity",
    fields: &[
        typed("nodeAffinity", &NODE_AFFINITY),
        field("podAffinity").noted(ALL, Never, RELATION),
        field("podAntiAffinity").noted(ALL, Never, RELATION),
    ],
};

static NODE_AFFINITY: Type = Type {
    name: "NodeAffinity",
    fields: &[
        field("preferredDuringSchedulingIgnoredDuringExecution").noted(ALL, Never, PREFERENCE),
        typed("requiredDuringSchedulingIgnoredDuringExecution", &NODE_SELECTOR),
    ],
};

static NODE_SELECTOR: Type =
    Type { name: "NodeSelector", fields: &[typed("nodeSelectorTerms", &NODE_SELECTOR_TERM)] };

static NODE_SELECTOR_TERM: Type = Type {
    name: "NodeSelectorTerm",
    fields: &[
        typed("matchExpressions", &NODE_SELECTOR_REQUIREMENT),
        typed("matchFields", &NODE_SELECTOR_REQUIREMENT),
    ],
};

static NODE_SELECTOR_REQUIREMENT: Type = Type {
    name: "NodeSelectorRequirement",
    fields: &[field("key"), field("operator"), field("values")],
};

pub(super) static TOLERATION: Type = Type {
    name: "Toleration",
    fields: &[
        field("effect"),
        field("key"),
        field("operator"),
        field("tolerationSeconds"),
        field("value"),
    ],
};

pub(super) const SPREAD: &str = RELATION;
