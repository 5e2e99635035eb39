//! `cargo xtask fuzz`: runs fuzz targets guided by coverage.
//!
//! The engine is LLVM's libFuzzer; stable Rust can be instrumented for it. Its entry point is an
//! unsafe declaration and its library is C++, so neither is part of the workspace. [`package`]
//! writes a small package into the cache that joins the engine to the table of targets, with the
//! versions of the workspace's lock file.
//!
//! Each target has a corpus in the cache that grows from run to run. `--keep` reduces it to the
//! inputs that add coverage and copies some of them into the clone.

mod package;

use std::fs;
use std::path::{Path, PathBuf};

use crate::long_form;
use crate::place::Place;
use crate::step::{self, Failure, Steps};

/// The default run time of each target, in seconds.
const SECONDS_DEFAULT: u32 = 60;

/// The largest input, in bytes: the beginning of an input decides what a decoder does.
const INPUT_BYTES_MAX: u32 = 4096;

/// The largest input that is copied into the clone, in bytes: many small inputs cover more than a
/// large one.
const KEPT_BYTES_MAX: u32 = 1024;

/// The most inputs of one target that are copied into the clone, spread over all sizes.
const KEPT_FILES_MAX: usize = 60;

/// The size of a target's corpus in the clone, in bytes: forty targets stay below 2 MiB.
const KEPT_TOTAL_BYTES_MAX: u64 = 48 << 10;

/// The memory limit of one input, in MiB.
const MEMORY_MIB_MAX: u32 = 2048;

/// The time limit of one input, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

const USAGE: &str = "\
cargo xtask fuzz [TARGET...] [--seconds N] [--keep]

  TARGET       names of targets; none means all
  --seconds N  how long each runs (default: 60)
  --keep       put some of what adds coverage into the clone's corpus
";

/// The parsed arguments.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    targets: Vec<String>,
    seconds: u32,
    keep: bool,
}

/// Runs targets until the first finding, whose failure says how to repeat it.
///
/// # Errors
/// The arguments are wrong, the build fails, or a target has a finding.
pub(crate) fn fuzz(place: &Place, args: &[String]) -> Result<(), Failure> {
    let targets = targets(place)?;
    let arguments = parse(args, &targets)?;
    let cache = place.cache.join("fuzz");
    let mut steps = Steps::default();
    let mut program = PathBuf::new();
    steps.take("build", || {
        program = package::build(place, &cache)?;
        Ok(())
    })?;
    for name in &arguments.targets {
        eprintln!("== {name}");
        run(place, &cache, &program, name, arguments.seconds)?;
        if arguments.keep {
            keep(place, &cache, &program, name)?;
        }
    }
    if arguments.targets.len() == targets.len() {
        long_form::passed(place, "fuzz");
    }
    Ok(())
}

/// The names of all targets: each has a folder in the corpus, which a test checks.
fn targets(place: &Place) -> Result<Vec<String>, Failure> {
    let corpus = corpus(place);
    let entries = fs::read_dir(&corpus)
        .map_err(|error| Failure::new(format!("cannot list {}: {error}", corpus.display())))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn corpus(place: &Place) -> PathBuf {
    place.root.join("loadtest/fuzz/corpus")
}

fn parse(args: &[String], known: &[String]) -> Result<Arguments, Failure> {
    let mut arguments = Arguments { targets: Vec::new(), seconds: SECONDS_DEFAULT, keep: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--keep" => arguments.keep = true,
            "--seconds" => {
                let seconds = args.next().and_then(|text| text.parse().ok());
                let seconds = seconds.filter(|seconds| *seconds > 0);
                arguments.seconds =
                    seconds.ok_or_else(|| Failure::usage("--seconds: want a number above 0"))?;
            }
            name if known.iter().any(|target| target == name) => {
                arguments.targets.push(name.into())
            }
            other => {
                let known = known.join(", ");
                let text = format!("no target {other:?}; there are {known}\n\n{USAGE}");
                return Err(Failure::usage(text));
            }
        }
    }
    if arguments.targets.is_empty() {
        arguments.targets = known.to_vec();
    }
    Ok(arguments)
}

fn run(
    place: &Place,
    cache: &Path,
    program: &Path,
    name: &str,
    seconds: u32,
) -> Result<(), Failure> {
    let corpus_found = made(&cache.join("corpus").join(name))?;
    let findings = made(&cache.join("findings").join(name))?;
    let mut command = package::command(program, name);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .arg(corpus_found)
        .arg(corpus(place).join(name));
    step::run(&mut command).map_err(|failure| {
        let folder = findings.display();
        let text = "the input is in FOLDER: fix the cause, then copy the input into";
        let text = text.replace("FOLDER", &folder.to_string());
        Failure::new(format!("{failure}\n{text} loadtest/fuzz/corpus/{name}"))
    })
}

/// Copies inputs that add coverage into the clone.
fn keep(place: &Place, cache: &Path, program: &Path, name: &str) -> Result<(), Failure> {
    let merged = cache.join("merged").join(name);
    if merged.is_dir() {
        fs::remove_dir_all(&merged)
            .map_err(|error| Failure::new(format!("cannot empty {}: {error}", merged.display())))?;
    }
    let merged = made(&merged)?;
    let kept = corpus(place).join(name);
    let mut command = package::command(program, name);
    command
        .arg("-merge=1")
        .arg(format!("-max_len={KEPT_BYTES_MAX}"))
        .arg(&merged)
        .arg(&kept)
        .arg(cache.join("corpus").join(name));
    step::run(&mut command)?;
    let failed = |error: std::io::Error| Failure::new(format!("cannot keep a corpus: {error}"));
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&merged).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        inputs.push((entry.metadata().map_err(failed)?.len(), entry.path()));
    }
    inputs.sort();
    // A person added each input that is not named by its hash; those stay.
    for entry in fs::read_dir(&kept).map_err(failed)?.flatten() {
        if is_hash(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    let step = inputs.len().div_ceil(KEPT_FILES_MAX).max(1);
    let mut total = 0;
    for (bytes, path) in inputs.into_iter().step_by(step) {
        total += bytes;
        if total > KEPT_TOTAL_BYTES_MAX {
            break;
        }
        if let Some(name) = path.file_name() {
            fs::copy(&path, kept.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Whether libFuzzer named the file: by the SHA-1 of its content.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn made(folder: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(folder)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    Ok(folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<Arguments, Failure> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        parse(&args, &["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn all_targets_run_for_a_minute_by_default() {
        let all = asked(&[]).expect("no argument is required");
        assert_eq!((all.targets.len(), all.seconds, all.keep), (2, 60, false));
        let one = asked(&["two", "--seconds", "5", "--keep"]).expect("this is allowed");
        let targets = vec!["two".to_owned()];
        assert_eq!(one, Arguments { targets, seconds: 5, keep: true });
    }

    #[test]
    fn an_unknown_target_is_named() {
        let failure = asked(&["three"]).expect_err("there is none");
        assert!(failure.to_string().contains("one, two"), "{failure}");
        assert!(asked(&["--seconds"]).is_err());
        assert!(asked(&["--seconds", "0"]).is_err());
    }

    #[test]
    fn a_name_that_a_person_gave_is_no_hash() {
        assert!(is_hash("da39a3ee5e6b4b0d3255bfef95601890afd80709"));
        assert!(!is_hash("deep-nesting"));
    }
}
