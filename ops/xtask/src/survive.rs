//! `cargo xtask survive`: the tests that kill processes, cut the power and simulate, for as long as
//! is asked, or with a seed that one of them printed.

use std::process::Command;

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure};
use crate::suite;

const USAGE: &str = "\
cargo xtask survive [crash|power|kafka|sim...] [--rounds N] [--seed N]

  crash       kill -9 of the whole program at random moments
  power       power cuts of the whole program, on a disk that forgets what was not synced
  kafka       parts as processes on a real Kafka: kill -9 and freezes of each, alone and in
              pairs, controllers that fight
  sim         controllers, hubs, edges and workers in one deterministic run a seed
  --rounds N  how many (default: as many as every test run has)
  --seed N    the same again; of sim, this one
";

/// A test that takes rounds and a seed: from variables, because a test takes no flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    name: &'static str,
    /// The test binary of the workspace.
    target: &'static str,
    rounds: &'static str,
    seed: &'static str,
}

const TESTS: [Test; 4] = [
    Test {
        name: "crash",
        target: "crash",
        rounds: "HEADWATER_CRASH_ROUNDS",
        seed: "HEADWATER_CRASH_SEED",
    },
    Test {
        name: "power",
        target: "power",
        rounds: "HEADWATER_POWER_ROUNDS",
        seed: "HEADWATER_POWER_SEED",
    },
    Test {
        name: "kafka",
        target: "survive",
        rounds: "HEADWATER_SURVIVE_ROUNDS",
        seed: "HEADWATER_SURVIVE_SEED",
    },
    Test {
        name: "sim",
        target: "seeds",
        rounds: "HEADWATER_SIM_SEEDS",
        seed: "HEADWATER_SIM_SEED",
    },
];

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    tests: Vec<Test>,
    rounds: Option<u64>,
    seed: Option<u64>,
}

/// Runs the tests that are named, or all; the first failure ends it.
///
/// # Errors
/// When the arguments make no sense, something does not build, or a test fails.
pub(crate) fn survive(place: &Place, args: &[String]) -> Result<(), Failure> {
    let wish = wish(args)?;
    suite::prepare(place, Work::Test, Profile::Dev)?;
    suite::build(place)?;
    for test in &wish.tests {
        eprintln!("== {}", test.name);
        let args = ["test", "--workspace", "--locked", "--test", test.target];
        let mut command = place.cargo(&args);
        command.args(["--", "--nocapture"]);
        say(&mut command, test.rounds, wish.rounds);
        say(&mut command, test.seed, wish.seed);
        step::run(&mut command)?;
    }
    Ok(())
}

fn say(command: &mut Command, variable: &str, value: Option<u64>) {
    if let Some(value) = value {
        command.env(variable, value.to_string());
    }
}

fn wish(args: &[String]) -> Result<Wish, Failure> {
    let mut wish = Wish::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let number = args.next().and_then(|text| text.parse().ok());
            number.ok_or_else(|| Failure::usage(format!("{arg}: want a number\n\n{USAGE}")))
        };
        match arg.as_str() {
            "--rounds" => wish.rounds = Some(number()?),
            "--seed" => wish.seed = Some(number()?),
            name => match TESTS.iter().find(|test| test.name == name) {
                Some(test) => wish.tests.push(*test),
                None => return Err(Failure::usage(format!("no test {name:?}\n\n{USAGE}"))),
            },
        }
    }
    if wish.tests.is_empty() {
        wish.tests = TESTS.to_vec();
    }
    if wish.seed.is_some() && wish.tests.len() > 1 {
        return Err(Failure::usage(format!("a seed is of one test: name it\n\n{USAGE}")));
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Wish, Failure> {
        wish(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn all_tests_are_meant_unless_some_are_named() {
        assert_eq!(asked(&[]).expect("a wish").tests, TESTS);
        let wish = asked(&["power", "--rounds", "300"]).expect("a wish");
        assert_eq!(wish, Wish { tests: vec![TESTS[1]], rounds: Some(300), seed: None });
        assert_eq!(asked(&["sim", "--seed", "452"]).expect("a wish").seed, Some(452));
        assert_eq!(asked(&["kafka"]).expect("a wish").tests[0].target, "survive");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (words, named) in [
            (&["flood"][..], "flood"),
            (&["crash", "--rounds"], "--rounds"),
            (&["crash", "--rounds", "many"], "--rounds"),
            (&["--seed", "7"], "one test"),
        ] {
            let failure = asked(words).expect_err("no sense").to_string();
            assert!(failure.contains(named), "{words:?}: {failure}");
        }
    }
}
