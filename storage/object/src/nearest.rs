//! The name that a mistyped one most likely means.

use strsim::osa_distance;

/// One slip for so many letters of the typed name, and at least one.
const LETTERS_PER_SLIP: usize = 4;

/// Returns the candidate that `typed` most likely means: the one with the fewest slips of the finger,
/// else the first one that `typed` begins, such as a pod of a workload. `None`: no candidate is near.
pub fn nearest<'c>(typed: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let typed = typed.to_lowercase();
    let slips_max = (typed.chars().count() / LETTERS_PER_SLIP).max(1);
    let (mut best, mut begun): (Option<(usize, &str)>, Option<&str>) = (None, None);
    for candidate in candidates {
        let name = candidate.to_lowercase();
        if !typed.is_empty() && begun.is_none() && name.starts_with(&format!("{typed}-")) {
            begun = Some(candidate);
        }
        // node-9 is no misspelt node-1: numbers are meant.
        if letters(&typed) == letters(&name) && typed != name {
            continue;
        }
        let slips = osa_distance(&typed, &name);
        if slips <= slips_max && best.is_none_or(|(fewest, _)| slips < fewest) {
            best = Some((slips, candidate));
        }
    }
    best.map(|(_, candidate)| candidate).or(begun)
}

/// The question that ends a message about a name; empty if no candidate is near.
pub fn did_you_mean<'c>(typed: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(typed, candidates).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

fn letters(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_another_name_finds_none() {
        let names = ["greeter-4bgtflb58g-hz6x4", "node-1", "node-10", "node-2", "pods"];
        for (typed, meant) in [
            ("nod-1", Some("node-1")),
            ("node1", Some("node-1")),
            ("ndoe-2", Some("node-2")),
            ("podz", Some("pods")),
            ("Pods", Some("pods")),
            ("greeter", Some("greeter-4bgtflb58g-hz6x4")),
            ("node-9", None),
            ("letter", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed:?}");
        }
        assert_eq!(nearest("nodename", ["nodeName"]), Some("nodeName"));
        assert_eq!(did_you_mean("podz", names), "; did you mean pods?");
        assert_eq!(did_you_mean("zzzz", names), "");
    }
}
