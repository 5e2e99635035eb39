//! Ours and its limits by turns, in random order: what a neighbour does to the machine meanwhile
//! meets all of them alike.

use headwater_loadtest::failure::Failure;
use headwater_loadtest::kernel::Cores;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Takes turns, and sees how busy the machine is meanwhile.
#[derive(Debug)]
pub(crate) struct Turns {
    chance: StdRng,
    /// Of every turn, the busiest core.
    busiest: Vec<f64>,
}

impl Turns {
    pub(crate) fn of(seed: u64) -> Self {
        Self { chance: StdRng::seed_from_u64(seed), busiest: Vec::new() }
    }

    /// Takes `rounds` rounds. In each, every one of `sides` has its turn, in random order; the
    /// results of a round lie in the order of `sides`.
    ///
    /// # Errors
    /// The first that a turn ends with.
    pub(crate) fn take<S: Copy, T, const K: usize>(
        &mut self,
        rounds: usize,
        sides: [S; K],
        mut turn: impl FnMut(S) -> Result<T, Failure>,
    ) -> Result<Vec<[T; K]>, Failure> {
        let mut done = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let mut order: Vec<usize> = (0..K).collect();
            order.shuffle(&mut self.chance);
            let mut results: [Option<T>; K] = std::array::from_fn(|_| None);
            for index in order {
                let before = Cores::now();
                results[index] = Some(turn(sides[index])?);
                let busy = Cores::now().busy_since(&before);
                self.busiest.push(busy.into_iter().fold(0.0, f64::max));
            }
            let mut results = results.into_iter().flatten();
            done.push(std::array::from_fn(|_| results.next().expect("every side had its turn")));
        }
        Ok(done)
    }

    /// How busy the busiest core was in the turn in the middle, from 0 to 1.
    pub(crate) fn busiest_core(&self) -> f64 {
        let busiest: crate::samples::Samples = self.busiest.iter().copied().collect();
        if busiest.count() == 0 { 0.0 } else { busiest.median() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(seed: u64) -> (Vec<char>, Vec<[char; 2]>) {
        let mut played = Vec::new();
        let taken = Turns::of(seed).take(16, ['a', 'b'], |side| {
            played.push(side);
            Ok(side)
        });
        (played, taken.expect("nothing fails"))
    }

    #[test]
    fn each_side_has_its_turn_in_every_round() {
        let (played, taken) = played(7);
        assert!(played.chunks(2).all(|round| round.contains(&'a') && round.contains(&'b')));
        assert!(taken.iter().all(|round| *round == ['a', 'b']), "in the order of the sides");
    }

    #[test]
    fn the_first_side_is_random_and_reproducible() {
        let (first, _) = played(7);
        let begins = |side| first.chunks(2).filter(|round| round[0] == side).count();
        assert!(begins('a') > 0 && begins('b') > 0, "{first:?}");
        assert_eq!(first, played(7).0);
        assert_ne!(first, played(8).0);
    }

    #[test]
    fn a_failure_ends_it() {
        let mut count = 0;
        let taken = Turns::of(1).take(3, [0, 1], |side| {
            count += 1;
            if side == 1 { Err(Failure::of("it broke")) } else { Ok(()) }
        });
        assert_eq!(taken.expect_err("one side fails").to_string(), "it broke");
        assert!(count <= 2);
    }
}
