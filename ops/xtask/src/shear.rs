//! cargo-shear: dependencies that are declared and not used, or in the wrong table.

use crate::place::Place;
use crate::step::{self, Failure};
use crate::tool::Tool;

/// The newest version that builds with the oldest Rust of this workspace.
const SHEAR: Tool = Tool { name: "cargo-shear", version: "1.13.0" };

/// Builds cargo-shear into the cache unless it is there.
///
/// # Errors
/// cargo-shear does not build.
pub(crate) fn install(place: &Place) -> Result<(), Failure> {
    SHEAR.install(place)
}

/// Checks every manifest of the workspace. Exceptions and their reasons are in the manifests,
/// under `package.metadata.cargo-shear`.
///
/// # Errors
/// A dependency is not used.
pub(crate) fn check(place: &Place) -> Result<(), Failure> {
    step::run(SHEAR.command(place).arg("--locked"))
}
