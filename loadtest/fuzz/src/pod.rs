//! Pods, as a pod worker reads them, with the objects that they name.

use bytes::Bytes;
use headwater_edged::container::cpu_set::CpuSet;
use headwater_edged::preview::preview;
use headwater_event::{NodeName, ResourceKey};

/// What parts the pod from the ConfigMap `c`, and that from the Secret `s`.
const NEXT_OBJECT: u8 = 0x1e;

/// What one container receives at most: Linux gives arguments and environment a quarter of the stack.
const PROCESS_BYTES_MAX: usize = 2 << 20;

/// A pod's JSON, and objects of the names `c` and `s` that it may name.
pub fn pod(bytes: &[u8]) {
    let keys = ["ns/pod/p", "ns/configmap/c", "ns/secret/s", "ns/persistentvolumeclaim/v"];
    let parts = bytes.split(|byte| *byte == NEXT_OBJECT);
    let objects: Vec<(ResourceKey, Bytes)> = keys
        .iter()
        .zip(parts)
        .map(|(key, part)| (key.parse().expect("a key"), Bytes::copy_from_slice(part)))
        .collect();
    let node: NodeName = "a".parse().expect("a node name");
    let (pods, refused) = preview(&node, &objects);
    for error in refused {
        assert!(!error.is_empty(), "an object is refused without a reason");
    }
    for pod in pods {
        let started = pod.launches.values().flatten();
        for launch in started {
            let env = launch.env.iter().map(|(name, value)| name.len() + value.len() + 2);
            let bytes: usize = env.chain(launch.argv().iter().map(|word| word.len() + 1)).sum();
            assert!(bytes <= PROCESS_BYTES_MAX, "a process of {bytes} bytes of arguments");
            for (name, value) in &launch.env {
                assert!(!name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
            }
            for mount in &launch.mounts {
                let paths = [Some(&mount.path), mount.sub_path.as_ref()];
                for path in paths.into_iter().flatten() {
                    assert!(path.is_relative(), "{path:?}");
                    let mut parts = path.components();
                    assert!(!parts.any(|part| part == std::path::Component::ParentDir), "{path:?}");
                }
            }
        }
    }
}

/// A list of processors, which a file of the pod worker and the kernel have.
pub fn cpu_set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(cpus) = text.parse::<CpuSet>() {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
}
