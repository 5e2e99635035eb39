//! The status that a light edge says of a pod: how it is made, and how it is known again.

use serde_json::Value;

/// What begins the message of a status that names the turn at which its pod changed last.
const TURN: &str = "turn ";

/// That a pod runs, at `turn`.
pub(crate) fn status(turn: Option<u32>) -> String {
    let message = turn.map(|turn| format!(",\"message\":\"{TURN}{turn}\"")).unwrap_or_default();
    format!(
        "{{\"phase\":\"Running\"{message},\"conditions\":[{{\"type\":\"PodScheduled\",\"status\":\
         \"True\"}},{{\"type\":\"Initialized\",\"status\":\"True\"}},{{\"type\":\
         \"ContainersReady\",\"status\":\"True\"}},{{\"type\":\"Ready\",\"status\":\"True\"}}]}}"
    )
}

/// The turn that the message of a status names.
pub(crate) fn turn_in(message: &str) -> Option<u32> {
    message.strip_prefix(TURN)?.parse().ok()
}

/// The report of a light edge that leads to this status; `None`: no report does.
pub(crate) fn said(shown: &Value) -> Option<String> {
    let text = status(turn_in(shown["message"].as_str().unwrap_or_default()));
    (serde_json::from_str::<Value>(&text).ok()? == *shown).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_names_the_change() {
        for turn in [None, Some(0), Some(17)] {
            let text = status(turn);
            let mut shown: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(turn_in(shown["message"].as_str().unwrap_or_default()), turn);
            assert_eq!(said(&shown).as_ref(), Some(&text));
            shown["phase"] = "Failed".into();
            assert_eq!(said(&shown), None);
        }
    }
}
