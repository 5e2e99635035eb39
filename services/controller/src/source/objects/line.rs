//! The lines of the objects socket: requests of a client, and the responses.

use headwater_event::ResourceKey;
use headwater_object::Object;
use headwater_telemetry::error_chain;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::source::manifest::origin::remove_origin;
use crate::source::{Cause, SourceKind};

/// A request of a client.
#[derive(Debug)]
pub enum Request {
    /// The object came or changed.
    Apply(Box<Object>, Cause),
    /// The object was deleted.
    Delete {
        /// Its key.
        key: ResourceKey,
        /// Its UID, if an object with another UID is to stay.
        uid: Option<String>,
        /// Where the change came from.
        cause: Cause,
    },
}

/// A line of a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    object: Option<Value>,
    delete: Option<ResourceKey>,
    uid: Option<String>,
    intended_time: Option<Timestamp>,
    traceparent: Option<String>,
}

/// A line of the server.
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
    /// The client has sent its last line.
    Done {
        /// How many lines the client sent.
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
/// Why the line is refused, in words for the client.
pub fn read_line(line: &[u8]) -> Result<Request, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Line { object, delete, uid, intended_time, traceparent } = line;
    let cause = Cause { intended_time, traceparent, source: SourceKind::OBJECTS };
    match (object, delete) {
        (Some(mut value), None) if uid.is_none() => {
            // An object that was copied out of Headwater may name its manifest.
            remove_origin(&mut value);
            let object = Object::from_value(value).map_err(|error| error_chain(&error))?;
            Ok(Request::Apply(Box::new(object), cause))
        }
        (Some(_), None) => {
            Err("uid belongs to delete; the uid of an object is in its metadata".to_owned())
        }
        (None, Some(key)) => Ok(Request::Delete { key, uid, cause }),
        _ => Err("a line has either object or delete".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_command() {
        let object = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}"#;
        let time = r#""intended_time": "2026-01-31T12:00:00.000123Z""#;
        match read_line(
            format!(r#"{{"object": {object}, {time}, "traceparent": "00-1-2-01"}}"#).as_bytes(),
        ) {
            Ok(Request::Apply(object, cause)) => {
                assert_eq!(object.key().as_str(), "default/secret/s");
                let intended = cause.intended_time.expect("given");
                assert_eq!(intended.as_microsecond() % 1_000_000, 123);
                assert_eq!(cause.source, SourceKind::OBJECTS);
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
