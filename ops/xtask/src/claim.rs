//! Whose build the cache holds.
//!
//! Clones share one cache, and cargo takes a source as built when it is not newer than what was
//! built from it: an older clone would run the programs of a younger one. So the cache carries
//! the name of the clone that built last, and the next one drops what was built from ours, which
//! takes minutes to build, and keeps the dependencies, which take a quarter of an hour.

use std::fs;

use crate::place::{Place, Profile};
use crate::step::{self, Failure};

/// The file in the build folder that names the clone.
const NAME: &str = "built-by";

/// Sees to it that nothing in the build folder comes from another clone's sources.
///
/// # Errors
/// When the build folder cannot be cleaned or written.
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
