//! Which objects a list selects, and where in the order of keys the next of them may be.

use std::collections::BTreeSet;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

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

    /// The keys behind `after`, or of all, that a search for the selected ones visits, at most `max`: each that is selected,
    /// and few others. `keys_from` returns the keys from a bound on, in order.
    pub(super) fn visited_keys<'k, K: Iterator<Item = &'k ResourceKey>>(
        &self,
        keys_from: impl Fn(Bound<&str>) -> K,
        after: Option<&ResourceKey>,
        max: usize,
    ) -> BTreeSet<ResourceKey> {
        let mut visited = BTreeSet::new();
        let mut start = after.map_or(Unbounded, |after| Excluded(after.as_str().to_owned()));
        'search: loop {
            for key in keys_from(start.as_ref().map(String::as_str)) {
                visited.insert(key.clone());
                if visited.len() == max {
                    return visited;
                }
                if !self.matches(key) {
                    let Some(next) = self.next_start(key) else { return visited };
                    start = Included(next);
                    continue 'search;
                }
            }
            return visited;
        }
    }

    /// The text at which a search goes on behind `key`, which is not selected: no key in between is selected. `None`: no
    /// key behind it is.
    fn next_start(&self, key: &ResourceKey) -> Option<String> {
        let namespace = key.namespace().unwrap_or(NULL_NAMESPACE);
        let is_behind = |start: &String| start.as_str() > key.as_str();
        let has_namespace = |other: &str| self.namespace.is_empty() || self.namespace == other;
        if !has_namespace(namespace) && namespace != NULL_NAMESPACE {
            let starts = [self.namespace, NULL_NAMESPACE].map(|next| format!("{next}/"));
            return starts.into_iter().filter(is_behind).min();
        }
        let (kind, behind) = if self.kind.is_empty() {
            (key.kind(), format!("{namespace}/{}{BEHIND_SLASH}", key.kind()))
        } else {
            (self.kind, format!("{namespace}{BEHIND_SLASH}"))
        };
        // An object in the namespace `null`, which the list does not have.
        if kind == key.kind() && !key.namespace().is_none_or(has_namespace) {
            return Some(behind);
        }
        let of_kind = format!("{namespace}/{kind}/{}", self.name);
        Some(Some(of_kind).filter(is_behind).unwrap_or(behind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn visited(keys: &BTreeSet<ResourceKey>, filter: &Filter<'_>) -> BTreeSet<ResourceKey> {
        let keys_from = |start: Bound<&str>| keys.range::<str, _>((start, Unbounded));
        filter.visited_keys(keys_from, None, usize::MAX)
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
            for key in keys.iter().filter(|key| !filter.matches(key)) {
                let next = filter.next_start(key);
                let goes_on = next.as_ref().is_none_or(|next| next.as_str() > key.as_str());
                prop_assert!(goes_on, "{filter:?} goes on from {key} at {next:?}");
            }
            let visited = visited(&keys, &filter);
            let found: Vec<_> = visited.iter().filter(|key| filter.matches(key)).collect();
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
