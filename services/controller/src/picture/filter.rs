//! Which objects a list selects, and where in the order of keys the next of them may be.

use headwater_event::ResourceKey;
use headwater_event::key::NULL_NAMESPACE;

/// The character behind `/` in the order of texts: `a0` is the first text behind all that begin with `a/`.
const BEHIND_SLASH: char = '0';

/// Selects objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Lower-case singular type; empty: every type.
    pub kind: &'a str,
    /// Empty: every namespace. Cluster-scoped objects are in every namespace.
    pub namespace: &'a str,
    /// Empty: every name.
    pub name: &'a str,
}

impl Filter<'_> {
    /// Whether the filter may select Nodes.
    pub(super) fn selects_nodes(&self) -> bool {
        self.kind.is_empty() || self.kind == "node"
    }

    /// Whether the filter selects `key`.
    pub fn matches(&self, key: &ResourceKey) -> bool {
        (self.kind.is_empty() || self.kind == key.kind())
            && (self.name.is_empty() || self.name == key.name())
            && (self.namespace.is_empty()
                || key.namespace().is_none_or(|namespace| namespace == self.namespace))
    }

    /// The text at which a search goes on behind `key`, which is not selected: no key in between is selected. `None`: no
    /// key behind it is.
    pub(super) fn next_start(&self, key: &ResourceKey) -> Option<String> {
        let namespace = key.namespace().unwrap_or(NULL_NAMESPACE);
        let is_behind = |start: &String| start.as_str() > key.as_str();
        let has_namespace = |other: &str| self.namespace.is_empty() || self.namespace == other;
        if !has_namespace(namespace) && namespace != NULL_NAMESPACE {
            let starts = [self.namespace, NULL_NAMESPACE].map(|next| format!("{next}/"));
            return starts.into_iter().filter(is_behind).min();
        }
        let behind_namespace = format!("{namespace}{BEHIND_SLASH}");
        let (kind, behind_kind) = if self.kind.is_empty() {
            (key.kind(), format!("{namespace}/{}{BEHIND_SLASH}", key.kind()))
        } else {
            (self.kind, behind_namespace)
        };
        // An object in the namespace `null`, which the list does not have.
        if kind == key.kind() && !key.namespace().is_none_or(has_namespace) {
            return Some(behind_kind);
        }
        let of_kind = format!("{namespace}/{kind}/{}", self.name);
        Some(Some(of_kind).filter(is_behind).unwrap_or(behind_kind))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The keys that a search visits.
    fn visited<'k>(keys: &'k BTreeSet<ResourceKey>, filter: &Filter<'_>) -> Vec<&'k ResourceKey> {
        let mut visited = Vec::new();
        let mut start = String::new();
        while let Some(key) = keys.iter().find(|key| key.as_str() >= start.as_str()) {
            visited.push(key);
            start = if filter.matches(key) {
                format!("{key}\0")
            } else {
                let Some(next) = filter.next_start(key) else { break };
                assert!(next.as_str() > key.as_str(), "{filter:?} goes on from {key} at {next}");
                next
            };
        }
        visited
    }

    fn key() -> impl Strategy<Value = ResourceKey> {
        // Names of namespaces and types that begin with others, and the characters around `/`.
        let text = "(a|a-|a-b|a0|b|null|nulls)/(node|pod|pod-x|pods|secret)/(a|b|b-c|z)";
        proptest::string::string_regex(text)
            .expect("a pattern")
            .prop_map(|text| text.parse().expect("well-formed"))
    }

    proptest! {
        #[test]
        fn a_search_finds_every_selected_key(
            keys in proptest::collection::btree_set(key(), 0..60),
            kind in "(|node|pod|secret|zz)",
            namespace in "(|a|a-b|null|zz)",
            name in "(|a|b|zz)",
        ) {
            let filter = Filter { kind: &kind, namespace: &namespace, name: &name };
            let found: Vec<_> =
                visited(&keys, &filter).into_iter().filter(|key| filter.matches(key)).collect();
            let expected: Vec<_> = keys.iter().filter(|key| filter.matches(key)).collect();
            prop_assert_eq!(found, expected, "{:?}", filter);
        }
    }

    #[test]
    fn a_search_passes_over_what_it_does_not_select() {
        let mut keys = BTreeSet::new();
        for namespace in ["alpha", "beta", "zeta"] {
            for kind in ["configmap", "pod", "secret"] {
                let texts = (0..1_000).map(|number| format!("{namespace}/{kind}/n{number}"));
                keys.extend(texts.map(|text| text.parse::<ResourceKey>().expect("well-formed")));
            }
        }
        keys.insert("null/node/gw-1".parse().expect("well-formed"));
        for (kind, namespace, name, selected) in [
            ("pod", "beta", "n7", 1),
            ("pod", "", "n7", 3),
            ("node", "", "", 1),
            ("node", "", "gw-1", 1),
            ("", "beta", "n7", 3),
            ("secret", "gamma", "", 0),
        ] {
            let filter = Filter { kind, namespace, name };
            let visited = visited(&keys, &filter);
            let found = visited.iter().filter(|key| filter.matches(key)).count();
            assert_eq!(found, selected, "{filter:?}");
            assert!(visited.len() <= selected + 10, "{filter:?} visits {}", visited.len());
        }
    }
}
