//! Lists and single objects, now or at an earlier version.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::api::{Api, Surroundings};
use crate::failure::Failure;
use crate::request::{Query, Target};
use crate::resource::Resource;
use crate::selector::Selectors;
use crate::store::{Objects, Place};

/// The place where a list goes on.
struct Token {
    /// The version of the list; `None`: any.
    version: Option<u64>,
    /// The path of the last object that was sent.
    after: String,
}

impl Api {
    /// One object.
    pub(crate) fn get(
        &self,
        target: &Target,
        query: &Query,
        around: &Surroundings,
    ) -> Result<Arc<Value>, Failure> {
        let place = target.place();
        let found = match query.version()? {
            Some(0) => {
                let objects = self.store.at(target.resource.plural, self.stale_version(around));
                objects.get(&place).cloned()
            }
            Some(version) if version > self.store.version() => {
                return Err(Failure::too_new(version, self.store.version()));
            }
            _ => self.store.get(&place).cloned(),
        };
        found.ok_or_else(|| Failure::not_found(target.resource, place.name()))
    }

    /// A list, or a page of it.
    pub(crate) fn list(
        &self,
        target: &Target,
        query: &Query,
        around: &Surroundings,
    ) -> Result<Arc<Value>, Failure> {
        let resource = target.resource;
        let selectors = target.selectors(query)?;
        check_match(query)?;
        let (version, after) = self.list_version(query, around)?;
        let objects = self.store.at(resource.plural, version);
        // A list that takes any version comes whole from a cache.
        let limit = if query.version == "0" { 0 } else { query.limit };
        let (items, rest) = page(&objects, &selectors, after.as_deref(), limit);
        let mut list = json!({
            "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": version.to_string()}, "items": items,
        });
        if let Some((last, remaining)) = rest {
            let token = Token { version: Some(version), after: last };
            list["metadata"]["continue"] = token.encode().into();
            // How many objects are left is known only without a selection.
            if selectors.are_empty() {
                list["metadata"]["remainingItemCount"] = remaining.into();
            }
        }
        Ok(Arc::new(list))
    }

    /// The version of a list, and the path after which it begins.
    fn list_version(
        &self,
        query: &Query,
        around: &Surroundings,
    ) -> Result<(u64, Option<String>), Failure> {
        let current = self.store.version();
        if !query.continue_token.is_empty() {
            if !matches!(query.version.as_str(), "" | "0") {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(why));
            }
            let token = Token::decode(&query.continue_token)
                .ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
            let version = token.version.unwrap_or(current);
            if version < self.store.compacted() {
                let next = Token { version: None, after: token.after };
                return Err(Failure::token_expired(next.encode()));
            }
            return Ok((version, Some(token.after)));
        }
        let Some(version) = query.version()? else { return Ok((current, None)) };
        if version == 0 {
            return Ok((self.stale_version(around), None));
        }
        if version > current {
            return Err(Failure::too_new(version, current));
        }
        // With a limit, a version without a word on how it is meant is meant exactly.
        let is_exact = match query.version_match.as_str() {
            "Exact" => true,
            "" => query.limit > 0,
            _ => false,
        };
        if !is_exact {
            return Ok((current, None));
        }
        if version < self.store.compacted() {
            return Err(Failure::compacted());
        }
        Ok((version, None))
    }

    fn stale_version(&self, around: &Surroundings) -> u64 {
        self.store.version().saturating_sub(around.stale_by).max(self.store.compacted())
    }
}

impl Target {
    /// Which objects a list or a watch of it is about.
    pub(crate) fn selectors(&self, query: &Query) -> Result<Selectors, Failure> {
        let namespace = self.namespace.as_deref();
        let fields = match &self.name {
            // A watch of one object.
            Some(name) => format!("metadata.name={name}"),
            None => query.fields.clone(),
        };
        Selectors::parse(self.resource, namespace, &query.labels, &fields)
    }
}

impl Token {
    fn encode(&self) -> String {
        let rv = self.version.map_or(-1, |version| i64::try_from(version).unwrap_or(i64::MAX));
        let text = json!({"v": "meta.k8s.io/v1", "rv": rv, "start": self.after});
        URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        let version = value["rv"].as_i64()?;
        Some(Self {
            version: u64::try_from(version).ok(),
            after: value["start"].as_str()?.to_owned(),
        })
    }
}

/// Checks how the version of a list is meant.
fn check_match(query: &Query) -> Result<(), Failure> {
    let options = Resource {
        group: "meta.k8s.io",
        plural: "listoptions",
        kind: "ListOptions",
        ..*Resource::find("", "configmaps").expect("config maps are served")
    };
    let field = "resourceVersionMatch";
    let forbidden = |why: &str| {
        let why = format!("Forbidden: {why}");
        Err(Failure::invalid(&options, "", field, "FieldValueForbidden", &why))
    };
    match query.version_match.as_str() {
        "" => Ok(()),
        _ if !query.continue_token.is_empty() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        _ if query.version.is_empty() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        "Exact" if query.version == "0" => {
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        "Exact" | "NotOlderThan" => Ok(()),
        other => {
            let why = format!(
                "Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
            );
            Err(Failure::invalid(&options, "", field, "FieldValueNotSupported", &why))
        }
    }
}

/// The objects of a page; and, if it is not the last, its last path and how many are left.
fn page(
    objects: &Objects,
    selectors: &Selectors,
    after: Option<&str>,
    limit: usize,
) -> (Vec<Value>, Option<(String, usize)>) {
    let first = objects.keys().next().map(|place| place.plural);
    let from = match (after, first) {
        (Some(after), Some(plural)) => Bound::Excluded(Place { plural, path: after.to_owned() }),
        _ => Bound::Unbounded,
    };
    let mut items = Vec::new();
    let mut last = String::new();
    let mut matching = objects.range((from, Bound::Unbounded));
    while let Some((place, object)) = matching.find(|(_, object)| selectors.match_object(object)) {
        if limit > 0 && items.len() == limit {
            let left = 1 + matching.filter(|(_, object)| selectors.match_object(object)).count();
            return (items, Some((last, left)));
        }
        items.push(item(object));
        last.clone_from(&place.path);
    }
    (items, None)
}

/// An object in a list, where its type is that of the list.
fn item(object: &Value) -> Value {
    let mut item = object.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}
