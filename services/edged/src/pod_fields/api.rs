//! The types and fields of the Kubernetes API in use, read from its own types.
//!
//! A type passes its name and its fields to the deserializer that makes a value of it. The recorder is
//! a deserializer that writes both down, and gives every field a value, so that the types of all
//! fields are asked for, too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::field::{Effect, Field, Type};
use super::table::POD_SPEC;

/// The fields of each type, each with its own type if that has fields.
type Types = BTreeMap<&'static str, BTreeMap<&'static str, Option<&'static str>>>;

/// Every text that is recorded: also a time, so that times parse.
const TEXT: &str = "2026-01-01T00:00:00Z";

/// The types of a pod's spec in the API in use.
fn types_of_the_api() -> Types {
    let types = RefCell::default();
    PodSpec::deserialize(Recorder { types: &types, field: None }).expect("every value fits");
    types.into_inner()
}

/// Records the type of one field.
#[derive(Clone, Copy)]
struct Recorder<'a> {
    types: &'a RefCell<Types>,
    /// The field, and the type that has it.
    field: Option<(&'static str, &'static str)>,
}

/// The fields of a type, or one entry of a map.
struct Fields<'a> {
    recorder: Recorder<'a>,
    of: Option<&'static str>,
    rest: std::slice::Iter<'static, &'static str>,
}

/// The only item of a list.
struct Item<'a>(Option<Recorder<'a>>);

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut types = self.types.borrow_mut();
        if let Some((of, field)) = self.field {
            types.entry(of).or_default().insert(field, Some(name));
        }
        let known = types.entry(name).or_default();
        for field in fields {
            known.entry(field).or_insert(None);
        }
        drop(types);
        visitor.visit_map(Fields { recorder: self, of: Some(name), rest: fields.iter() })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { recorder: self, of: None, rest: ["key"].iter() })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Item(Some(self)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(TEXT)
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.rest.next() else { return Ok(None) };
        if let Some(of) = self.of {
            self.recorder.field = Some((of, name));
        }
        let name: StrDeserializer<'_, Error> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.recorder)
    }
}

impl<'de> SeqAccess<'de> for Item<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|recorder| seed.deserialize(recorder)).transpose()
    }
}

/// Every type of the table, with the type that leads to it first.
pub(super) fn types_of_the_table() -> Vec<&'static Type> {
    let mut types: Vec<&'static Type> = vec![&POD_SPEC];
    let mut at = 0;
    while let Some(of) = types.get(at) {
        for field in of.fields {
            if let Some(of) = field.of
                && !types.iter().any(|known| known.name == of.name)
            {
                types.push(of);
            }
        }
        at += 1;
    }
    types
}

/// Whether the field's own fields may be missing from the table: no runtime honours any of them, all runtimes do the
/// same with it as a whole, or the cluster acts on it.
fn is_decided_as_a_whole(field: &Field) -> bool {
    field.is_of_cluster
        || field
            .gaps
            .iter()
            .flatten()
            .any(|gap| matches!(gap.effect, Effect::Refused | Effect::Noted))
}

#[test]
fn the_table_has_every_field_of_the_api_in_use_and_no_other() {
    let api = types_of_the_api();
    assert!(api.len() > 80, "{} types", api.len());
    for of in types_of_the_table() {
        let fields = api.get(of.name).unwrap_or_else(|| panic!("the API has no {}", of.name));
        let names: Vec<&str> = of.fields.iter().map(|field| field.name).collect();
        let wanted: Vec<&str> = fields.keys().copied().collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, wanted, "the fields of {}", of.name);
        for field in of.fields {
            let place = format!("{}.{}", of.name, field.name);
            match (field.of, fields[field.name]) {
                (Some(of), found) => assert_eq!(found, Some(of.name), "{place}"),
                (None, Some(found)) => assert!(
                    is_decided_as_a_whole(field),
                    "{place} is honoured: list the fields of {found}, too"
                ),
                (None, None) => {}
            }
        }
    }
}
