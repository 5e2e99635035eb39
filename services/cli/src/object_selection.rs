//! The objects that `TYPE`, `TYPE NAME...` and `TYPE/NAME...` select.

use headwater_object::nearest::did_you_mean;
use headwater_object::{OBJECT_TYPES, ObjectType, WORKLOAD_TYPES};

use crate::exit::Failure;

/// Objects of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectSelection {
    /// The type.
    pub(crate) object_type: &'static ObjectType,
    /// Their names; empty: all objects of the type.
    pub(crate) names: Vec<String>,
}

/// How a word becomes a type.
type TypeOf = fn(&str) -> Result<&'static ObjectType, Failure>;

/// Parses the words, type by type in their order.
pub(crate) fn parse_selections(words: &[String]) -> Result<Vec<ObjectSelection>, Failure> {
    parse(words, object_type)
}

/// Parses the words as [`parse_selections`] does; they may name workloads too.
pub(crate) fn parse_selections_or_workloads(
    words: &[String],
) -> Result<Vec<ObjectSelection>, Failure> {
    parse(words, |word| match ObjectType::workload_named(word) {
        Some(workload) => Ok(workload),
        None => object_type(word),
    })
}

fn parse(words: &[String], type_of: TypeOf) -> Result<Vec<ObjectSelection>, Failure> {
    let Some((first, rest)) = words.split_first() else {
        return Err(Failure::Usage("name a type: pods, nodes, configmaps, ...".to_owned()));
    };
    if words.iter().any(|word| word.contains('/')) {
        return each_named(words, type_of);
    }
    let mut names = rest.to_vec();
    if let Some(empty) = names.iter().position(String::is_empty) {
        return Err(Failure::Usage(format!("name number {} is empty", empty + 1)));
    }
    names.dedup();
    let selection = |object_type| ObjectSelection { object_type, names: names.clone() };
    Ok(types(first, type_of)?.into_iter().map(selection).collect())
}

/// Parses `TYPE/NAME` once or more; names of one type are one selection.
fn each_named(words: &[String], type_of: TypeOf) -> Result<Vec<ObjectSelection>, Failure> {
    let mut found: Vec<ObjectSelection> = Vec::new();
    for word in words {
        let (object_type, name) = match word.split_once('/') {
            Some((object_type, name)) if !name.is_empty() && !name.contains('/') => {
                (type_of(object_type)?, name.to_owned())
            }
            Some(_) => return Err(Failure::Usage(format!("{word} is not TYPE/NAME"))),
            None => {
                return Err(Failure::Usage(format!(
                    "{word} is not TYPE/NAME: if one word has this form, all must"
                )));
            }
        };
        match found.iter_mut().find(|selection| selection.object_type == object_type) {
            Some(selection) if selection.names.contains(&name) => {}
            Some(selection) => selection.names.push(name),
            None => found.push(ObjectSelection { object_type, names: vec![name] }),
        }
    }
    Ok(found)
}

/// Returns the object types of `pods`, `po,cm` or `all`.
fn types(text: &str, type_of: TypeOf) -> Result<Vec<&'static ObjectType>, Failure> {
    if text == "all" {
        return Ok(replicated().collect());
    }
    let mut types: Vec<&'static ObjectType> = Vec::new();
    for word in text.split(',') {
        let object_type = type_of(word)?;
        if !types.contains(&object_type) {
            types.push(object_type);
        }
    }
    Ok(types)
}

/// Returns the object type of one word.
fn object_type(word: &str) -> Result<&'static ObjectType, Failure> {
    ObjectType::named(word).filter(|object_type| object_type.replicated).ok_or_else(|| {
        if let Some(ObjectType { plural, .. }) = ObjectType::workload_named(word) {
            return Failure::Usage(format!(
                "{word:?} is not replicated: `headwater get {plural}` shows the {plural} of the \
                 controller's source"
            ));
        }
        let known: Vec<&str> = replicated().map(|object_type| object_type.plural).collect();
        let singular = replicated().map(|object_type| object_type.name);
        let meant = did_you_mean(word, known.iter().copied().chain(singular));
        let known = known.join(", ");
        Failure::Usage(format!("there is no type {word:?}; there are {known}{meant}"))
    })
}

/// Returns the types that `get` shows.
pub(crate) fn shown() -> impl Iterator<Item = &'static ObjectType> {
    replicated().chain(&WORKLOAD_TYPES)
}

/// Returns the types that the log carries.
pub(crate) fn replicated() -> impl Iterator<Item = &'static ObjectType> {
    OBJECT_TYPES.iter().filter(|object_type| object_type.replicated)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn meant(words: &[&str]) -> Result<Vec<(&'static str, Vec<String>)>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match parse_selections(&words) {
            Ok(selection) => Ok(selection
                .into_iter()
                .map(|selection| (selection.object_type.name, selection.names))
                .collect()),
            Err(Failure::Usage(text)) => Err(text),
            Err(other) => unreachable!("only usage can be wrong: {other:?}"),
        }
    }

    #[test]
    fn types_and_names_are_taken_as_kubectl_takes_them() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (words, expected) in [
            (&["pods"][..], vec![("pod", Vec::new())]),
            (&["po,cm"], vec![("pod", Vec::new()), ("configmap", Vec::new())]),
            (&["po,pods"], vec![("pod", Vec::new())]),
            (&["Pod", "a", "b"], vec![("pod", names(&["a", "b"]))]),
            (&["no,svc", "a"], vec![("node", names(&["a"])), ("service", names(&["a"]))]),
            (
                &["pod/a", "cm/b", "po/c"],
                vec![("pod", names(&["a", "c"])), ("configmap", names(&["b"]))],
            ),
        ] {
            assert_eq!(meant(words), Ok(expected), "{words:?}");
        }
        assert!(meant(&["all"]).is_ok_and(|all| all.len() > 5));
    }

    #[test]
    fn workloads_are_meant_by_their_names_where_a_command_shows_them() {
        let meant = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let selections = parse_selections_or_workloads(&words).expect("valid");
            selections.iter().map(|one| one.object_type.name).collect::<Vec<_>>()
        };
        assert_eq!(meant(&["deploy,sts,ds"]), ["deployment", "statefulset", "daemonset"]);
        assert_eq!(meant(&["rs,rc,jobs,po"])[2..], ["job", "pod"]);
        assert_eq!(meant(&["Deployment/web", "deploy/api"]), ["deployment"]);
    }

    #[test]
    fn what_is_meant_by_nothing_is_named() {
        for (words, named) in [
            (&["deployments"][..], "\"deployments\""),
            (&["podz"], "; did you mean pods?"),
            (&["confgimap/x"], "; did you mean configmap?"),
            (&["pods,"], "there is no type \"\""),
            (&["pod/a", "b"], "b is not TYPE/NAME: if one word has this form"),
            (&["pod/a", "pod/"], "pod/ is not TYPE/NAME"),
            (&["pod/a/b"], "pod/a/b is not"),
            (&["pod", ""], "empty"),
        ] {
            let error = meant(words).expect_err("wrong");
            assert!(error.contains(named), "{words:?}: {error}");
        }
    }

    /// Words: valid selections and invalid ones.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            "(po|pods|cm|nodes|svc|secret|all)",
            "(po|pod|cm|node|x)/[a-z0-9.-]{0,5}",
            "[a-z,/]{0,8}",
            any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn any_words_mean_objects_or_the_wrong_one_is_named(words in vec(word(), 0..5)) {
            match meant(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
                Ok(meant) => {
                    prop_assert!(!meant.is_empty());
                    let slashed: Vec<String> = meant
                        .iter()
                        .flat_map(|(kind, names)| names.iter().map(move |n| format!("{kind}/{n}")))
                        .collect();
                    // The form TYPE/NAME selects the same, for names that are valid in it.
                    if words.iter().all(|word| word.contains('/')) {
                        let slashed: Vec<&str> = slashed.iter().map(String::as_str).collect();
                        prop_assert_eq!(self::meant(&slashed), Ok(meant));
                    }
                }
                Err(error) => prop_assert!(
                    words.is_empty()
                        || error.contains("is empty")
                        || words.iter().any(|word| {
                            error.contains(word.as_str())
                                || [&[','][..], &['/'], &[',', '/']].iter().any(|between| {
                                    let parts = word.split(*between);
                                    parts.into_iter().any(|it| error.contains(&format!("{it:?}")))
                                })
                        }),
                    "{error}"
                ),
            }
        }
    }
}
