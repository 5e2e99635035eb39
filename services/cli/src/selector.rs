//! Selectors: by label (`-l`) and by field (`--field-selector`), as kubectl takes them.

use serde_json::Value;

use crate::comma_list;
use crate::exit::Failure;
use crate::path::Path;

/// One condition on the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Label {
    /// The label exists with one of these values.
    In(String, Vec<String>),
    /// The label is missing, or has another value.
    NotIn(String, Vec<String>),
    Present(String),
    Absent(String),
}

/// Selects the objects that meet every condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Label>,
    /// A path, a value, and whether the field must equal it or differ from it.
    fields: Vec<(Path, String, bool)>,
}

impl Selector {
    /// Parses both selectors.
    pub(crate) fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, Failure> {
        let labels = match labels {
            None => Vec::new(),
            Some(text) => comma_list::split(text, ['(', ')'])
                .iter()
                .map(|one| label(text, one))
                .collect::<Result<_, _>>()?,
        };
        let fields = match fields {
            None => Vec::new(),
            Some(text) => text.split(',').map(|one| field(text, one)).collect::<Result<_, _>>()?,
        };
        Ok(Self { labels, fields })
    }

    /// Whether it selects every object.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it selects `object`.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let value = |label: &str| object["metadata"]["labels"].get(label).and_then(Value::as_str);
        let is_met = |label: &Label| match label {
            Label::In(label, values) => {
                value(label).is_some_and(|value| values.iter().any(|one| one == value))
            }
            Label::NotIn(label, values) => {
                value(label).is_none_or(|value| values.iter().all(|one| one != value))
            }
            Label::Present(label) => value(label).is_some(),
            Label::Absent(label) => value(label).is_none(),
        };
        self.labels.iter().all(is_met)
            && self.fields.iter().all(|(path, value, is)| (path.text(object) == *value) == *is)
    }
}

fn label(selector: &str, condition: &str) -> Result<Label, Failure> {
    let wrong = |what: &str| {
        Failure::Usage(format!(
            "wrong label selector {selector:?}: {what}; write a=b, a!=b, `a in (b,c)`, \
             `a notin (b)`, a or !a"
        ))
    };
    let name = |text: &str| {
        let text = text.trim();
        let is_name = !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_' | '-'));
        if is_name { Ok(text.to_owned()) } else { Err(wrong(&format!("{text:?} is not a label"))) }
    };
    let condition = condition.trim();
    if let Some((label, values)) = condition.split_once('(') {
        let values =
            values.strip_suffix(')').ok_or_else(|| wrong("a parenthesis is not closed"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = label.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(label), Some("in"), None) => Ok(Label::In(name(label)?, values)),
            (Some(label), Some("notin"), None) => Ok(Label::NotIn(name(label)?, values)),
            _ => Err(wrong("before a parenthesis there must be `in` or `notin`")),
        };
    }
    if let Some((label, value)) = condition.split_once("!=") {
        return Ok(Label::NotIn(name(label)?, vec![value.trim().to_owned()]));
    }
    if let Some((label, value)) = condition.split_once("==").or_else(|| condition.split_once('=')) {
        return Ok(Label::In(name(label)?, vec![value.trim().to_owned()]));
    }
    match condition.strip_prefix('!') {
        Some(label) => Ok(Label::Absent(name(label)?)),
        None => Ok(Label::Present(name(condition)?)),
    }
}

fn field(selector: &str, condition: &str) -> Result<(Path, String, bool), Failure> {
    let (path, value, is) = match condition.split_once("!=") {
        Some((path, value)) => (path, value, false),
        None => match condition.split_once("==").or_else(|| condition.split_once('=')) {
            Some((path, value)) => (path, value, true),
            None => {
                return Err(Failure::Usage(format!(
                    "wrong field selector {selector:?}: write .spec.nodeName=node-1 or \
                     .status.phase!=Running"
                )));
            }
        },
    };
    Ok((Path::parse(path.trim())?, value.trim().to_owned(), is))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_selected_as_kubectl_selects_them() {
        let pod = json!({
            "metadata": {"labels": {"app": "web", "tier": "front"}},
            "spec": {"nodeName": "node-1"},
        });
        for (labels, fields, matches) in [
            (Some("app=web"), None, true),
            (Some("app==web,tier!=back"), None, true),
            (Some("app in (db, web),tier notin (back,mid)"), None, true),
            (Some("app,!none"), None, true),
            (Some("app=db"), None, false),
            (Some("!app"), None, false),
            (Some("none!=x"), None, true),
            (None, Some("spec.nodeName=node-1"), true),
            (None, Some(".spec.nodeName!=node-1"), false),
            (Some("app=web"), Some("spec.nodeName=node-2"), false),
            (None, None, true),
        ] {
            let selector = Selector::parse(labels, fields).expect("well-formed");
            assert_eq!(selector.matches(&pod), matches, "{labels:?} {fields:?}");
        }
    }

    #[test]
    fn a_malformed_selector_is_named() {
        for (labels, fields) in [
            (Some("a in (b"), None),
            (Some("a of (b)"), None),
            (Some("=b"), None),
            (Some("a b"), None),
            (Some(""), None),
            (None, Some("spec.nodeName")),
            (None, Some(".a[x]=b")),
        ] {
            let error = Selector::parse(labels, fields).expect_err("malformed");
            assert!(matches!(error, Failure::Usage(_)), "{labels:?} {fields:?}");
        }
    }

    fn condition() -> impl Strategy<Value = Label> {
        let name = || "[a-zA-Z0-9._/-]{1,12}";
        let values = || vec("[a-zA-Z0-9._-]{0,8}", 1..4);
        prop_oneof![
            (name(), values()).prop_map(|(name, values)| Label::In(name, values)),
            (name(), values()).prop_map(|(name, values)| Label::NotIn(name, values)),
            name().prop_map(Label::Present),
            name().prop_map(Label::Absent),
        ]
    }

    fn written(label: &Label, space: &str) -> String {
        match label {
            Label::In(name, values) => match values.as_slice() {
                [value] => format!("{space}{name}{space}={space}{value}"),
                values => format!("{name} in ({space}{})", values.join(&format!("{space},"))),
            },
            Label::NotIn(name, values) => match values.as_slice() {
                [value] => format!("{name}!={value}{space}"),
                values => format!("{space}{name} notin ({})", values.join(&format!(",{space}"))),
            },
            Label::Present(name) => format!("{space}{name}"),
            Label::Absent(name) => format!("!{name}"),
        }
    }

    proptest! {
        #[test]
        fn a_label_selector_that_is_written_is_read_as_the_same(
            labels in vec(condition(), 1..5),
            space in " {0,2}",
        ) {
            let each: Vec<String> = labels.iter().map(|label| written(label, &space)).collect();
            let text = each.join(",");
            let read = Selector::parse(Some(&text), None);
            let read = read.map_err(|_| TestCaseError::fail(text))?;
            prop_assert_eq!(read.labels, labels);
        }

        #[test]
        fn a_field_selector_that_is_written_is_read_as_the_same(
            path in "\\.[a-z]{1,8}(\\.[a-zA-Z]{1,8}|\\[[0-9]{1,3}\\])?",
            value in "[a-zA-Z0-9._/:-]{0,12}",
            is in any::<bool>(),
        ) {
            let text = format!("{path}{}{value}", if is { "=" } else { "!=" });
            let read = Selector::parse(None, Some(&text));
            let read = read.map_err(|_| TestCaseError::fail(text))?;
            let path = Path::parse(&path).map_err(|_| TestCaseError::fail("a path"))?;
            prop_assert_eq!(read.fields, [(path, value, is)]);
        }

        #[test]
        fn any_text_is_a_selector_or_is_named(
            text in prop_oneof!["[ab.,=!() inot]{0,16}", any::<String>()],
        ) {
            let object = json!({"a": "b", "metadata": {"labels": {"a": "b"}}});
            for selector in
                [Selector::parse(Some(&text), None), Selector::parse(None, Some(&text))]
            {
                match selector {
                    Ok(selector) => {
                        selector.matches(&object);
                        selector.matches(&json!(null));
                    }
                    Err(Failure::Usage(error)) => prop_assert!(!error.is_empty()),
                    Err(other) => prop_assert!(false, "not of usage: {other:?}"),
                }
            }
        }
    }
}
