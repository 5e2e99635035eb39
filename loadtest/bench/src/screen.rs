//! What is shown while it is measured, and at the end.

use std::fmt::Write as _;

use crate::results::{Results, Section};

/// One row as it was measured.
pub(crate) fn section(section: &Section) -> String {
    let mut text = String::new();
    for figure in &section.measured.figures {
        let limit = figure.limit.as_ref().map_or("-".to_owned(), |(_, theirs)| theirs.to_string());
        let bounds = figure.bound.map_or(String::new(), |bound| {
            format!("floor {}, target {}: ", bound.show(bound.floor), bound.show(bound.target))
        });
        let _ = writeln!(
            text,
            "{:<44} {:>26} of {:>26} = {:>20}  N {:<3} {bounds}{}",
            figure.what,
            figure.ours.to_string(),
            limit,
            figure.judged.to_string(),
            figure.judged.count(),
            section.verdict(figure),
        );
    }
    for note in &section.measured.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}

/// Every known row with its verdict.
pub(crate) fn summary(results: &Results) -> String {
    let mut text = String::from("\nrow                figure\n");
    for section in results.sections() {
        for figure in &section.measured.figures {
            let Some(bound) = figure.bound else { continue };
            let _ = writeln!(
                text,
                "{:>3} {:<14} {:<44} {:>8} {:>8}  {:<24} {}",
                section.number,
                section.name,
                figure.what,
                bound.show(bound.floor),
                bound.show(bound.target),
                figure.judged.to_string(),
                section.verdict(figure),
            );
        }
    }
    text
}
