//! A deserializer that compares the fields of a value with those of the type that reads it.

use std::cell::RefCell;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Value, map};

use super::{FINDINGS_MAX, FieldFault, FieldFinding, FieldPath, PathStep, unknown};

/// What is found while a value is read.
#[derive(Default)]
struct Progress {
    /// The place that is being read; after an error, the place of the error.
    path: Vec<PathStep>,
    findings: Vec<FieldFinding>,
}

/// Reads one value.
#[derive(Clone, Copy)]
struct FieldReader<'de, 'p> {
    value: &'de Value,
    progress: &'p RefCell<Progress>,
}

/// Reads the fields of a value.
struct Entries<'de, 'p> {
    rest: map::Iter<'de>,
    value: Option<&'de Value>,
    progress: &'p RefCell<Progress>,
}

/// Reads the items of a list.
struct Items<'de, 'p> {
    rest: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
    progress: &'p RefCell<Progress>,
}

/// Reads `object` as a `T`, and returns what is wrong with its fields.
pub(super) fn read<T: DeserializeOwned>(object: &Value) -> Vec<FieldFinding> {
    let progress = RefCell::<Progress>::default();
    let outcome = T::deserialize(FieldReader { value: object, progress: &progress });
    let Progress { path, mut findings } = progress.into_inner();
    if let Err(error) = outcome {
        let reason = match object["kind"].as_str() {
            // The usual reason quotes the value.
            Some("Secret") => "not the type of the Kubernetes API (data is base64)".to_owned(),
            _ => error.to_string(),
        };
        findings.push(FieldFinding { path: FieldPath(path), fault: FieldFault::Misfit { reason } });
    }
    findings.truncate(FINDINGS_MAX);
    findings
}

impl Progress {
    fn note_unknown(&mut self, name: &str, known: &'static [&'static str]) {
        if self.findings.len() < FINDINGS_MAX {
            let mut path = self.path.clone();
            path.push(PathStep::Field(name.to_owned()));
            self.findings.push(unknown(FieldPath(path), name, known));
        }
    }
}

impl<'de> FieldReader<'de, '_> {
    /// Reads the value one step further in. An error leaves the step in the path.
    fn read_inside<S: DeserializeSeed<'de>>(
        self,
        step: PathStep,
        seed: S,
    ) -> Result<S::Value, Error> {
        self.progress.borrow_mut().path.push(step);
        let value = seed.deserialize(self)?;
        self.progress.borrow_mut().path.pop();
        Ok(value)
    }
}

/// Methods that read a value as it is.
macro_rules! read_as_it_is {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.value.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for FieldReader<'de, '_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Object(entries) = self.value else {
            return self.value.deserialize_struct(name, fields, visitor);
        };
        for name in entries.keys().filter(|name| !fields.contains(&name.as_str())) {
            self.progress.borrow_mut().note_unknown(name, fields);
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(entries) => {
                let rest = entries.iter();
                visitor.visit_map(Entries { rest, value: None, progress: self.progress })
            }
            other => other.deserialize_map(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => {
                let rest = items.iter().enumerate();
                visitor.visit_seq(Items { rest, progress: self.progress })
            }
            other => other.deserialize_seq(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_tuple_struct(name, length, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    read_as_it_is! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit
        deserialize_identifier deserialize_ignored_any
    }
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        self.progress.borrow_mut().path.push(PathStep::Field(name.clone()));
        seed.deserialize(BorrowedStrDeserializer::<Error>::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().unwrap_or(&Value::Null);
        let value = seed.deserialize(FieldReader { value, progress: self.progress })?;
        self.progress.borrow_mut().path.pop();
        Ok(value)
    }
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((at, value)) = self.rest.next() else { return Ok(None) };
        let reader = FieldReader { value, progress: self.progress };
        reader.read_inside(PathStep::Item(at), seed).map(Some)
    }
}
