//! Replays the corpus of every target, and a bounded number of changes of it.
//!
//! A finding names the target and the input, as a file under `corpus` or as the seed that makes
//! it; `HEADWATER_FUZZ_SEED` and `HEADWATER_FUZZ_INPUTS` choose other inputs, and more.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use headwater_fuzz::mutation::Mutations;
use headwater_fuzz::{TARGETS, Target};

/// Changed inputs for each target: all targets together take a few seconds.
const INPUTS_DEFAULT: u64 = 1_500;

/// The seed, unless the environment names another.
const SEED_DEFAULT: u64 = 1;

/// The whole corpus stays small enough to be cloned without a thought.
const CORPUS_BYTES_MAX: u64 = 2 << 20;

#[test]
fn every_target_survives_its_corpus_and_what_is_made_of_it() {
    let seed = setting("HEADWATER_FUZZ_SEED", SEED_DEFAULT);
    let inputs = setting("HEADWATER_FUZZ_INPUTS", INPUTS_DEFAULT);
    println!("seed {seed}, {inputs} inputs for each target");
    let mut findings = Vec::new();
    for target in TARGETS {
        let files = corpus(target);
        assert!(!files.is_empty(), "{} has no corpus: it would test next to nothing", target.name);
        for (path, bytes) in &files {
            if !survives(target, bytes) {
                findings.push(path.display().to_string());
            }
        }
        let corpus: Vec<Vec<u8>> = files.into_iter().map(|(_, bytes)| bytes).collect();
        let mut mutations = Mutations::new(seed);
        for number in 0..inputs {
            let input = mutations.next_of(&corpus);
            if !survives(target, &input) {
                let (name, shown) = (target.name, input.escape_ascii());
                findings.push(format!("{name}, seed {seed}, input {number}: {shown}"));
                break;
            }
        }
    }
    assert!(findings.is_empty(), "findings:\n{}", findings.join("\n"));
}

#[test]
fn the_corpus_has_a_folder_for_each_target_and_no_other_and_is_small() {
    let mut folders: Vec<String> = fs::read_dir(root())
        .expect("the corpus")
        .map(|entry| entry.expect("a folder").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert_eq!(folders, names);
    let bytes = |target| corpus(target).iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let total: u64 = TARGETS.iter().map(bytes).sum();
    assert!(total <= CORPUS_BYTES_MAX, "the corpus has {total} bytes");
}

fn survives(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok()
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

/// Asked of cargo when the test runs: clones share what is built.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&here).join("corpus")
}

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = root().join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        (path, bytes)
    };
    files.into_iter().map(read).collect()
}
