//! Decides a container's environment, command, arguments and mounts from its spec and the objects.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use crate::container::downward_api::{self, FieldSource};
use crate::container::{LaunchSpec, Mount, WaitReason};
use crate::desired::objects::Objects;
use crate::pod::{init_containers, is_plain_name, is_sidecar, namespace};

/// The longest argument or variable of a process, with its final zero: Linux's `MAX_ARG_STRLEN`, 32
/// pages. References to references can double the text each time: this bounds the result.
const TEXT_BYTES_MAX: usize = 128 << 10;

/// Decides how the container is launched.
///
/// `base` is the environment that the runtime gives every container. The pod may override its
/// variables, and `$(NAME)` may refer to them.
///
/// # Errors
/// Names the object or key that is missing, or the field that is invalid.
pub(crate) fn launch(
    container: &Container,
    base: &BTreeMap<String, String>,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<LaunchSpec, WaitReason> {
    let env = environment(container, base, fields, objects).map_err(config_error)?;
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let argv: Result<Vec<String>, String> = words.map(|word| expand(word, &env)).collect();
    let argv = argv.map_err(config_error)?;
    if let Some(word) = argv.iter().position(|word| word.contains('\0')) {
        return Err(config_error(format!("word {word} of the command contains a zero byte")));
    }
    if !is_plain_name(&container.name) {
        return Err(config_error(format!(
            "container name {:?} is not a DNS label",
            container.name
        )));
    }
    let mounts = mounts(fields.pod, container, &env).map_err(config_error)?;
    if let Some(dir) = container.working_dir.as_deref().filter(|dir| !stays_inside(dir)) {
        return Err(config_error(format!("workingDir {dir:?} leaves the container's root")));
    }
    Ok(LaunchSpec {
        container: container.name.clone(),
        image: container.image.clone(),
        is_step: init_containers(fields.pod).contains(container) && !is_sidecar(container),
        argv,
        env,
        working_dir: container.working_dir.clone(),
        mounts,
    })
}

fn environment(
    container: &Container,
    base: &BTreeMap<String, String>,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<BTreeMap<String, String>, String> {
    let namespace = namespace(fields.pod);
    let mut env = base.clone();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            match objects.config_map(namespace, &reference.name) {
                Some(map) => env.extend(
                    map.data.iter().flatten().map(|(k, v)| (format!("{prefix}{k}"), v.clone())),
                ),
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match objects.secret(namespace, &reference.name) {
                Some(secret) => {
                    let data = secret.data.iter().flatten();
                    env.extend(data.map(|(k, v)| {
                        (format!("{prefix}{k}"), String::from_utf8_lossy(&v.0).into_owned())
                    }));
                    let text = secret.string_data.iter().flatten();
                    env.extend(text.map(|(k, v)| (format!("{prefix}{k}"), v.clone())));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", reference.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(variable, container, &env, fields, objects)? {
            env.insert(variable.name.clone(), value);
        }
    }
    match env.iter().find(|(k, v)| k.is_empty() || k.contains(['=', '\0']) || v.contains('\0')) {
        Some((name, _)) => Err(format!("environment variable {name:?} cannot be set")),
        None => Ok(env),
    }
}

/// The variable's value; `None` if an optional reference names something that does not exist.
fn value(
    variable: &EnvVar,
    container: &Container,
    env: &BTreeMap<String, String>,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<Option<String>, String> {
    let Some(from) = &variable.value_from else {
        let text = variable.value.as_deref().unwrap_or_default();
        let value = expand(text, env);
        return value
            .map(Some)
            .map_err(|why| format!("environment variable {:?}: {why}", variable.name));
    };
    let namespace = namespace(fields.pod);
    if let Some(reference) = &from.config_map_key_ref {
        let name = &reference.name;
        let map = objects.config_map(namespace, name);
        let value = map.and_then(|map| map.data.as_ref()?.get(&reference.key).cloned());
        return found(value, map.is_some(), reference.optional, "configmap", name, &reference.key);
    }
    if let Some(reference) = &from.secret_key_ref {
        let name = &reference.name;
        let secret = objects.secret(namespace, name);
        let value = secret.and_then(|secret| {
            let data = secret.data.as_ref().and_then(|data| data.get(&reference.key));
            let text = secret.string_data.as_ref().and_then(|text| text.get(&reference.key));
            text.cloned().or_else(|| Some(String::from_utf8_lossy(&data?.0).into_owned()))
        });
        return found(value, secret.is_some(), reference.optional, "secret", name, &reference.key);
    }
    if let Some(reference) = &from.field_ref {
        return fields.field(&reference.field_path).map(Some);
    }
    if let Some(reference) = &from.resource_field_ref {
        return downward_api::resource(fields.pod, reference, Some(container)).map(Some);
    }
    Ok(None)
}

fn found(
    value: Option<String>,
    object_exists: bool,
    optional: Option<bool>,
    kind: &str,
    name: &str,
    key: &str,
) -> Result<Option<String>, String> {
    match value {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None if object_exists => Err(format!("couldn't find key {key} in {kind} \"{name}\"")),
        None => Err(format!("{kind} \"{name}\" not found")),
    }
}

/// Replaces `$(NAME)` by the variable's value. An unknown name stays as written; `$$` is `$`.
///
/// # Errors
/// The result is longer than a process can receive.
fn expand(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match env.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            if expanded.len() >= TEXT_BYTES_MAX {
                break;
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    if expanded.len() >= TEXT_BYTES_MAX {
        return Err(format!(
            "it expands to {TEXT_BYTES_MAX} bytes or more, which no process can receive"
        ));
    }
    Ok(expanded)
}

fn mounts(
    pod: &Pod,
    container: &Container,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        if !volumes.iter().any(|volume| volume.name == mount.name) {
            return Err(format!("volumeMount {:?} names no volume of the pod", mount.name));
        }
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(expression)) => Some(expand(expression, env)?),
            (None, None) => None,
        };
        let sub_path = sub_path.filter(|path| !path.is_empty());
        let inside =
            stays_inside(&mount.mount_path) && !mount.mount_path.trim_matches('/').is_empty();
        if !inside || sub_path.as_deref().is_some_and(|path| !stays_inside(path)) {
            return Err(format!(
                "mountPath {:?} or its subPath leaves the container's root",
                mount.mount_path
            ));
        }
        mounts.push(Mount {
            volume: mount.name.clone(),
            path: PathBuf::from(mount.mount_path.trim_start_matches('/')),
            sub_path: sub_path.map(|path| PathBuf::from(path.trim_start_matches('/'))),
        });
    }
    // A mount below another comes after it.
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(mounts)
}

fn stays_inside(path: &str) -> bool {
    !path.contains('\0')
        && Path::new(path).components().all(|part| !matches!(part, Component::ParentDir))
}

fn config_error(message: String) -> WaitReason {
    WaitReason { reason: "CreateContainerConfigError", message }
}

#[cfg(test)]
mod tests;
