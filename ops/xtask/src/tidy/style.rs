//! The words that have no place in a comment or a document, and the names that have no place as a
//! type. `CONTRIBUTING.md` gives the reasons and better ones.

use super::{Finding, word};

/// Words without a noun as actor, or private words for what the field has a term for; and what
/// to write instead. Compared in lower case.
const WORDS: [(&str, &str); 8] = [
    ("whoever", "name the actor"),
    ("nobody", "name the actor, or say `no reader`, `no caller`"),
    ("somebody", "name the actor"),
    ("said", "sent, reported, printed"),
    ("told", "sent, notified, given"),
    ("tells", "reports, sends, notifies"),
    ("stands", "is, lies, is at"),
    ("hears", "receives"),
];

/// Words in `-ed` that may name a type: nouns, facts of the log in the past tense, the set of
/// objects that a source must provide, and the marker of rows that are folded from a log.
const NOUNS: [&str; 9] =
    ["Applied", "Edged", "Feed", "Folded", "Removed", "Seed", "Speed", "Testbed", "Wanted"];

/// Irregular participles.
const PARTICIPLES: [&str; 14] = [
    "Begun", "Built", "Found", "Given", "Gone", "Heard", "Held", "Kept", "Known", "Lost", "Said",
    "Seen", "Sent", "Told",
];

/// The file that lists the words, and the page that explains them.
const LISTS: [&str; 2] = ["ops/xtask/src/tidy/style.rs", "CONTRIBUTING.md"];

/// Checks one file by its path and text.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    if LISTS.contains(&path) {
        return Vec::new();
    }
    let is_document = path.ends_with(".md");
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let prose = if is_document { Some(line) } else { comment(path, line) };
        if let Some(prose) = prose {
            let prose = without_code(prose).to_lowercase();
            for (word, instead) in WORDS {
                if word::holds(&prose, word) {
                    findings.push(Finding::at(path, at + 1, format!("{word:?}: {instead}")));
                }
            }
        }
        if path.ends_with(".rs")
            && let Some(name) = declared_type(line)
            && is_participle(name)
        {
            let what = format!("type {name}: a participle; name the noun that it is");
            findings.push(Finding::at(path, at + 1, what));
        }
    }
    findings
}

/// The comment of a line that is one.
fn comment<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let mark = match path.rsplit_once('.')?.1 {
        "rs" | "proto" => "//",
        "toml" | "yaml" | "yml" | "sh" => "#",
        _ => return None,
    };
    line.trim_start().starts_with(mark).then(|| line.trim_start())
}

/// The prose without what is quoted in backticks.
fn without_code(prose: &str) -> String {
    prose.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The name of the struct, enum, trait or alias that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    if !matches!(words.next()?, "struct" | "enum" | "trait" | "type") {
        return None;
    }
    words.next()?.split(|c: char| !c.is_alphanumeric()).next()
}

/// Whether a name is one word, and that a participle.
fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| c.is_lowercase());
    is_one_word
        && !NOUNS.contains(&name)
        && (PARTICIPLES.contains(&name) || (name.len() > 4 && name.ends_with("ed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_are_found_in_comments_and_documents_only() {
        assert_eq!(whats("a/src/x.rs", "let told = said;\n"), [""; 0]);
        assert_eq!(whats("a/src/x.rs", "    /// Nobody reads it.\n").len(), 1);
        assert_eq!(whats("a/x.md", "What the hub said.\n").len(), 1);
        assert_eq!(whats("a/x.yaml", "data: said # plain\n"), [""; 0]);
        assert_eq!(whats("a/x.toml", "# whoever reads this\n").len(), 1);
        assert_eq!(whats("a/x.md", "aforesaid, toldish\n"), [""; 0]);
        assert_eq!(whats("a/src/x.rs", "/// Each of `said`.\n"), [""; 0]);
    }

    #[test]
    fn a_type_is_named_by_a_noun() {
        for bad in ["struct Told {", "pub(crate) enum Opened {", "pub struct Held(u8);"] {
            assert_eq!(whats("a/src/x.rs", bad).len(), 1, "{bad}");
        }
        for good in
            ["struct OpenedFile {", "pub struct Seed(u64);", "enum Red {", "pub trait Log {"]
        {
            assert_eq!(whats("a/src/x.rs", good), [""; 0], "{good}");
        }
    }
}
