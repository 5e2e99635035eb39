//! Label and field selectors.

use serde_json::Value;

use crate::failure::Failure;
use crate::resource::Resource;

/// Which objects of a resource a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

/// What must be true of the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selectors {
    pub(crate) fn parse(
        resource: &Resource,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Failure> {
        let unable = |why: &str| {
            Failure::bad_request(format!(
                "Unable to find {:?} that match label selector {labels:?}, field selector {fields:?}: \
                 {why}",
                resource_text(resource)
            ))
        };
        let parsed_labels = parse(labels).ok_or_else(|| unable("unable to parse requirement"))?;
        let parsed_fields = parse(fields).ok_or_else(|| unable("invalid selector"))?;
        for Requirement { key, .. } in &parsed_fields {
            let is_general =
                key == "metadata.name" || (key == "metadata.namespace" && resource.is_namespaced);
            if !is_general && !resource.fields.contains(&key.as_str()) {
                return Err(unable(&format!("field label not supported: {key}")));
            }
        }
        let namespace = namespace.map(ToOwned::to_owned);
        Ok(Self { namespace, labels: parsed_labels, fields: parsed_fields })
    }

    /// Whether they leave out objects of the namespace.
    pub(crate) fn are_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn match_object(&self, object: &Value) -> bool {
        let namespace = self.namespace.as_deref();
        namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
            && self.labels.iter().all(|one| one.is_met_by(label(object, &one.key)))
            // A field that is absent has the empty value.
            && self.fields.iter().all(|one| one.is_met_by(Some(&field(object, &one.key))))
    }
}

impl Requirement {
    fn is_met_by(&self, value: Option<&str>) -> bool {
        let is_in =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
        match &self.condition {
            Condition::Exists => value.is_some(),
            Condition::Absent => value.is_none(),
            Condition::In(values) => is_in(values),
            Condition::NotIn(values) => !is_in(values),
        }
    }
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

fn field(object: &Value, path: &str) -> String {
    let value = path.split('.').fold(object, |value, part| &value[part]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.unschedulable" => "false".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn resource_text(resource: &Resource) -> String {
    format!("{}, Resource={}", join_group(resource.group), resource.plural)
}

fn join_group(group: &str) -> String {
    format!("{group}/{}", crate::resource::VERSION)
}

/// The requirements of a selector; `None` where one does not parse.
fn parse(selector: &str) -> Option<Vec<Requirement>> {
    let (mut requirements, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    let ends = selector.char_indices().chain([(selector.len(), ',')]);
    for (at, letter) in ends {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 || at == selector.len() => {
                let text = selector[start..at].trim();
                if !text.is_empty() {
                    requirements.push(requirement(text)?);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    Some(requirements)
}

fn requirement(text: &str) -> Option<Requirement> {
    let make = |key: &str, condition| {
        let key = key.trim().to_owned();
        (!key.is_empty() && !key.contains(char::is_whitespace))
            .then_some(Requirement { key, condition })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Condition::Absent);
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Condition::NotIn(one(value)));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, Condition::In(one(value)));
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else {
        return make(text, Condition::Exists);
    };
    let (is_in, rest) = match rest.trim().strip_prefix("notin") {
        Some(rest) => (false, rest),
        None => (true, rest.trim().strip_prefix("in")?),
    };
    let values = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    make(key, if is_in { Condition::In(values) } else { Condition::NotIn(values) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let pod = Resource::find("", "pods").expect("served");
        let object = json!({
            "metadata": {"name": "p", "labels": {"a": "b", "empty": ""}},
            "spec": {"nodeName": "n"},
        });
        Selectors::parse(pod, None, labels, fields).expect("a selector").match_object(&object)
    }

    #[test]
    fn requirements_are_met_or_not() {
        for right in [
            "",
            "a",
            "a=b",
            "a==b,!c",
            "a in (x, b),empty",
            "c notin (a)",
            "c!=a",
            "empty=",
            "a!=c",
        ] {
            assert!(matches(right, ""), "{right:?}");
        }
        for wrong in ["!a", "c", "a=c", "a in (c)", "a notin (b,c)", "a!=b", "a,c"] {
            assert!(!matches(wrong, ""), "{wrong:?}");
        }
        assert!(matches("", "spec.nodeName!=,metadata.name=p,status.phase="));
        assert!(!matches("", "spec.nodeName="));
    }

    #[test]
    fn a_field_that_is_not_served_is_refused() {
        let pod = Resource::find("", "pods").expect("served");
        let error = Selectors::parse(pod, None, "", "spec.image=x").expect_err("not served");
        let text = error.status()["message"].to_string();
        assert!(text.contains("field label not supported: spec.image"), "{text}");
    }
}
