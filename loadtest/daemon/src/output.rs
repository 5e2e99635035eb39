//! The end of a long output.

use std::path::Path;

/// The part of an output that an error quotes: enough for the cause of a stack trace.
const TAIL_BYTES: usize = 4 << 10;

/// The end of the file `log`; empty if it cannot be read.
pub fn tail(log: &Path) -> String {
    end_of(&String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()))
}

pub(crate) fn end_of(text: &str) -> String {
    let from = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES));
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let text = "ä".repeat(TAIL_BYTES);
        assert_eq!(end_of(&text).len(), TAIL_BYTES);
        assert_eq!(end_of(&format!("{text}x")).len(), TAIL_BYTES - 1);
        assert_eq!(end_of("short"), "short");
    }
}
