//! Which objects the source takes.

/// The label of edge nodes, as KubeEdge and kubeadm know it.
pub const EDGE_NODES: &str = "node-role.kubernetes.io/edge";

/// Which objects a [`KubernetesSource`](crate::KubernetesSource) takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// The label selector of edge nodes.
    pub node_selector: String,
    /// The label selector of Services, Endpoints and EndpointSlices; `None`: all.
    pub service_selector: Option<String>,
    /// Whether Endpoints are taken besides EndpointSlices.
    pub endpoints: bool,
    /// Whether the objects of another cluster replace those in the log.
    pub allow_other_cluster: bool,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            node_selector: EDGE_NODES.to_owned(),
            service_selector: None,
            endpoints: false,
            allow_other_cluster: false,
        }
    }
}

/// The requirement of a label selector that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{requirement:?} is no requirement of a label selector; write KEY, !KEY, KEY=VALUE, KEY!=VALUE, \
     KEY in (A,B) or KEY notin (A,B), separated by commas"
)]
pub struct SelectorError {
    /// The requirement.
    pub requirement: String,
}

/// Checks that an API server can parse a label selector.
///
/// # Errors
/// The first requirement that does not parse.
pub fn check_selector(selector: &str) -> Result<(), SelectorError> {
    for requirement in requirements(selector) {
        let requirement = requirement.trim();
        if !is_requirement(requirement) {
            return Err(SelectorError { requirement: requirement.to_owned() });
        }
    }
    Ok(())
}

/// The parts of a selector between the commas that are in no parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    parts
}

fn is_requirement(text: &str) -> bool {
    if let Some(key) = text.strip_prefix('!') {
        return is_key(key.trim());
    }
    for operator in ["!=", "==", "="] {
        if let Some((key, value)) = text.split_once(operator) {
            return is_key(key.trim()) && is_value(value.trim());
        }
    }
    let mut words = text.splitn(2, char::is_whitespace);
    let (key, rest) = (words.next().unwrap_or_default(), words.next().map(str::trim));
    match rest {
        None => is_key(key),
        Some(rest) => {
            let values = rest.strip_prefix("notin").or_else(|| rest.strip_prefix("in"));
            let values = values.and_then(|values| {
                values.trim().strip_prefix('(').and_then(|values| values.strip_suffix(')'))
            });
            is_key(key)
                && values.is_some_and(|values| values.split(',').all(|one| is_value(one.trim())))
        }
    }
}

/// A label's key: a name of at most 63 characters, after an optional prefix that is a DNS subdomain.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(a, b)| (Some(a), b));
    let is_prefix = |prefix: &str| headwater_event::name::check_dns1123_subdomain(prefix).is_ok();
    prefix.is_none_or(is_prefix) && !name.is_empty() && is_value(name)
}

/// A label's value: empty, or at most 63 letters, digits, `-`, `_` and `.`, at both ends a letter or
/// digit.
fn is_value(value: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && value.chars().all(is_inner)
        && is_end(value.chars().next())
        && is_end(value.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_those_of_the_api() {
        for right in [
            EDGE_NODES,
            "a=b",
            "a = b , !c",
            "a==b",
            "a!=b",
            "a=",
            "zone in (a, b),x.example/tier notin (c)",
            "a in ()",
        ] {
            assert_eq!(check_selector(right), Ok(()), "{right:?}");
        }
        for wrong in
            ["", "a,", "a b", "a=b=c", "a in b", "/a", "a/b/c", "-a", "a=(b)", "ä", "!", "=b"]
        {
            assert!(check_selector(wrong).is_err(), "{wrong:?}");
        }
        let error = check_selector("a=b, zone near (c)").expect_err("no such operator");
        assert!(error.to_string().starts_with("\"zone near (c)\" is no requirement"), "{error}");
    }
}
