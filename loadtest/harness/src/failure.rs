//! Why something could not be run or measured.

use std::error::Error;
use std::fmt;

use headwater_telemetry::error_chain;

/// What was tried, and why it failed.
#[derive(Debug, thiserror::Error)]
pub struct Failure {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Nothing lies below it.
    pub fn of(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// With all that lies below it.
    pub fn chain(&self) -> String {
        error_chain(self)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Adds to a failure what was tried.
pub trait Attempt<T> {
    /// `what` was tried.
    ///
    /// # Errors
    /// The failure, named.
    fn tried(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Attempt<T> for Result<T, E> {
    fn tried(self, what: &str) -> Result<T, Failure> {
        self.map_err(|source| Failure { what: what.to_owned(), source: Some(source.into()) })
    }
}

impl<T> Attempt<T> for Option<T> {
    fn tried(self, what: &str) -> Result<T, Failure> {
        self.ok_or_else(|| Failure::of(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_whole_chain() {
        let failed: Result<u8, _> = "x".parse::<u8>().tried("reading a number");
        let text = failed.expect_err("no number").chain();
        assert_eq!(text, "reading a number: invalid digit found in string");
    }
}
