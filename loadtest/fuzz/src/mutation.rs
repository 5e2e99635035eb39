//! Changes of inputs, drawn by a seed: what a run without a coverage-guided engine feeds.
//!
//! The same seed gives the same inputs, so a finding is repeated by its number.

/// The largest input that is made.
const BYTES_MAX: usize = 16 << 10;

/// Numbers at which arithmetic goes wrong, as they stand in text and in bytes.
const TEXTS: [&[u8]; 16] = [
    b"18446744073709551615",
    b"-9223372036854775808",
    b"9223372036854775807",
    b"4294967296",
    b"-1",
    b"1e309",
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"../../..",
    b"\0",
    b"\xff\xfe",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\n---\n",
    b"&a [*a, *a]",
];

/// A stream of inputs made of others.
#[derive(Debug)]
pub struct Mutations {
    state: u64,
}

impl Mutations {
    /// The inputs of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// One of `corpus`, changed in one to four places; anything if there is none.
    pub fn next_of(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match corpus.len() {
            0 => (0..self.below(64)).map(|_| self.byte()).collect(),
            count => corpus[self.below(count)].clone(),
        };
        for _ in 0..=self.below(4) {
            self.change(&mut input, corpus);
        }
        input.truncate(BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() - at + 1);
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => drop(input.drain(at..end)),
            3 => {
                let repeated = input[at..end].to_vec();
                input.splice(at..at, repeated);
            }
            4 => {
                let text = TEXTS[self.below(TEXTS.len())];
                input.splice(at..end.min(at + text.len()), text.iter().copied());
            }
            5 if !corpus.is_empty() => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let byte = self.byte();
                input.insert(at, byte);
            }
        }
    }

    fn byte(&mut self) -> u8 {
        self.draw().to_le_bytes()[0]
    }

    /// A number below `bound`; zero if there is none.
    fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        if bound == 0 { 0 } else { usize::try_from(self.draw() % bound).unwrap_or(0) }
    }

    /// SplitMix64: well known, small, and the same on every machine.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_inputs_again() {
        let corpus = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let inputs = |seed| {
            let mut mutations = Mutations::new(seed);
            (0..100).map(|_| mutations.next_of(&corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }
}
