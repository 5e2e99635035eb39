//! The clone that owns the builds of our own crates in the cache.
//!
//! Clones share one cache, and cargo rebuilds a crate only if a source is newer than its build: an
//! older clone would run the programs of a younger one. The cache therefore names the clone that
//! built last. Another clone first removes the builds of our own crates, which take minutes, and
//! keeps those of the dependencies, which take a quarter of an hour or more.

use std::fs;

use crate::place::{Place, Profile};
use crate::step::{self, Failure};

/// The file in the build folder that names the owner.
const NAME: &str = "built-by";

/// Makes this clone the owner and removes the builds of another clone's sources.
///
/// # Errors
/// The build folder cannot be cleaned or written.
pub(crate) fn claim(place: &Place) -> Result<(), Failure> {
    let file = place.target.join(NAME);
    let here = place.root.display().to_string();
    let before = fs::read_to_string(&file).unwrap_or_default();
    if before == here {
        return Ok(());
    }
    if !before.is_empty() {
        eprintln!("xtask: the cache holds another clone's build: building our own crates anew");
        for profile in [Profile::Dev, Profile::Release] {
            if place.binaries(profile).is_dir() {
                let clean = ["clean", "--workspace", "--quiet", "--profile", profile.name()];
                step::run(&mut place.cargo(&clean))?;
            }
        }
    }
    fs::create_dir_all(&place.target)
        .and_then(|()| fs::write(&file, here))
        .map_err(|error| Failure::new(format!("{} cannot be written: {error}", file.display())))
}
