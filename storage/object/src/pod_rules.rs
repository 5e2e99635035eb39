//! The rules of a pod that the types of the API leave open: names and restart policies.
//!
//! A cluster checks them on every write. Objects from files and sockets are checked here before they
//! are published, and an edge checks what it receives, because another source may not have.

use std::collections::HashMap;
use std::fmt;

use serde_json::Value;

/// The lists of containers, in the order of their starts.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The first field of a pod that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The field, as `spec.containers[1].name`.
    pub path: String,
    /// The rule, and what to do.
    pub reason: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// Checks a pod whose fields have the types of the API.
///
/// # Errors
/// The first field that breaks a rule.
pub fn check(pod: &Value) -> Result<(), Misfit> {
    let spec = &pod["spec"];
    if list(spec, "containers").is_empty() {
        return misfit("spec.containers", "empty; a pod needs at least one container");
    }
    match text(&spec["restartPolicy"]) {
        "" | "Always" | "OnFailure" | "Never" => {}
        other => {
            let reason = format!("{other:?} is none; want Always, OnFailure or Never");
            return misfit("spec.restartPolicy", reason);
        }
    }
    let mut places: HashMap<&str, String> = HashMap::new();
    for field in LISTS {
        for (at, container) in list(spec, field).iter().enumerate() {
            let place = format!("spec.{field}[{at}]");
            check_restart_policy(field, container, &place)?;
            let name = text(&container["name"]);
            if name.is_empty() {
                return misfit(format!("{place}.name"), "missing; a container needs a name");
            }
            if let Some(first) = places.get(name) {
                let reason = format!("{first} has the name {name:?}, too; give each its own");
                return misfit(format!("{place}.name"), reason);
            }
            places.insert(name, place);
        }
    }
    Ok(())
}

fn check_restart_policy(field: &str, container: &Value, place: &str) -> Result<(), Misfit> {
    let reason = match (field, text(&container["restartPolicy"])) {
        (_, "") => return Ok(()),
        ("ephemeralContainers", _) => "an ephemeral container runs once, and has none".to_owned(),
        // KEP-5307.
        (_, "Always" | "OnFailure" | "Never") => return Ok(()),
        (_, other) => format!("{other:?} is none; want Always, OnFailure or Never"),
    };
    misfit(format!("{place}.restartPolicy"), reason)
}

fn misfit(path: impl Into<String>, reason: impl Into<String>) -> Result<(), Misfit> {
    Err(Misfit { path: path.into(), reason: reason.into() })
}

pub(crate) fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec[field].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reason(spec: Value) -> Option<String> {
        check(&json!({ "spec": spec })).err().map(|misfit| misfit.to_string())
    }

    #[test]
    fn a_name_is_the_name_of_one_container_of_any_kind() {
        let named = |name: &str| json!([{"name": name}]);
        let two = json!({"containers": [{"name": "a"}, {"name": "a"}]});
        assert_eq!(
            reason(two).as_deref(),
            Some(
                "spec.containers[1].name: spec.containers[0] has the name \"a\", too; give each \
                 its own"
            )
        );
        for other in ["initContainers", "ephemeralContainers"] {
            let mut spec = json!({"containers": named("a")});
            spec[other] = named("a");
            let reason = reason(spec.clone()).unwrap_or_else(|| panic!("{spec}"));
            assert!(reason.contains("has the name \"a\", too"), "{reason}");
            spec[other] = named("b");
            assert_eq!(check(&json!({ "spec": spec })), Ok(()));
        }
        let nameless = json!({"containers": [{"name": "a"}, {}]});
        assert!(reason(nameless).expect("refused").starts_with("spec.containers[1].name: missing"));
        assert!(reason(json!({})).expect("refused").starts_with("spec.containers: empty"));
    }

    #[test]
    fn restart_policies_are_those_of_the_api() {
        let pod = |policy: Value| json!({"restartPolicy": policy, "containers": [{"name": "a"}]});
        for right in [json!(null), json!("Always"), json!("OnFailure"), json!("Never")] {
            assert_eq!(reason(pod(right.clone())), None, "{right}");
        }
        assert_eq!(
            reason(pod(json!("always"))).as_deref(),
            Some("spec.restartPolicy: \"always\" is none; want Always, OnFailure or Never")
        );
        let container = |list: &str, policy: &str| {
            let mut spec = json!({"containers": [{"name": "a"}]});
            spec[list] = json!([{"name": "b", "restartPolicy": policy}]);
            reason(spec)
        };
        for list in ["containers", "initContainers"] {
            for right in ["Always", "OnFailure", "Never"] {
                assert_eq!(container(list, right), None, "{list} {right}");
            }
            let wrong = container(list, "Sometimes").expect("refused");
            assert!(wrong.starts_with(&format!("spec.{list}[0].restartPolicy: ")), "{wrong}");
        }
        assert!(container("ephemeralContainers", "Never").is_some());
    }
}
