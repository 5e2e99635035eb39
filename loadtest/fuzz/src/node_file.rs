//! Files of a node that the pod worker reads: docker configs, its own checkpoints, and the kernel's list of mounts.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headwater_edged::container::cpu_set::CpuSet;
use headwater_edged::mountinfo::mounts;
use headwater_edged::pod::is_plain_name;
use headwater_edged::preview::checkpoint::{rewrite_cpus, rewrite_devices};
use headwater_edged::preview::pull::{ConfigForm, preview_pull};
use headwater_edged::runtime::RegistryCredentials;
use serde_json::{Map, Value, json};

/// What parts the user from the password.
const NEXT_PART: char = '\u{1e}';

/// The registry of the image that is pulled.
const REGISTRY: &str = "quay.io";

/// The image that is pulled.
const IMAGE: &str = "quay.io/org/app:1";

/// The processors of the machine.
const CPUS: u32 = 64;

/// A docker config, and the login that the bytes are.
pub fn docker_config(bytes: &[u8]) {
    for form in [ConfigForm::Current, ConfigForm::Old] {
        let found = preview_pull(form, bytes, IMAGE);
        assert!(found.problems.iter().all(|problem| !problem.is_empty()));
    }
    login(&String::from_utf8_lossy(bytes));
}

/// Both forms of an entry give the login that they were written of, in both forms of a config.
fn login(text: &str) {
    let (username, password) = text.split_once(NEXT_PART).unwrap_or((text, ""));
    let login = RegistryCredentials { username: username.into(), password: password.into() };
    let mut entries = vec![json!({"username": username, "password": password})];
    // What has a colon is no user in the other form. A kubelet removes zero bytes around a password.
    if !username.contains(':') && password == password.trim_matches('\0') {
        entries.push(json!({"auth": STANDARD.encode(format!("{username}:{password}"))}));
    }
    for entry in entries {
        let old = json!({REGISTRY: entry});
        let current = json!({"auths": old});
        for (form, config) in [(ConfigForm::Current, current), (ConfigForm::Old, old)] {
            let found = preview_pull(form, config.to_string().as_bytes(), IMAGE);
            assert_eq!(found.problems, [""; 0]);
            assert_eq!(found.logins, std::slice::from_ref(&login));
        }
    }
}

/// The file with the processors of containers.
pub fn cpus(bytes: &[u8]) {
    let Ok(written) = rewrite_cpus(bytes, CPUS) else { return };
    assert_eq!(rewrite_cpus(&written, CPUS).as_ref(), Ok(&written), "what was written is read");
    let mut taken = CpuSet::default();
    for containers in pods(&written).values() {
        let containers = containers.as_object().into_iter().flat_map(Map::values);
        let cpus = containers.map(|it| it.as_str().unwrap_or_default().parse::<CpuSet>());
        let own = cpus.fold(CpuSet::default(), |own, it| own.union(&it.expect("processors")));
        assert!(own.iter().all(|cpu| cpu < CPUS), "the machine has no {own}");
        assert!(own.is_disjoint(&taken), "two pods have {own}");
        taken = taken.union(&own);
    }
}

/// The file with the devices of containers.
pub fn devices(bytes: &[u8]) {
    let Ok(written) = rewrite_devices(bytes) else { return };
    assert_eq!(rewrite_devices(&written).as_ref(), Ok(&written), "what was written is read");
    let mut owners: BTreeMap<(String, String), String> = BTreeMap::new();
    for (pod, containers) in pods(&written) {
        let containers = containers.as_object().into_iter().flat_map(Map::values);
        for (resource, grant) in containers.filter_map(Value::as_object).flatten() {
            for id in grant["ids"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let owner = owners.entry((resource.clone(), id.to_owned()));
                assert_eq!(owner.or_insert_with(|| pod.clone()), &pod, "a device of two pods");
            }
        }
    }
}

/// The pods in a checkpoint. The UID of a pod is a name that stays inside its directory.
fn pods(checkpoint: &[u8]) -> BTreeMap<String, Value> {
    let checkpoint: Value = serde_json::from_slice(checkpoint).expect("JSON");
    let pods: Map<String, Value> = checkpoint["pods"].as_object().cloned().unwrap_or_default();
    assert!(pods.keys().all(|uid| is_plain_name(uid)), "a UID leads out of a directory");
    pods.into_iter().collect()
}

/// The kernel's list of mounts, and a line of it with the bytes as paths.
pub fn mountinfo(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(mounts(bytes).count() <= lines, "a line is two mounts");
    for mount in mounts(bytes) {
        assert!(mount.point.as_os_str().len() <= bytes.len());
        let _ = (mount.has_tag("shared:"), mount.path_option("upperdir"));
    }
    let path = escaped(bytes);
    let before: &[u8] = b"22 1 0:21 / ";
    let system: &[u8] = b" rw shared:1 - overlay overlay rw,upperdir=";
    let line = [before, path.as_slice(), system, path.as_slice()].concat();
    let found: Vec<_> = mounts(&line).collect();
    assert_eq!(found.len(), 1, "a path with a blank is a path");
    assert_eq!(found[0].point.as_os_str().as_bytes(), bytes);
    let upper = found[0].path_option("upperdir").expect("an option");
    assert_eq!(upper.as_os_str().as_bytes(), bytes);
    assert!(found[0].has_tag("shared:"));
}

/// A path as the kernel writes it into a line with blanks, and into options with commas.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b',' | b'#' => {
                written.extend(format!("\\{byte:03o}").bytes());
            }
            other => written.push(*other),
        }
    }
    written
}
