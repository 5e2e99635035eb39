//! Lists with commas, whose items may have commas inside brackets.

/// Splits `text` at the commas outside brackets, which are given as their opening and closing letter.
pub(crate) fn split(text: &str, [open, close]: [char; 2]) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0_usize;
    for letter in text.chars() {
        if letter == open {
            depth += 1;
        } else if letter == close {
            depth = depth.saturating_sub(1);
        }
        match (letter, items.last_mut()) {
            (',', _) if depth == 0 => items.push(String::new()),
            (letter, Some(last)) => last.push(letter),
            (_, None) => {}
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_inside_brackets_is_part_of_its_item() {
        assert_eq!(split("a in (b,c),d", ['(', ')']), ["a in (b,c)", "d"]);
        assert_eq!(split("A:.a[0,1],B:.b", ['[', ']']), ["A:.a[0,1]", "B:.b"]);
        assert_eq!(split("", ['(', ')']), [""]);
        assert_eq!(split("a),b", ['(', ')']), ["a)", "b"]);
    }
}
