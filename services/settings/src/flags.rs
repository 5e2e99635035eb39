//! The flags of a command line that were given.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// The flags that were given, by the settings that they set.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<String, Flag>);

#[derive(Clone, Debug)]
struct Flag {
    name: String,
    value: Value,
}

impl Flags {
    /// With the flag of the setting `key`, where it was given; its name is the setting's.
    #[must_use]
    pub fn with(self, key: &str, value: Option<impl Serialize>) -> Self {
        let value = value.and_then(|value| serde_json::to_value(value).ok());
        let given = value.map(|value| (key.to_owned(), key.replace('_', "-"), value));
        let given =
            given.as_ref().map(|(key, name, value)| (key.clone(), name.as_str(), value.clone()));
        self.all(given.into_iter().collect())
    }

    /// With a flag that is given or not, and takes no value.
    #[must_use]
    pub fn switch(self, key: &str, is_on: bool) -> Self {
        self.with(key, is_on.then_some(true))
    }

    /// With flags that were given: each with the setting's key, its own name, and the value.
    #[must_use]
    pub fn all(mut self, given: Vec<(String, &str, Value)>) -> Self {
        let given = given.into_iter();
        self.0.extend(given.map(|(key, name, value)| (key, Flag { name: name.to_owned(), value })));
        self
    }

    /// The name of the flag that set `key`, if one did.
    pub(crate) fn flag(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|flag| flag.name.as_str())
    }

    /// The values; a dot in a setting's name is a table.
    pub(crate) fn values(&self) -> Map<String, Value> {
        let mut values = Map::new();
        for (key, flag) in &self.0 {
            match key.split_once('.') {
                None => {
                    values.insert(key.clone(), flag.value.clone());
                }
                Some((table, name)) => {
                    let table = values.entry(table).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(table) = table {
                        table.insert(name.to_owned(), flag.value.clone());
                    }
                }
            }
        }
        values
    }
}
