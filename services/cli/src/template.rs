//! `-o jsonpath`, kubectl's templates: text, and in braces a path, a quoted text, `range PATH` or `end`.

use serde_json::Value;

use crate::exit::Failure;
use crate::path::{self, Path};

/// A template of `-o jsonpath`.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// The values at a path, with blanks between them.
    Values(Path),
    /// The parts, once for each value at the path.
    Range(Path, Vec<Part>),
}

/// The content of one pair of braces.
enum Action {
    Text(String),
    Values(Path),
    Range(Path),
    End,
}

impl Template {
    /// Parses a template. A path alone needs no braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the template is empty; write it like {.metadata.name}".to_owned());
        }
        if !text.contains('{') && text.starts_with(['.', '$', '@']) {
            return Ok(Self(vec![Part::Values(path_of(text)?)]));
        }
        // The parts of each open range, the outermost first; the template's own are the base.
        let (mut parts, mut open) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = end_of_braces(behind).ok_or("a brace is not closed")?;
            match action(behind[..end].trim())? {
                Action::Text(text) => parts.push(Part::Text(text)),
                Action::Values(path) => parts.push(Part::Values(path)),
                Action::Range(path) => open.push((path, std::mem::take(&mut parts))),
                Action::End => {
                    let (path, outer) = open.pop().ok_or("{end} has no {range} before it")?;
                    let inner = std::mem::replace(&mut parts, outer);
                    parts.push(Part::Range(path, inner));
                }
            }
            rest = &behind[end + 1..];
        }
        if !open.is_empty() {
            return Err("a {range} has no {end}".to_owned());
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Returns the text for an object.
    pub(crate) fn text(&self, object: &Value) -> String {
        let mut text = String::new();
        write(&self.0, object, &mut text);
        text
    }
}

fn write(parts: &[Part], object: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Values(path) => {
                let values: Vec<String> = path.all(object).into_iter().map(path::text).collect();
                text.push_str(&values.join(" "));
            }
            Part::Range(path, inner) => {
                path.all(object).into_iter().for_each(|value| write(inner, value, text));
            }
        }
    }
}

/// The place of the brace that closes the one before `text`: quoted braces do not count.
fn end_of_braces(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (_, '\\') => drop(letters.next()),
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

fn action(inside: &str) -> Result<Action, String> {
    if inside == "end" {
        return Ok(Action::End);
    }
    if let Some(path) = inside.strip_prefix("range").filter(|rest| rest.starts_with([' ', '\t'])) {
        return Ok(Action::Range(path_of(path.trim())?));
    }
    for quote in ['"', '\''] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let quoted = quoted.strip_suffix(quote).ok_or("a quoted text is not closed")?;
            return Ok(Action::Text(unquoted(quoted)?));
        }
    }
    Ok(Action::Values(path_of(inside)?))
}

/// A path of a template, in which a dot alone is the whole object.
fn path_of(text: &str) -> Result<Path, String> {
    Path::parse(if text == "." { "$" } else { text }).map_err(|failure| match failure {
        Failure::Usage(text) => text,
        other => format!("{other:?}"),
    })
}

fn unquoted(quoted: &str) -> Result<String, String> {
    let (mut text, mut letters) = (String::new(), quoted.chars());
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        text.push(match letters.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(same @ ('\\' | '"' | '\'')) => same,
            other => {
                let other = other.map_or_else(String::new, String::from);
                return Err(format!("\\{other} is no escape; there are \\n, \\t, \\r, \\\\, \\\""));
            }
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pods() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"app.io/x": "1"}},
             "status": {"phase": "Running", "conditions": [
                 {"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False"}]}},
            {"metadata": {"name": "b"}, "status": {"phase": "Pending"}},
        ]})
    }

    #[test]
    fn templates_print_what_kubectls_print() {
        for (template, expected) in [
            ("{.items[*].metadata.name}", "a b"),
            ("{.items[0].metadata.name}", "a"),
            ("{.items[-1:].metadata.name}", "b"),
            ("name: {.items[1].metadata.name}!", "name: b!"),
            (
                "{range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}",
                "a\tRunning\nb\tPending\n",
            ),
            ("{range .items[*]}{@.metadata.name},{end}", "a,b,"),
            (
                "{range .items[*]}{range .status.conditions[*]}{.type}={.status};{end}{end}",
                "Ready=True;PodScheduled=False;",
            ),
            ("{.items[?(@.status.phase==\"Pending\")].metadata.name}", "b"),
            ("{.items[0].status.conditions[?(@.type=='Ready')].status}", "True"),
            ("{.items[0].metadata.labels.app\\.io/x}", "1"),
            ("{.items[*]['metadata.name', 'status.phase']}", "a b Running Pending"),
            ("{.items[0].metadata.labels}", "{\"app.io/x\":\"1\"}"),
            ("{'}'}{ .kind }{\"{\"}", "}List{"),
            ("{.none}|{.items[9].metadata.name}", "|"),
            (".kind", "List"),
        ] {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(parsed.text(&pods()), expected, "{template}");
        }
        assert!(Template::parse("{.}").expect("the whole").text(&pods()).contains("\"kind\""));
    }

    #[test]
    fn a_malformed_template_is_named() {
        for (template, named) in [
            ("", "empty"),
            ("{.a", "not closed"),
            ("{range .a[*]}x", "no {end}"),
            ("x{end}", "no {range}"),
            ("{\"a}", "not closed"),
            ("{'\\q'}", "\\q is no escape"),
            ("{.a[}", "a bracket is not closed"),
            ("{}", "is empty"),
        ] {
            let error = Template::parse(template).expect_err(template);
            assert!(error.contains(named), "{template}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_is_named(
            text in prop_oneof!["[a.\\[\\]{} \\\\*?(@)'\"nrge]{0,16}", any::<String>()],
        ) {
            match Template::parse(&text) {
                Ok(template) => drop(template.text(&pods())),
                Err(error) => prop_assert!(!error.is_empty()),
            }
        }
    }
}
