//! Lines: what a client of the objects socket may say, and what it is answered.

use headwater_event::ResourceKey;
use headwater_object::Object;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::source::manifest::MANIFEST_ANNOTATION;
use crate::source::with_sources;
use crate::source::{Cause, SourceKind};

/// What a line asks for.
#[derive(Debug)]
pub enum Request {
    /// The object is this now.
    Apply(Box<Object>, Cause),
    /// The object is gone.
    Delete {
        /// Which.
        key: ResourceKey,
        /// Its UID, if only that one is meant.
        uid: Option<String>,
        /// Why.
        cause: Cause,
    },
}

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    object: Option<Value>,
    delete: Option<ResourceKey>,
    uid: Option<String>,
    intended_time: Option<Timestamp>,
    traceparent: Option<String>,
}

/// What is answered.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Response {
    /// A line was refused.
    Refused {
        /// Its number in the connection, from 1.
        line: u64,
        /// Why.
        error: String,
    },
    /// There will be no more lines.
    Done {
        /// How many there were.
        lines: u64,
        /// How many took effect.
        accepted: u64,
        /// How many were refused.
        refused: u64,
    },
    /// The connection is not served.
    Closed {
        /// Why.
        error: String,
    },
}

/// Reads a line.
///
/// # Errors
/// Why it is none, in words for the client.
pub fn read_line(line: &[u8]) -> Result<Request, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Line { object, delete, uid, intended_time, traceparent } = line;
    let cause = Cause { intended_time, traceparent, source: SourceKind::Objects };
    match (object, delete) {
        (Some(value), None) if uid.is_none() => {
            let object = Object::from_value(unowned(value)).map_err(|e| with_sources(&e))?;
            Ok(Request::Apply(Box::new(object), cause))
        }
        (Some(_), None) => Err("the uid of an object stands in its metadata".to_owned()),
        (None, Some(key)) => Ok(Request::Delete { key, uid, cause }),
        _ => Err("want either object or delete".to_owned()),
    }
}

/// An object that is copied out of Headwater may say which manifest it was from: not any more.
fn unowned(mut value: Value) -> Value {
    let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(MANIFEST_ANNOTATION);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_one_thing() {
        let object = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}"#;
        let time = r#""intended_time": "2026-01-31T12:00:00.000123Z""#;
        match read_line(
            format!(r#"{{"object": {object}, {time}, "traceparent": "00-1-2-01"}}"#).as_bytes(),
        ) {
            Ok(Request::Apply(object, cause)) => {
                assert_eq!(object.key().as_str(), "default/secret/s");
                let intended = cause.intended_time.expect("given");
                assert_eq!(intended.as_microsecond() % 1_000_000, 123);
                assert_eq!(cause.source, SourceKind::Objects);
                assert_eq!(cause.traceparent.as_deref(), Some("00-1-2-01"));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            read_line(br#"{"delete": "null/node/a", "uid": "u"}"#),
            Ok(Request::Delete { key, uid: Some(_), .. }) if key.name() == "a"
        ));
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"delete": "a/b"}"#,
            r#"{"delete": "a/b/c", "more": 1}"#,
            r#"{"delete": "a/b/c", "intended_time": "noon"}"#,
            &format!(r#"{{"object": {object}, "delete": "a/b/c"}}"#),
            &format!(r#"{{"object": {object}, "uid": "u"}}"#),
            r#"{"object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}}"#,
        ] {
            assert!(read_line(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
