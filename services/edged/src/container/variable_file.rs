//! Variables that a container takes from files of the pod's volumes (`fileKeyRef`, KEP-3721). Pure: the files were read
//! before.
//!
//! A file has the form that a kubelet takes (`pkg/kubelet/util/env`), a part of the shell's: `NAME='VALUE'`, one after
//! another. A value may have several lines, and nothing in it is expanded. Empty lines and those that begin with `#` are
//! comments, as is `#` with all that follows a value. A value without a quote right after `=` is empty, as in a shell.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, FileKeySelector, Pod, Volume};

/// The bytes of all files that the variables of one container name: as the largest Secret. The environment of a
/// container has less room.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VariableFile {
    /// The volume's name.
    pub(crate) volume: String,
    /// The file's path in it.
    pub(crate) path: String,
}

/// The variables of each file.
pub(crate) type VariableFiles = BTreeMap<VariableFile, FileVariables>;

/// The variables of a file, up to what is malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVariables {
    values: BTreeMap<String, String>,
    /// Why there are no more.
    failure: Option<String>,
}

impl FileVariables {
    /// No variables, for this reason.
    pub(crate) fn unread(why: String) -> Self {
        Self { values: BTreeMap::new(), failure: Some(why) }
    }

    /// The variables of a file. The first value of a name counts.
    pub(crate) fn parse(content: &[u8]) -> Self {
        let mut values = BTreeMap::new();
        let failure = match std::str::from_utf8(content) {
            Ok(text) => add_all(text, &mut values).err(),
            Err(_) => Some("it is not UTF-8".to_owned()),
        };
        Self { values, failure }
    }
}

impl VariableFile {
    fn of(reference: &FileKeySelector) -> Self {
        Self { volume: reference.volume_name.clone(), path: reference.path.clone() }
    }

    /// The files that the container's variables name.
    pub(crate) fn all(pod: &Pod, container: &Container) -> BTreeSet<Self> {
        let variables = container.env.iter().flatten();
        let references =
            variables.filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref());
        references.filter(|it| check(pod, it).is_ok()).map(Self::of).collect()
    }
}

/// Checks that the file is one of an emptyDir, as an API server does: the node reads no others for a container.
///
/// # Errors
/// It is not.
pub(crate) fn check(pod: &Pod, reference: &FileKeySelector) -> Result<(), String> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let name = &reference.volume_name;
    let is_empty_dir = |it: &Volume| it.name == *name && it.empty_dir.is_some();
    if volumes.any(is_empty_dir) {
        return Ok(());
    }
    Err(format!("fileKeyRef: the pod has no emptyDir {name:?}"))
}

/// The value that a variable has; `None` if an optional one is not in the file.
///
/// # Errors
/// The file was not read, has another form, or lacks the variable.
pub(crate) fn value(
    reference: &FileKeySelector,
    files: &VariableFiles,
) -> Result<Option<String>, String> {
    let FileKeySelector { key, path, volume_name: volume, optional } = reference;
    let failed = |why: &str| format!("file {path:?} of volume {volume:?}: {why}");
    let file = files.get(&VariableFile::of(reference));
    let FileVariables { values, failure } = file.ok_or_else(|| failed("it was not read"))?;
    match (values.get(key).filter(|value| !value.is_empty()), failure) {
        (Some(value), _) => Ok(Some(value.clone())),
        (None, Some(why)) if !values.contains_key(key) => Err(failed(why)),
        // A kubelet does not distinguish an empty value from none.
        _ if *optional == Some(true) => Ok(None),
        _ => Err(failed(&format!("environment variable key {key:?} not found"))),
    }
}

/// Adds the variables of a file up to what is malformed.
fn add_all(text: &str, values: &mut BTreeMap<String, String>) -> Result<(), String> {
    let (mut rest, mut number) = (text, 0);
    while !rest.is_empty() {
        number += 1;
        let (line, after) = split_line(rest);
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            rest = after;
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("it has no '='"))?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return Err(wrong("the '=' does not follow a name"));
        }
        let value_at = value.as_ptr() as usize - rest.as_ptr() as usize;
        let (value, after) = if value.starts_with([' ', '\t']) {
            (String::new(), after)
        } else {
            // A value may have several lines.
            let quoted = rest[value_at..]
                .strip_prefix('\'')
                .ok_or_else(|| wrong("the value is not in single quotes"))?;
            let (value, after) = quoted
                .split_once('\'')
                .ok_or_else(|| wrong("the quote of the value has no end"))?;
            number += value.matches('\n').count();
            let (trailing, after) = split_line(after);
            let trailing = trailing.trim_start_matches([' ', '\t']);
            if !trailing.is_empty() && !trailing.starts_with('#') {
                return Err(format!("line {number}: something follows the quote of the value"));
            }
            (value.replace("\r\n", "\n"), after)
        };
        values.entry(name.to_owned()).or_insert(value);
        rest = after;
    }
    Ok(())
}

/// The first line of a text, without its end, and the text after it.
fn split_line(text: &str) -> (&str, &str) {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    (line.strip_suffix('\r').unwrap_or(line), after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# made by init\n\n  HOST='db.example'\nPORT='54''32\n";

    fn reference(key: &str, optional: bool) -> FileKeySelector {
        FileKeySelector {
            key: key.to_owned(),
            path: "env/file".to_owned(),
            volume_name: "config".to_owned(),
            optional: Some(optional),
        }
    }

    fn of(text: &str, key: &str, optional: bool) -> Result<Option<String>, String> {
        let reference = reference(key, optional);
        let variables = FileVariables::parse(text.as_bytes());
        value(&reference, &BTreeMap::from([(VariableFile::of(&reference), variables)]))
    }

    #[test]
    fn values_stand_in_quotes_and_are_taken_as_they_are() {
        let text =
            "# comment\n\n \tA='1'\nB='two\nlines $(A) \"x\"' # why\r\nC= 'x'\nA='2'\r\nD=''\n";
        for (key, value) in [("A", "1"), ("B", "two\nlines $(A) \"x\"")] {
            assert_eq!(of(text, key, false), Ok(Some(value.to_owned())), "{key}");
        }
        for key in ["C", "D", "E"] {
            assert_eq!(of(text, key, true), Ok(None), "{key}");
            let why = of(text, key, false).expect_err(key);
            assert!(why.contains(&format!("key {key:?} not found")), "{why}");
        }
        assert_eq!(of("A='1'", "A", false), Ok(Some("1".to_owned())), "without an end of line");
        assert_eq!(of("A'B='x'\n", "A'B", false), Ok(Some("x".to_owned())), "a quote in a name");
        assert_eq!(of("A='1\r\n2'\r\n", "A", false), Ok(Some("1\n2".to_owned())));
        assert_eq!(of("A='1'\nmalformed", "A", false), Ok(Some("1".to_owned())), "it comes first");
    }

    #[test]
    fn a_file_of_another_form_is_named_with_its_line() {
        for (text, place) in [
            ("A='1'\nB", "line 2: it has no '='"),
            ("A ='1'", "line 1: the '=' does not follow a name"),
            ("='1'", "line 1: the '=' does not follow a name"),
            ("A=1", "line 1: the value is not in single quotes"),
            ("\nA=\"1\"", "line 2: the value is not in single quotes"),
            ("A='1\n2\n", "line 1: the quote of the value has no end"),
            ("A='1\n2'x\n", "line 2: something follows the quote"),
            (FILE, "line 4: something follows the quote"),
        ] {
            let why = of(text, "Z", true).expect_err(text);
            assert!(why.contains("file \"env/file\" of volume \"config\": "), "{why}");
            assert!(why.contains(place), "{why}");
        }
    }

    #[test]
    fn only_files_of_an_empty_dir_are_read() {
        let variable = |volume: &str| {
            let reference = json!({"key": "A", "path": "f", "volumeName": volume});
            json!({"name": "A", "valueFrom": {"fileKeyRef": reference}})
        };
        let all: Vec<_> = ["config", "host", "none"].map(variable).into();
        let volumes = json!([
            {"name": "config", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/etc"}}]);
        let pod = json!({"spec": {
            "containers": [{"name": "c", "env": all}], "volumes": volumes}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        let read = VariableFile::all(&pod, container);
        let read: Vec<_> = read.iter().map(|it| (&*it.volume, &*it.path)).collect();
        assert_eq!(read, [("config", "f")]);
        let mut host = reference("A", true);
        host.volume_name = "host".to_owned();
        let why = check(&pod, &host).expect_err("no emptyDir");
        assert!(why.contains("no emptyDir \"host\""), "{why}");
    }

    #[test]
    fn a_file_that_was_not_read_is_no_optional_variable() {
        let wanted = reference("A", true);
        for files in [
            VariableFiles::new(),
            BTreeMap::from([(
                VariableFile::of(&wanted),
                FileVariables::unread("it leads out of it".to_owned()),
            )]),
            BTreeMap::from([(VariableFile::of(&wanted), FileVariables::parse(&[0xff]))]),
        ] {
            value(&wanted, &files).expect_err("no content");
        }
    }
}
