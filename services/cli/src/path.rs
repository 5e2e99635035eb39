//! Paths into an object, in kubectl's dialect of JSONPath: `.spec.containers[0].image`,
//! `.items[*].metadata.name`, `.status.conditions[?(@.type=="Ready")].status`, with or without braces.
//!
//! A path is translated into RFC 9535, which `serde_json_path` reads and evaluates. The dialects
//! differ in names: kubectl's may have any letter, and `\.` is a dot of a name.

mod translation;

use std::cmp::Ordering;

use alphanumeric_sort::compare_str;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::exit::Failure;

/// A path into an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<JsonPath>);

impl Path {
    /// Parses a path.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            Failure::Usage(format!(
                "{text:?} is not a path: {what}; write it like .metadata.name or \
                 .spec.volumes[0].name"
            ))
        };
        let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'));
        let inner = inner.ok_or_else(|| wrong("a brace is not closed"))?;
        let queries = translation::queries(inner).map_err(|what| wrong(&what))?;
        let queries = queries.iter().map(|query| JsonPath::parse(query)).collect::<Result<_, _>>();
        queries.map(Self).map_err(|error| wrong(&error.to_string()))
    }

    /// Returns the values at the path.
    pub(crate) fn all<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        self.0.iter().flat_map(|query| query.query(object).all()).collect()
    }

    /// Returns the first value at the path.
    pub(crate) fn of<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.all(object).into_iter().next()
    }

    /// Returns the first value at the path as text; empty if there is none.
    pub(crate) fn text(&self, object: &Value) -> String {
        match self.of(object) {
            None | Some(Value::Null) => String::new(),
            Some(value) => text(value),
        }
    }
}

/// A value as text: a string without quotes, anything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Compares two values: numbers as numbers, others as text with node-2 before node-10; a missing value
/// comes first.
pub(crate) fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default())
        }
        (Some(Value::String(a)), Some(Value::String(b))) => compare_str(a, b),
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => a.to_string().cmp(&b.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_its_values() {
        let pod = json!({
            "metadata": {"labels": {"a.b/c": "x", "tier": "front"}, "name": "web"},
            "spec": {"c": [{"n": 1, "k": "a"}, {"n": 2, "k": "b-c"}, {"n": 3}]},
        });
        for (path, expected) in [
            (".spec.c[1].n", json!([2])),
            ("{.spec.c[0].n}", json!([1])),
            ("spec.c[-1]", json!([{"n": 3}])),
            ("$.metadata.labels.a\\.b/c", json!(["x"])),
            (".metadata.labels['a\\.b/c']", json!(["x"])),
            (".metadata.labels['a.b/c']", json!(["x"])),
            (".spec.none", json!([])),
            (".spec.c[*].n", json!([1, 2, 3])),
            (".spec.c[0:2].n", json!([1, 2])),
            (".spec.c[-1:].n", json!([3])),
            (".spec.c[0,2].n", json!([1, 3])),
            (".spec.c[00,02].n", json!([1, 3])),
            (".spec.c[?(@.k==\"b-c\")].n", json!([2])),
            (".spec.c[?(@.n>=2)].n", json!([2, 3])),
            (".spec.c[?(@.k)].n", json!([1, 2])),
            ("..n", json!([1, 2, 3])),
            (".metadata.labels.*", json!(["x", "front"])),
            ("['metadata.name','spec.none']", json!(["web"])),
            ("@.metadata.name", json!(["web"])),
        ] {
            let parsed = Path::parse(path);
            let parsed = parsed.unwrap_or_else(|error| panic!("{path}: {error:?}"));
            assert_eq!(json!(parsed.all(&pod)), expected, "{path}");
        }
        for wrong in
            ["", ".", "{.a", ".a[", ".a[x]", ".a.", ".a[?(@.b]", ".a]", ".a(b)", ".a['b]", ".a[]"]
        {
            assert!(Path::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn values_are_ordered_as_people_order_them() {
        assert_eq!(compare(Some(&json!(9)), Some(&json!(10))), Ordering::Less);
        assert_eq!(compare(Some(&json!("b")), Some(&json!("a"))), Ordering::Greater);
        assert_eq!(compare(Some(&json!("n-2")), Some(&json!("n-10"))), Ordering::Less);
        assert_eq!(compare(None, Some(&json!("a"))), Ordering::Less);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Field(String),
        Item(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let field = prop_oneof!["[a-zA-Z_/-][a-zA-Z0-9_/.-]{0,8}", "[^*?()\\]{}@$'\"\\s]{1,6}"];
        prop_oneof![field.prop_map(Step::Field), (0..20_usize).prop_map(Step::Item)]
    }

    /// A path in its written form.
    fn written(steps: &[Step]) -> String {
        let step = |step: &Step| match step {
            Step::Field(field) => {
                let special = |letter| matches!(letter, '.' | '[' | '\\');
                let letters = field.chars().map(|letter| match special(letter) {
                    true => format!("\\{letter}"),
                    false => letter.to_string(),
                });
                format!(".{}", letters.collect::<String>())
            }
            Step::Item(item) => format!("[{item}]"),
        };
        format!("{{{}}}", steps.iter().map(step).collect::<String>())
    }

    /// An object that has `leaf` at the end of the steps.
    fn object(steps: &[Step], leaf: Value) -> Value {
        steps.iter().rev().fold(leaf, |inner, step| match step {
            Step::Field(field) => json!({field: inner}),
            Step::Item(item) => {
                let mut list = vec![Value::Null; *item];
                list.push(inner);
                Value::Array(list)
            }
        })
    }

    proptest! {
        #[test]
        fn a_path_that_is_written_leads_where_it_is_written_to(steps in vec(step(), 1..6)) {
            let text = written(&steps);
            let read = Path::parse(&text).map_err(|_| TestCaseError::fail(text))?;
            let object = object(&steps, json!("leaf"));
            prop_assert_eq!(read.all(&object), [&json!("leaf")]);
        }

        #[test]
        fn any_text_is_a_path_or_is_named(
            text in prop_oneof!["[a.\\[\\]{}$\\\\0-9*?(@)'\",:=-]{0,12}", any::<String>()],
        ) {
            let object = json!({"a": [{"a": "x"}, 1], "metadata": {"name": "n"}});
            match Path::parse(&text) {
                Ok(path) => drop(path.text(&object)),
                Err(Failure::Usage(error)) => {
                    prop_assert!(error.contains(&format!("{text:?}")), "{}", error)
                },
                Err(other) => prop_assert!(false, "not of usage: {other:?}"),
            }
        }
    }
}
