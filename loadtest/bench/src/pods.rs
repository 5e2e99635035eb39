//! Pods that a source says, and where in one it is written which turn it is of.

use serde_json::{Value, json};

use crate::events::Letters;

/// Kubernetes' default limit of pods per node.
pub(crate) const PODS_PER_NODE: u64 = 110;

/// How the turn is written into a pod.
const TURN: &[u8] = br#""turn":""#;

/// The bytes of a pod besides its filling.
const FRAME_BYTES: usize = 420;

/// Pod `number` of `node`, of about `bytes` as JSON; `turn` makes it another than before.
pub(crate) fn pod(node: &str, number: u64, turn: u64, bytes: usize) -> Value {
    let fill = bytes.saturating_sub(FRAME_BYTES);
    let mut letters = Letters(number);
    // As much of it as names, hashes and addresses are of a real one.
    let random = fill / 8;
    let note: String = (0..random).map(|_| letters.draw()).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(node, number),
            "namespace": "default",
            "annotations": { "turn": turn.to_string(), "note": note },
        },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "web",
                "image": "registry.example/shop/web:1.27",
                "ports": [{ "containerPort": 8080 }],
                "env": [{ "name": "MODE", "value": "y".repeat(fill - random) }],
                "resources": { "limits": { "memory": "64Mi", "cpu": "100m" } },
            }],
        },
    })
}

/// Its name.
pub(crate) fn name(node: &str, number: u64) -> String {
    format!("web-{node}-{number}")
}

/// The turn that made `object`: searched, not parsed, because the caller is timed.
pub(crate) fn turn_of(object: &[u8]) -> Option<u64> {
    let at = object.windows(TURN.len()).position(|window| window == TURN)? + TURN.len();
    let digits = object[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_its_size_and_says_its_turn() {
        let text = pod("gw-1", 7, 1_234, 2 << 10).to_string();
        assert!((1_900..2_200).contains(&text.len()), "{}", text.len());
        assert_eq!(turn_of(text.as_bytes()), Some(1_234));
        assert_eq!(turn_of(b"{}"), None);
    }
}
