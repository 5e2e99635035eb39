//! Names for pods where a cluster would draw them at random: the same look, drawn from a hash.

/// Letters and digits that spell no words: Kubernetes' own choice for generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The length of a template hash in a name.
const HASH_LETTERS: usize = 10;

/// The length of the drawn end of a name.
const SUFFIX_LETTERS: usize = 5;

/// The longest name that is still a host name, and so the longest that is made.
const POD_NAME_BYTES_MAX: usize = 63;

/// The hash of a pod template, in the form of names and labels.
pub(crate) fn template_hash(template: &[u8]) -> String {
    letters(template, HASH_LETTERS)
}

/// A pod name for `owner`, its end drawn from `drawn_from`. A long owner is cut, as in a cluster.
pub(crate) fn pod_name(owner: &str, drawn_from: &[u8]) -> String {
    let mut base = format!("{owner}-");
    // Names are ASCII.
    base.truncate(POD_NAME_BYTES_MAX - SUFFIX_LETTERS);
    // A cut may fall behind a dot, where a label would begin with the drawn letters: still valid.
    base + &letters(drawn_from, SUFFIX_LETTERS)
}

/// Whether `text` has the form of a template hash.
pub(crate) fn is_template_hash(text: &str) -> bool {
    are_letters(text, HASH_LETTERS)
}

/// Whether `text` has the form of the drawn end of a name.
pub(crate) fn is_suffix(text: &str) -> bool {
    are_letters(text, SUFFIX_LETTERS)
}

fn are_letters(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn letters(of: &[u8], count: usize) -> String {
    let digest = blake3::hash(of);
    digest.as_bytes().iter().take(count).map(|byte| char::from(letter(*byte))).collect()
}

fn letter(byte: u8) -> u8 {
    ALPHABET[usize::from(byte) % ALPHABET.len()]
}

#[cfg(test)]
mod tests {
    use headwater_event::name::check_dns1123_subdomain;

    use super::*;

    #[test]
    fn names_depend_on_nothing_but_what_they_are_drawn_from() {
        assert_eq!(pod_name("web", b"a"), pod_name("web", b"a"));
        assert_ne!(pod_name("web", b"a"), pod_name("web", b"b"));
        assert!(pod_name("web", b"a").starts_with("web-"));
        assert_eq!(template_hash(b"t").len(), HASH_LETTERS);
    }

    #[test]
    fn names_are_valid_whatever_the_owner_is_called() {
        for length in 1..250 {
            let dotted = format!("{}.b", "a".repeat(length));
            let name = pod_name(&dotted, b"x");
            assert!(
                name.len() <= POD_NAME_BYTES_MAX && check_dns1123_subdomain(&name).is_ok(),
                "{name}"
            );
        }
    }
}
