//! An error with its sources, in one line.

use std::error::Error;

/// Joins the error's text and those of its sources with `: `. A source whose text is already
/// there is left out: many errors repeat their source.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        source: Option<Box<Step>>,
    }

    fn step(text: &'static str, source: Option<Step>) -> Step {
        Step { text, source: source.map(Box::new) }
    }

    #[test]
    fn each_source_appears_once() {
        let error = step("open", Some(step("open: denied", Some(step("denied", None)))));
        assert_eq!(error_chain(&error), "open: open: denied");
        assert_eq!(error_chain(&step("alone", None)), "alone");
    }
}
