//! Times as the API server stores them in statuses: in whole seconds.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

/// The fields of statuses that are times.
const TIMES: [&str; 5] =
    ["startTime", "lastTransitionTime", "lastHeartbeatTime", "startedAt", "finishedAt"];

/// Cuts the times in `status` to whole seconds. What is no time stays as it is.
pub(crate) fn cut(status: &mut Value) {
    match status {
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(field, value)| cut_field(field, value));
        }
        _ => {}
    }
}

/// Cuts the time, or the times, in a field of a status.
pub(crate) fn cut_field(field: &str, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(whole) = stored(field, text) {
                *text = whole;
            }
        }
        value => cut(value),
    }
}

/// The text of a field as the API server stores it.
pub(crate) fn stored<'t>(field: &str, text: &'t str) -> Cow<'t, str> {
    if TIMES.contains(&field)
        && !is_whole(text)
        && let Ok(time) = text.parse::<Timestamp>()
    {
        return Cow::Owned(whole(time.as_second()));
    }
    Cow::Borrowed(text)
}

/// Whether a time is as the API server writes it, by its length and its end: nothing of it would change.
fn is_whole(text: &str) -> bool {
    text.len() == "2026-01-02T03:04:05Z".len() && text.ends_with('Z')
}

/// The time `second` seconds after the Unix epoch, as the API server writes it.
pub(crate) fn whole(second: i64) -> String {
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_times_are_cut() {
        let mut status = json!({
            "startTime": "2026-01-02T03:04:05.678Z",
            "message": "2026-01-02T03:04:05.678Z",
            "conditions": [{"lastTransitionTime": "2026-01-02T04:04:05.9+01:00"}],
        });
        cut(&mut status);
        let time = "2026-01-02T03:04:05Z";
        assert_eq!(status["startTime"], time);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], time);
        assert_eq!(status["message"], "2026-01-02T03:04:05.678Z");
    }
}
