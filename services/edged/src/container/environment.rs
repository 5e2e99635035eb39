//! Decides a container's environment, command, arguments and mounts from its spec and the objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Secret, VolumeMount};

use crate::container::argument_space::{ArgumentSpace, TEXT_BYTES_MAX, too_long};
use crate::container::block_device::BlockDevice;
use crate::container::credentials;
use crate::container::devices::ContainerDevices;
use crate::container::downward_api::{self, FieldSource};
use crate::container::termination::{StopSignal, TerminationMessage};
use crate::container::variable_file::{self, VariableFiles};
use crate::container::{LaunchSpec, Mount, Propagation, RecursiveReadOnly, WaitReason};
use crate::desired::objects::Objects;
use crate::pod::{init_containers, is_plain_name, is_sidecar, is_written_here, namespace};

/// The longest path that Linux takes, with its final zero: `PATH_MAX`.
const PATH_BYTES_MAX: usize = 4 << 10;

/// What variables take their values from.
#[derive(Clone, Copy)]
pub(crate) struct VariableSources<'a> {
    /// The fields of the pod.
    pub(crate) fields: &'a FieldSource<'a>,
    /// The objects at hand.
    pub(crate) objects: &'a Objects,
    /// The files that the container's variables name; `None`: they were not read yet.
    pub(crate) files: Option<&'a VariableFiles>,
}

/// The value of a variable.
enum VariableValue<'a> {
    /// This text, in which `$(NAME)` refers to variables before.
    Expression(&'a str),
    /// This text.
    Text(&'a str),
}

/// Checks that the container can be launched, as far as this is known without its environment: every
/// object and key is there, and every field is valid. It makes no copies, so that it may run at every
/// change of an object.
///
/// # Errors
/// Names the object or key that is missing, or the field that is invalid.
pub(crate) fn check(
    container: &Container,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<(), WaitReason> {
    let mut space = ArgumentSpace::new();
    let sources = VariableSources { fields, objects, files: None };
    let checked = check_container(container).and_then(|()| {
        definitions(container, sources, &mut space, &mut |_, name, value| {
            let (VariableValue::Expression(text) | VariableValue::Text(text)) = value;
            check_variable(name, text)
        })?;
        mounts(fields.pod, container, None).map(drop)
    });
    checked.map_err(config_error)
}

/// Decides how the container is launched.
///
/// `base` is the environment that the runtime gives every container. The pod may override its
/// variables, and `$(NAME)` may refer to them. Arguments and environment are bounded while they are
/// expanded: references to references can double the text each time.
///
/// # Errors
/// Names the object or key that is missing, or the field that is invalid.
pub(crate) fn launch(
    container: &Container,
    base: &BTreeMap<String, String>,
    sources: VariableSources<'_>,
) -> Result<LaunchSpec, WaitReason> {
    let VariableSources { fields, .. } = sources;
    check_container(container).map_err(config_error)?;
    let mut space = ArgumentSpace::new();
    let env = environment(container, base, sources, &mut space).map_err(config_error)?;
    let mut words = arguments(container, &env, &mut space).map_err(config_error)?;
    let args = words.split_off(container.command.as_ref().map_or(0, Vec::len));
    let mounts = mounts(fields.pod, container, Some(&env)).map_err(config_error)?;
    let block_devices = BlockDevice::all(fields.pod, container).map_err(config_error)?;
    Ok(LaunchSpec {
        container: container.name.clone(),
        image: container.image.clone(),
        is_step: init_containers(fields.pod).contains(container) && !is_sidecar(container),
        command: words,
        args,
        env,
        working_dir: container.working_dir.clone(),
        mounts,
        block_devices,
        stop_signal: StopSignal::of(container).map_err(|error| {
            config_error(format!("container {}: lifecycle.{error}", container.name))
        })?,
        termination_message: TerminationMessage::of(container).map_err(config_error)?,
        credentials: credentials::resolve(fields.pod, container)?,
        cpus: None,
        devices: ContainerDevices::default(),
    })
}

/// Checks the fields of the container that refer to nothing.
fn check_container(container: &Container) -> Result<(), String> {
    if let Some(word) = words(container).position(|word| word.contains('\0')) {
        return Err(format!("word {word} of the command contains a zero byte"));
    }
    if !is_plain_name(&container.name) {
        return Err(format!("container name {:?} is not a DNS label", container.name));
    }
    match container.working_dir.as_deref().filter(|dir| !stays_inside(dir)) {
        Some(dir) => Err(format!("workingDir {dir:?} leaves the container's root")),
        None => Ok(()),
    }
}

/// Command and arguments, as the pod has them.
fn words(container: &Container) -> impl Iterator<Item = &String> {
    container.command.iter().flatten().chain(container.args.iter().flatten())
}

fn arguments(
    container: &Container,
    env: &BTreeMap<String, String>,
    space: &mut ArgumentSpace,
) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    for (at, word) in words(container).enumerate() {
        let argument = expand(word, env, TEXT_BYTES_MAX)
            .and_then(|argument| space.take(argument.len()).map(|()| argument));
        arguments.push(argument.map_err(|why| format!("word {at} of the command: {why}"))?);
    }
    Ok(arguments)
}

fn environment(
    container: &Container,
    base: &BTreeMap<String, String>,
    sources: VariableSources<'_>,
    space: &mut ArgumentSpace,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::new();
    for (name, value) in base {
        insert(&mut env, space, name, value.clone())?;
    }
    definitions(container, sources, space, &mut |space, name, value| {
        let value = match value {
            VariableValue::Expression(text) => expand(text, &env, TEXT_BYTES_MAX)
                .map_err(|why| format!("environment variable {name:?}: {why}"))?,
            VariableValue::Text(text) => text.to_owned(),
        };
        check_variable(name, &value)?;
        insert(&mut env, space, name, value)
    })?;
    Ok(env)
}

/// Sets a variable, if there is space for it.
fn insert(
    env: &mut BTreeMap<String, String>,
    space: &mut ArgumentSpace,
    name: &str,
    value: String,
) -> Result<(), String> {
    let bytes = |value: &String| name.len() + "=".len() + value.len();
    if let Some(replaced) = env.get(name) {
        space.give_back(bytes(replaced));
    }
    space.take(bytes(&value)).map_err(|why| format!("environment variable {name:?}: {why}"))?;
    env.insert(name.to_owned(), value);
    Ok(())
}

fn check_variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        return Err(format!("environment variable {name:?} cannot be set"));
    }
    Ok(())
}

/// Calls `define` for every variable of the container, in order. A variable of an optional reference
/// that names nothing is left out.
fn definitions(
    container: &Container,
    sources: VariableSources<'_>,
    space: &mut ArgumentSpace,
    define: &mut dyn FnMut(&mut ArgumentSpace, &str, VariableValue<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let VariableSources { fields, objects, .. } = sources;
    let namespace = namespace(fields.pod);
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut define_key = |space: &mut ArgumentSpace, key: &str, text: &str| {
            space.define(prefix.len() + key.len() + text.len())?;
            define(space, &format!("{prefix}{key}"), VariableValue::Text(text))
        };
        if let Some(reference) = &source.config_map_ref {
            match objects.config_map(namespace, &reference.name) {
                Some(map) => {
                    for (key, text) in map.data.iter().flatten() {
                        define_key(space, key, text)?;
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match objects.secret(namespace, &reference.name) {
                Some(secret) => {
                    for (key, bytes) in secret.data.iter().flatten() {
                        define_key(space, key, secret_text(&reference.name, key, &bytes.0)?)?;
                    }
                    for (key, text) in secret.string_data.iter().flatten() {
                        define_key(space, key, text)?;
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", reference.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let name = &variable.name;
        let mut define = |value: VariableValue<'_>| {
            let (VariableValue::Expression(text) | VariableValue::Text(text)) = value;
            space.define(name.len() + text.len())?;
            define(space, name, value)
        };
        match &variable.value_from {
            None => {
                let text = variable.value.as_deref().unwrap_or_default();
                define(VariableValue::Expression(text))?;
            }
            Some(_) => {
                if let Some(text) = referred_value(variable, container, sources)? {
                    define(VariableValue::Text(&text))?;
                }
            }
        }
    }
    Ok(())
}

/// The value that the variable refers to; `None` if an optional reference names something that does
/// not exist.
fn referred_value<'o>(
    variable: &EnvVar,
    container: &Container,
    VariableSources { fields, objects, files }: VariableSources<'o>,
) -> Result<Option<Cow<'o, str>>, String> {
    let Some(from) = &variable.value_from else { return Ok(None) };
    let namespace = namespace(fields.pod);
    if let Some(reference) = &from.config_map_key_ref {
        let name = &reference.name;
        let map = objects.config_map(namespace, name);
        let value = map.and_then(|map| map.data.as_ref()?.get(&reference.key));
        let value = value.map(String::as_str);
        return found(value, map.is_some(), reference.optional, "configmap", name, &reference.key);
    }
    if let Some(reference) = &from.secret_key_ref {
        let name = &reference.name;
        let secret = objects.secret(namespace, name);
        let value = secret.and_then(|secret| secret_value(secret, name, &reference.key));
        let value = value.transpose()?;
        return found(value, secret.is_some(), reference.optional, "secret", name, &reference.key);
    }
    if let Some(reference) = &from.field_ref {
        return fields.field(&reference.field_path).map(|text| Some(text.into()));
    }
    if let Some(reference) = &from.resource_field_ref {
        return downward_api::resource(fields, reference, Some(container))
            .map(|text| Some(text.into()));
    }
    if let Some(reference) = &from.file_key_ref {
        variable_file::check(fields.pod, reference)?;
        let value = files.map(|files| variable_file::value(reference, files)).transpose()?;
        return Ok(value.flatten().map(Cow::from));
    }
    Ok(None)
}

fn secret_value<'o>(secret: &'o Secret, name: &str, key: &str) -> Option<Result<&'o str, String>> {
    if let Some(text) = secret.string_data.as_ref().and_then(|text| text.get(key)) {
        return Some(Ok(text));
    }
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(secret_text(name, key, &bytes.0))
}

/// A Secret's value as a variable has it.
///
/// # Errors
/// It is not text. The container would receive another value than the Secret has.
fn secret_text<'o>(name: &str, key: &str, bytes: &'o [u8]) -> Result<&'o str, String> {
    std::str::from_utf8(bytes).map_err(|_| {
        format!(
            "key {key} in secret \"{name}\" is not UTF-8, and no variable can have it: mount the \
             secret as a volume"
        )
    })
}

fn found<'o>(
    value: Option<&'o str>,
    object_exists: bool,
    optional: Option<bool>,
    kind: &str,
    name: &str,
    key: &str,
) -> Result<Option<Cow<'o, str>>, String> {
    match value {
        Some(value) => Ok(Some(value.into())),
        None if optional == Some(true) => Ok(None),
        None if object_exists => Err(format!("couldn't find key {key} in {kind} \"{name}\"")),
        None => Err(format!("{kind} \"{name}\" not found")),
    }
}

/// Replaces `$(NAME)` by the variable's value. An unknown name stays as written; `$$` is `$`.
///
/// # Errors
/// The result would have `bytes_max` bytes or more.
fn expand(text: &str, env: &BTreeMap<String, String>, bytes_max: usize) -> Result<String, String> {
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
            if expanded.len() >= bytes_max {
                break;
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    if expanded.len() >= bytes_max { Err(too_long(bytes_max)) } else { Ok(expanded) }
}

/// The mounts of the container. Without an environment, expressions are not expanded.
fn mounts(
    pod: &Pod,
    container: &Container,
    env: Option<&BTreeMap<String, String>>,
) -> Result<Vec<Mount>, String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else {
            return Err(format!("volumeMount {:?} names no volume of the pod", mount.name));
        };
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr, env) {
            (Some(path), _, _) => Some(path.clone()),
            (None, Some(expression), Some(env)) => {
                let path = expand(expression, env, PATH_BYTES_MAX);
                Some(path.map_err(|why| format!("subPathExpr of {:?}: {why}", mount.name))?)
            }
            (None, _, _) => None,
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
            is_absolute: mount.mount_path.starts_with('/'),
            sub_path: sub_path.map(|path| PathBuf::from(path.trim_start_matches('/'))),
            read_only: mount.read_only == Some(true),
            is_written_here: is_written_here(volume),
            recursive_read_only: recursive_read_only(mount)?,
            propagation: propagation(mount)?,
        });
    }
    // A mount below another comes after it.
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(mounts)
}

/// `recursiveReadOnly` of a mount, by the rules of KEP-3857: it needs `readOnly` and no propagation.
fn recursive_read_only(mount: &VolumeMount) -> Result<RecursiveReadOnly, String> {
    let is_read_only = mount.read_only == Some(true);
    let propagates = !matches!(mount.mount_propagation.as_deref(), None | Some("None"));
    match mount.recursive_read_only.as_deref() {
        None | Some("" | "Disabled") => Ok(RecursiveReadOnly::Disabled),
        Some("IfPossible" | "Enabled") if !is_read_only || propagates => Err(format!(
            "recursiveReadOnly of {:?} needs readOnly: true and no mountPropagation",
            mount.name
        )),
        Some("IfPossible") => Ok(RecursiveReadOnly::IfPossible),
        Some("Enabled") => Ok(RecursiveReadOnly::Enabled),
        Some(other) => Err(format!("recursiveReadOnly {other:?} of {:?} is unknown", mount.name)),
    }
}

fn propagation(mount: &VolumeMount) -> Result<Propagation, String> {
    match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => Ok(Propagation::None),
        Some("HostToContainer") => Ok(Propagation::HostToContainer),
        Some("Bidirectional") => Ok(Propagation::Bidirectional),
        Some(other) => Err(format!("mountPropagation {other:?} of {:?} is unknown", mount.name)),
    }
}

pub(super) fn stays_inside(path: &str) -> bool {
    !path.contains('\0')
        && Path::new(path).components().all(|part| !matches!(part, Component::ParentDir))
}

fn config_error(message: String) -> WaitReason {
    WaitReason { reason: "CreateContainerConfigError", message }
}

#[cfg(test)]
mod tests;
