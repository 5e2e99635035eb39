//! Chance, from a source that is an argument.

use std::fmt;

use uuid::Builder;

/// Draws from the source of a seed.
pub(crate) struct Chance(Box<dyn FnMut() -> u64 + Send>);

/// The letters of a generated name: no vowels, so no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The letters that are appended to a generated name.
const NAME_LETTERS: usize = 5;

impl Chance {
    pub(crate) fn new(draw: impl FnMut() -> u64 + Send + 'static) -> Self {
        Self(Box::new(draw))
    }

    /// A number below `bound`; 0 where that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { (self.0)() % bound }
    }

    /// Whether something of this probability happens. What is impossible draws nothing.
    pub(crate) fn happens(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.below(1000) < per_mille.into()
    }

    pub(crate) fn uid(&mut self) -> String {
        let bits = u128::from((self.0)()) << 64 | u128::from((self.0)());
        Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }

    /// The end of a generated name.
    pub(crate) fn name_end(&mut self) -> String {
        let bound = LETTERS.len() as u64;
        let letter = |_| {
            let at = usize::try_from(self.below(bound)).unwrap_or(0);
            char::from(LETTERS[at])
        };
        (0..NAME_LETTERS).map(letter).collect()
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}
