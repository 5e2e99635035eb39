//! The line of a field: a document that has findings is parsed once more, with the places of its
//! fields.

use std::fmt;

use headwater_object::fields::{FieldPath, PathStep};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::parse::options;

/// A value with the lines of its fields.
enum LocatedValue {
    /// The fields, each with its name and line.
    Map(Vec<(String, u64, LocatedValue)>),
    /// The items of a list.
    List(Vec<LocatedValue>),
    /// A value without fields.
    Scalar,
}

/// The lines of the fields of a document's text.
pub(crate) struct FieldLines {
    documents: Vec<LocatedValue>,
    first_line: u64,
}

impl FieldLines {
    /// Parses `text`, which begins at line `first_line` of its file. A text that does not parse
    /// again, such as JSON with tabs, has no lines.
    pub(crate) fn of(text: &str, first_line: u64) -> Self {
        let documents =
            serde_saphyr::from_multiple_with_options(text, options(DuplicateKeyPolicy::LastWins));
        Self { documents: documents.unwrap_or_default(), first_line }
    }

    /// Returns the line in the file of the field at `path` of the document number `at` in the text,
    /// else of the innermost field around it that has a line.
    pub(crate) fn line(&self, at: usize, path: &FieldPath) -> Option<u64> {
        let mut value = self.documents.get(at)?;
        let mut found = None;
        for step in &path.0 {
            let inner = match (step, value) {
                (PathStep::Field(name), LocatedValue::Map(fields)) => {
                    // Of two equal keys the last one counts.
                    fields.iter().rfind(|(known, ..)| known == name).map(|(_, line, value)| {
                        if *line > 0 {
                            found = Some(*line);
                        }
                        value
                    })
                }
                (PathStep::Item(item), LocatedValue::List(items)) => items.get(*item),
                _ => None,
            };
            let Some(inner) = inner else { break };
            value = inner;
        }
        found.map(|line| self.first_line + line - 1)
    }
}

impl<'de> Deserialize<'de> for LocatedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LocatedVisitor)
    }
}

struct LocatedVisitor;

/// Methods for values without fields.
macro_rules! scalars {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: serde::de::Error>(self, _: $type) -> Result<LocatedValue, E> {
            Ok(LocatedValue::Scalar)
        }
    )*};
}

impl<'de> Visitor<'de> for LocatedVisitor {
    type Value = LocatedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LocatedValue, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, LocatedValue>()? {
            fields.push((key.value, key.referenced.line(), value));
        }
        Ok(LocatedValue::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LocatedValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(LocatedValue::List(items))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<LocatedValue, D::Error> {
        LocatedValue::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<LocatedValue, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| LocatedValue::Scalar)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<LocatedValue, E> {
        Ok(LocatedValue::Scalar)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<LocatedValue, E> {
        Ok(LocatedValue::Scalar)
    }

    scalars! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> PathStep {
        PathStep::Field(name.to_owned())
    }

    #[test]
    fn a_field_has_its_own_line_in_the_file() {
        let text = "---\na: 1\nspec:\n  list:\n  - x: 1\n  - {y: 2,\n     z: 3}\n1: one\n";
        let lines = FieldLines::of(text, 11);
        let line = |path: Vec<PathStep>| lines.line(0, &FieldPath(path));
        assert_eq!(line(vec![field("a")]), Some(12));
        assert_eq!(line(vec![field("spec"), field("list")]), Some(14));
        let item = |at, name| vec![field("spec"), field("list"), PathStep::Item(at), field(name)];
        assert_eq!(line(item(0, "x")), Some(15));
        assert_eq!(line(item(1, "z")), Some(17));
        assert_eq!(line(item(1, "absent")), Some(14), "the innermost field around it");
        assert_eq!(line(vec![field("absent")]), None);
        assert_eq!(lines.line(1, &FieldPath(vec![field("a")])), None);
    }

    #[test]
    fn a_text_that_is_no_yaml_has_no_lines() {
        let lines = FieldLines::of("a: [", 1);
        assert_eq!(lines.line(0, &FieldPath(vec![field("a")])), None);
    }

    #[test]
    fn json_has_lines_too() {
        let lines = FieldLines::of("{\n \"a\": {\n  \"b\": 1}}", 5);
        assert_eq!(lines.line(0, &FieldPath(vec![field("a"), field("b")])), Some(7));
    }
}
