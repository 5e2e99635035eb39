//! Objects, as every source hands them in.

use headwater_object::status::same_status;
use headwater_object::{Object, ObjectType};

/// An object's JSON; a status's JSON; the name of a type.
pub fn object(bytes: &[u8]) {
    assert!(same_status(bytes, bytes), "a status is another than itself");
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(named) = ObjectType::named(text)
    {
        assert_eq!(ObjectType::named(named.name).map(|again| again.name), Some(named.name));
    }
    let Ok(object) = Object::from_json(bytes) else { return };
    let again = Object::from_json(object.payload()).expect("a payload is an object");
    assert_eq!(again.payload(), object.payload(), "a payload is not canonical");
    assert_eq!(again.key(), object.key());
    assert_eq!(again.references(), object.references());
}
