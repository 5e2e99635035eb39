//! Objects to measure with: half template, half what differs from event to event, so that they
//! compress as real ones do.

use bytes::Bytes;
use headwater_event::Applied;
use uuid::Uuid;

/// The pod that event `turn` is about, one of `pods`; `bytes` long.
pub(crate) fn pod(turn: u64, pods: u64, bytes: usize) -> Applied {
    let name = format!("web-{:05}", turn % pods);
    let uid = Uuid::from_u128(u128::from(turn % pods)).to_string();
    let mut object = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"{turn}"}},"spec":{{"containers":[{{"name":"web","image":"registry.example/shop/web:1.27","ports":[{{"containerPort":8080}}],"resources":{{"limits":{{"memory":"64Mi"}}}}}}]}},"status":""#,
    );
    while object.len() < bytes / 2 {
        object.push_str("x-template ");
    }
    let mut letters = Letters(turn);
    while object.len() + 2 < bytes {
        object.push(letters.draw());
    }
    object.push_str("\"}");
    Applied {
        key: headwater_event::EntryKey::from(
            format!("shop/pod/{name}").parse::<headwater_event::ResourceKey>().expect("a key"),
        ),
        uid,
        resource_version: turn.to_string(),
        object: Bytes::from(object),
    }
}

/// Letters that do not compress below what a letter takes, the same for the same number.
pub(crate) struct Letters(pub(crate) u64);

impl Letters {
    pub(crate) fn draw(&mut self) -> char {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((self.0 >> 59) % 26).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_json_of_its_size_and_the_same_again() {
        for bytes in [512, 2 << 10] {
            let pod = pod(7, 5, bytes);
            assert_eq!(pod.object.len(), bytes);
            serde_json::from_slice::<serde_json::Value>(&pod.object).expect("JSON");
        }
        assert_eq!(pod(7, 5, 512), pod(7, 5, 512));
        assert_eq!(pod(7, 5, 512).key, pod(2, 5, 512).key);
        assert_ne!(pod(7, 5, 512).object, pod(2, 5, 512).object);
    }
}
