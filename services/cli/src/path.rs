//! Paths into an object, for `--sort-by` and `--field-selector`: the simple part of JSONPath,
//! `.spec.containers[0].image`, with or without braces.

use std::cmp::Ordering;

use serde_json::Value;

use crate::exit::Failure;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// A path into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// Parses a path. In a name, `\.` is a dot.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            Failure::Usage(format!(
                "{text:?} is not a path: {what}; write it like .metadata.name or \
                 .spec.volumes[0].name"
            ))
        };
        let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'));
        let inner = inner.ok_or_else(|| wrong("a brace is not closed"))?;
        let inner = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        let mut letters = inner.strip_prefix('.').unwrap_or(inner).chars().peekable();
        while letters.peek().is_some() {
            let mut field = String::new();
            while let Some(letter) = letters.next_if(|letter| !matches!(letter, '.' | '[')) {
                let escaped = letter == '\\';
                field.push(if escaped { letters.next().unwrap_or('\\') } else { letter });
            }
            if !field.is_empty() {
                if field.contains(['*', '?', '(', ']']) {
                    return Err(wrong("a step is a name or the number of an item"));
                }
                steps.push(Step::Field(field));
            }
            match letters.next() {
                Some('[') => {
                    let mut index = String::new();
                    while let Some(letter) = letters.next_if(|letter| *letter != ']') {
                        index.push(letter);
                    }
                    if letters.next().is_none() {
                        return Err(wrong("a bracket is not closed"));
                    }
                    let index = index.parse().map_err(|_| wrong("an index is not a number"))?;
                    steps.push(Step::Item(index));
                    letters.next_if_eq(&'.');
                }
                Some(_) if letters.peek().is_none() => return Err(wrong("it ends in a dot")),
                _ => {}
            }
        }
        if steps.is_empty() { Err(wrong("it is empty")) } else { Ok(Self(steps)) }
    }

    /// Returns the value at the path.
    pub(crate) fn of<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(object, |at, step| match step {
            Step::Field(field) => at.get(field),
            Step::Item(index) => at.get(index),
        })
    }

    /// Returns the value at the path as text; empty if there is none.
    pub(crate) fn text(&self, object: &Value) -> String {
        match self.of(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// Compares two values: numbers as numbers, others as text; a missing value comes first.
pub(crate) fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default())
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
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
    fn a_path_leads_to_a_value() {
        let pod =
            json!({"metadata": {"labels": {"a.b/c": "x"}}, "spec": {"c": [{"n": 1}, {"n": 2}]}});
        for (path, text) in [
            (".spec.c[1].n", "2"),
            ("{.spec.c[0].n}", "1"),
            ("spec.c[0]", "{\"n\":1}"),
            ("$.metadata.labels.a\\.b/c", "x"),
            (".spec.none", ""),
        ] {
            let parsed = Path::parse(path);
            assert_eq!(parsed.map(|path| path.text(&pod)).ok().as_deref(), Some(text), "{path}");
        }
        for wrong in ["", ".", "{.a", ".a[", ".a[x]", ".a.", ".items[*]", ".a[?(@.b)]"] {
            assert!(Path::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_ordered_as_numbers() {
        assert_eq!(compare(Some(&json!(9)), Some(&json!(10))), Ordering::Less);
        assert_eq!(compare(Some(&json!("b")), Some(&json!("a"))), Ordering::Greater);
        assert_eq!(compare(None, Some(&json!("a"))), Ordering::Less);
    }

    fn step() -> impl Strategy<Value = Step> {
        let field = prop_oneof!["[a-zA-Z_/-][a-zA-Z0-9_/.-]{0,8}", "[^*?(\\]]{1,6}"];
        prop_oneof![field.prop_map(Step::Field), any::<usize>().prop_map(Step::Item)]
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

    proptest! {
        #[test]
        fn a_path_that_is_written_is_read_as_the_same(steps in vec(step(), 1..6)) {
            let text = written(&steps);
            let read = Path::parse(&text).map_err(|_| TestCaseError::fail(text))?;
            prop_assert_eq!(read, Path(steps));
        }

        #[test]
        fn any_text_is_a_path_or_is_named(
            text in prop_oneof!["[a.\\[\\]{}$\\\\0-9*?(@)-]{0,12}", any::<String>()],
        ) {
            let object = json!({"a": [{"a": "x"}, 1], "metadata": {"name": "n"}});
            match Path::parse(&text) {
                Ok(path) => {
                    path.text(&object);
                    let again = Path::parse(&written(&path.0));
                    prop_assert_eq!(again.ok(), Some(path));
                }
                Err(Failure::Usage(error)) => {
                    prop_assert!(error.contains(&format!("{text:?}")), "{}", error)
                },
                Err(other) => prop_assert!(false, "not of usage: {other:?}"),
            }
        }
    }
}
