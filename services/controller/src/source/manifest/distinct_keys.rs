//! Keys twice in a JSON map: a check beside the parser, which lets the last one count.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value in which no map has a key twice.
struct DistinctKeys;

/// A key that its map has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    /// In words, as of YAML.
    pub(crate) text: String,
    /// The line of the second one in the text, from 1.
    pub(crate) line: u64,
}

/// The first key that a map in `text` has twice. The text is JSON.
pub(crate) fn duplicate_key(text: &str) -> Option<DuplicateKey> {
    let error = serde_json::from_str::<DistinctKeys>(text).err()?;
    let line = u64::try_from(error.line()).unwrap_or(u64::MAX).max(1);
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    Some(DuplicateKey { text: text.to_owned(), line })
}

impl<'de> Deserialize<'de> for DistinctKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

/// Methods for values without keys.
macro_rules! scalars {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: Error>(self, _: $type) -> Result<Self, E> {
            Ok(self)
        }
    )*};
}

impl<'de> Visitor<'de> for DistinctKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("duplicate mapping key: {key}")));
            }
            keys.insert(key);
            map.next_value::<Self>()?;
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    scalars! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_two_equal_keys_is_named_with_its_line() {
        let found = |text| duplicate_key(text).map(|found| (found.text, found.line));
        let named = |key: &str, line| Some((format!("duplicate mapping key: {key}"), line));
        assert_eq!(found("{\"a\": 1,\n \"a\": 2}"), named("a", 2));
        assert_eq!(found("{\"l\": [1, {\"x\": {\n\"b\": null,\n\"b\":\n\n1}}]}"), named("b", 3));
        assert_eq!(found("{\"a\": {\"b\": 1}, \"b\": {\"a\": [true, 1.5, -1, \"a\"]}}"), None);
        assert_eq!(found("{\"a\": 1, \"\\u0061\": 2}"), named("a", 1), "the same key, escaped");
    }
}
