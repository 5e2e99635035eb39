//! Finding a word in a text, and not as a piece of a longer one.

/// Whether `text` holds `word` by itself. Where the word begins or ends with a sign, anything
/// may stand beside it there.
pub(crate) fn holds(text: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let joins_before = is_letter(word.chars().next());
    let joins_after = is_letter(word.chars().next_back());
    text.match_indices(word).any(|(at, _)| {
        let longer_before = joins_before && is_letter(text[..at].chars().next_back());
        let longer_after = joins_after && is_letter(text[at + word.len()..].chars().next());
        !longer_before && !longer_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_longer_word_is_not_the_word() {
        assert!(holds("use a_b::C;", "a_b"));
        assert!(holds("a_bc, a_b", "a_b"));
        assert!(!holds("a_bc, xa_b", "a_b"));
        assert!(holds("call!(x)", "call!("));
        assert!(!holds("recall!(x)", "call!("));
    }
}
