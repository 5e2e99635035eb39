//! `cargo xtask survive`: the long form of the tests that kill processes, cut the power and
//! simulate, and of Kubernetes' own: any number of rounds, or a seed that one of them printed.

use std::process::Command;

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure};
use crate::{long_form, suite};

const USAGE: &str = "\
cargo xtask survive [crash|power|kafka|containers|sim|conformance|node-conformance|containerd-2|cri-o|cgroup-v2|gateway|kubelet...] [--rounds N] [--seed N]

  crash       kill -9 of the whole program at random moments
  power       power cuts of the whole program, on a disk that loses what was not synced
  kafka       parts as processes on a real Kafka: kill -9 and freezes of each, alone and in
              pairs, competing controllers
  containers  kill -9 of an edge, its pod worker, containerd and a pod's shim, alone and in pairs,
              under pods on a real containerd
  sim         controllers, hubs, edges and workers in one deterministic run per seed
  conformance Kubernetes' own cases on edges: a round is every case that the list has as passing,
              without rounds those of every check; it has no seed
  node-conformance
              the same with Kubernetes' cases of a node, on an edge with containers
  containerd-2
              the tests of containers on containerd 2, which is built once on a machine from Go
              modules; it has no rounds
  cri-o       pods on CRI-O, which is built once on a machine from Go modules; it has no rounds
  cgroup-v2   the tests of the control groups of pods in an emulated machine, whose kernel has version 2
              of them; it has no rounds
  gateway     an emulated machine with systemd, the units of `ops/deploy` and containerd: pods run in
              slices, and come back after power cuts; it has no rounds
  kubelet     a real kubelet is given 175 pods again, and asks its runtime for what the record has,
              to which the pod worker is compared; Kubernetes' sample of a device plugin and its
              server of metrics work with an edge; all are built once on a machine
  --rounds N  the number of rounds (default: that of `cargo xtask test`)
  --seed N    repeat the run of this seed
";

/// A test with rounds and a seed. Variables pass them, because a test takes no flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    name: &'static str,
    /// The test binaries of the workspace.
    targets: &'static [&'static str],
    /// Some tests of these binaries, by parts of their names; else all.
    tests: &'static [&'static str],
    /// A test that is run as a whole has no rounds.
    rounds: Option<&'static str>,
    /// A test without chance has none.
    seed: Option<&'static str>,
    /// What the test runs on, and that it must run.
    variables: &'static [(&'static str, &'static str)],
    emulator: Emulator,
}

/// The part of an emulated machine in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emulator {
    /// It needs none.
    Unused,
    /// The test starts it.
    Started,
    /// The test runs in it.
    Around,
}

const TESTS: [Test; 12] = [
    Test {
        name: "crash",
        targets: &["crash"],
        tests: &[],
        rounds: Some("HEADWATER_CRASH_ROUNDS"),
        seed: Some("HEADWATER_CRASH_SEED"),
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "power",
        targets: &["power"],
        tests: &[],
        rounds: Some("HEADWATER_POWER_ROUNDS"),
        seed: Some("HEADWATER_POWER_SEED"),
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "kafka",
        targets: &["survive"],
        tests: &[],
        rounds: Some("HEADWATER_SURVIVE_ROUNDS"),
        seed: Some("HEADWATER_SURVIVE_SEED"),
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "containers",
        targets: &["edge"],
        tests: &["survival::"],
        rounds: Some("HEADWATER_CONTAINERS_ROUNDS"),
        seed: Some("HEADWATER_CONTAINERS_SEED"),
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "sim",
        targets: &["seeds"],
        tests: &[],
        rounds: Some("HEADWATER_SIM_SEEDS"),
        seed: Some("HEADWATER_SIM_SEED"),
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "conformance",
        targets: &["kubernetes"],
        tests: &["conformance::"],
        rounds: Some("HEADWATER_CONFORMANCE_ROUNDS"),
        seed: None,
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "node-conformance",
        targets: &["kubernetes"],
        tests: &["node_cases::"],
        rounds: Some("HEADWATER_NODE_CONFORMANCE_ROUNDS"),
        seed: None,
        variables: &[],
        emulator: Emulator::Unused,
    },
    Test {
        name: "containerd-2",
        targets: &["conformance", "containerd", "kubelet", "lab", "pods", "spec"],
        tests: &[],
        rounds: None,
        seed: None,
        variables: &[("HEADWATER_CONTAINERD", "2"), ("CI", "true")],
        emulator: Emulator::Unused,
    },
    Test {
        name: "cri-o",
        targets: &["pods"],
        tests: &["crio::"],
        rounds: None,
        seed: None,
        variables: &[("HEADWATER_CRIO", "1"), ("CI", "true")],
        emulator: Emulator::Unused,
    },
    Test {
        name: "cgroup-v2",
        targets: &["pods"],
        tests: &["cgroups::", "resize::", "cpus::", "devices::", "eviction::", "loss::"],
        rounds: None,
        seed: None,
        variables: &[("CI", "true")],
        emulator: Emulator::Around,
    },
    Test {
        name: "gateway",
        targets: &["gateway"],
        tests: &[],
        rounds: None,
        seed: None,
        variables: &[("HEADWATER_EMULATOR", "1"), ("CI", "true")],
        emulator: Emulator::Started,
    },
    Test {
        name: "kubelet",
        targets: &["oracle", "kubernetes"],
        tests: &["a_kubelet_asks", "edged_asks", "device_plugin::", "top::"],
        rounds: None,
        seed: None,
        variables: &[("HEADWATER_KUBELET", "1")],
        emulator: Emulator::Unused,
    },
];

/// The parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    tests: Vec<Test>,
    rounds: Option<u64>,
    seed: Option<u64>,
}

/// Runs the named tests, or all of them, until the first failure.
///
/// # Errors
/// The arguments are wrong, the build fails, or a test fails.
pub(crate) fn survive(place: &Place, args: &[String]) -> Result<(), Failure> {
    let arguments = parse(args)?;
    let emulates = arguments.tests.iter().any(|test| test.emulator != Emulator::Unused);
    let work = if emulates { Work::Emulate } else { Work::Test };
    suite::prepare(place, work, Profile::Dev)?;
    suite::build(place)?;
    for test in &arguments.tests {
        eprintln!("== {}", test.name);
        let mut command = place.cargo(&["test", "--workspace", "--locked"]);
        if test.emulator == Emulator::Around {
            let emulator = place.binaries(Profile::Dev).join("headwater-emulator");
            let runner = format!("target.'cfg(unix)'.runner = ['{}', '--']", emulator.display());
            command.args(["--config", &runner]);
        }
        command.args(test.targets.iter().flat_map(|target| ["--test", target]));
        command.args(["--", "--nocapture"]).args(test.tests).envs(test.variables.iter().copied());
        if let Some(rounds) = test.rounds {
            set(&mut command, rounds, arguments.rounds);
        }
        if let Some(seed) = test.seed {
            set(&mut command, seed, arguments.seed);
        }
        step::run(&mut command)?;
        if arguments.rounds.is_some() || test.rounds.is_none() {
            long_form::passed(place, &format!("survive {}", test.name));
        }
    }
    Ok(())
}

fn set(command: &mut Command, variable: &str, value: Option<u64>) {
    if let Some(value) = value {
        command.env(variable, value.to_string());
    }
}

fn parse(args: &[String]) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let number = args.next().and_then(|text| text.parse().ok());
            number.ok_or_else(|| Failure::usage(format!("{arg}: want a number\n\n{USAGE}")))
        };
        match arg.as_str() {
            "--rounds" => arguments.rounds = Some(number()?),
            "--seed" => arguments.seed = Some(number()?),
            name => match TESTS.iter().find(|test| test.name == name) {
                Some(test) => arguments.tests.push(*test),
                None => return Err(Failure::usage(format!("no test {name:?}\n\n{USAGE}"))),
            },
        }
    }
    if arguments.tests.is_empty() {
        arguments.tests = TESTS.to_vec();
    }
    if arguments.seed.is_some() && arguments.tests.len() > 1 {
        return Err(Failure::usage(format!("a seed belongs to one test: name it\n\n{USAGE}")));
    }
    let whole = arguments.tests.iter().find(|test| test.rounds.is_none());
    if let (Some(test), Some(_), 1) = (whole, arguments.rounds, arguments.tests.len()) {
        return Err(Failure::usage(format!("{} has no rounds\n\n{USAGE}", test.name)));
    }
    let seedless = arguments.tests.iter().find(|test| test.seed.is_none());
    if let (Some(test), Some(_)) = (seedless, arguments.seed) {
        return Err(Failure::usage(format!("{} has no seed\n\n{USAGE}", test.name)));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Arguments, Failure> {
        parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn all_tests_run_unless_some_are_named() {
        assert_eq!(asked(&[]).expect("valid arguments").tests, TESTS);
        let arguments = asked(&["power", "--rounds", "300"]).expect("valid arguments");
        assert_eq!(arguments, Arguments { tests: vec![TESTS[1]], rounds: Some(300), seed: None });
        assert_eq!(asked(&["sim", "--seed", "452"]).expect("valid arguments").seed, Some(452));
        assert_eq!(asked(&["kafka"]).expect("valid arguments").tests[0].targets, ["survive"]);
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (words, named) in [
            (&["flood"][..], "flood"),
            (&["crash", "--rounds"], "--rounds"),
            (&["crash", "--rounds", "many"], "--rounds"),
            (&["--seed", "7"], "one test"),
            (&["conformance", "--seed", "7"], "no seed"),
            (&["containerd-2", "--rounds", "7"], "no rounds"),
        ] {
            let failure = asked(words).expect_err("no sense").to_string();
            assert!(failure.contains(named), "{words:?}: {failure}");
        }
    }
}
