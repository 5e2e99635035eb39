//! Finds a whole word in a text.

/// Whether `text` has `word` as a whole word. Next to a sign at the word's beginning or end, any
/// character may follow.
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
