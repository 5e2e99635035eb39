//! A figure that is to stay what it is.

/// The figure when it was last reviewed, and the allowed deviation. An improved figure is updated, so
/// that it cannot get worse again.
pub(crate) struct Figure {
    /// What it counts.
    pub(crate) what: &'static str,
    /// How many.
    pub(crate) is: f64,
    /// The part of it by which it may differ.
    pub(crate) within: f64,
}

/// Prints what was seen of each, and fails where one is another.
pub(crate) fn witness<const N: usize>(figures: [(Figure, f64); N]) {
    let mut others = Vec::new();
    for (Figure { what, is, within }, seen) in figures {
        println!("{what}: {seen:.3}, to be {is} within {:.0} %", within * 100.0);
        if (seen - is).abs() > is * within {
            others.push(format!("{what}: {seen:.3}, where it was {is}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// So many for each of so many.
pub(crate) fn each(count: u64, of: u64) -> f64 {
    count as f64 / of as f64
}
