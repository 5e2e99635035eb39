//! Finds dependencies that are declared and not used.
//!
//! By name: a crate that appears nowhere in the source is not used. One that appears only in a
//! comment passes; that is what reviewers are for.

use super::manifest::Table;
use super::tree::{Crate, File};
use super::{Finding, word};

/// What generated code names and no file of ours does.
const GENERATED: [(&str, &str); 3] = [
    ("headwater-proto", "prost"),
    ("headwater-proto", "prost-types"),
    ("headwater-proto", "tonic-prost"),
];

/// The dependencies of one crate that none of its files names.
pub(crate) fn of_crate(one: &Crate, files: &[&File]) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", one.folder);
    let build_script = format!("{}/build.rs", one.folder);
    let has_build_script = files.iter().any(|file| file.path == build_script);
    let unused = one.manifest.dependencies.iter().filter(|dependency| {
        let generated = (one.manifest.name.as_str(), dependency.name.as_str());
        let is_for_build = dependency.table == Table::Build;
        // A crate may mean itself, for a feature its tests need. A build dependency without a
        // build script is never built: it is there for the features it asks for.
        let is_for_features =
            dependency.name == one.manifest.name || is_for_build && !has_build_script;
        if is_for_features || GENERATED.contains(&generated) {
            return false;
        }
        let name = dependency.name.replace('-', "_");
        let mut searched = files.iter().filter(|file| (file.path == build_script) == is_for_build);
        !searched.any(|file| word::holds(&file.text, &name))
    });
    unused
        .map(|dependency| {
            Finding::at(&path, dependency.line, format!("{} is not used", dependency.name))
        })
        .collect()
}

/// The dependencies that the workspace declares and no crate asks for.
pub(crate) fn of_workspace(crates: &[Crate], root: &str) -> Vec<Finding> {
    let table =
        root.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.dependencies]");
    let table = table.skip(1).take_while(|(_, line)| !line.starts_with('['));
    let declared = table.filter_map(|(at, line)| Some((at, line.split_once(" = ")?.0)));
    let is_used = |name: &str| {
        let mut all = crates.iter().flat_map(|one| &one.manifest.dependencies);
        all.any(|dependency| dependency.name == name)
    };
    declared
        .filter(|(_, name)| !name.starts_with('#') && !is_used(name))
        .map(|(at, name)| Finding::at("Cargo.toml", at + 1, format!("no crate uses {name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Manifest;
    use super::*;

    #[test]
    fn a_dependency_that_no_file_names_is_found() {
        let manifest = Manifest::parse(
            "[dependencies]\na-b.workspace = true\nc.workspace = true\n\
             [build-dependencies]\nd.workspace = true\n",
        );
        let one = Crate { folder: "x".into(), manifest };
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [file("x/src/lib.rs", "use a_b::C; use cc;"), file("x/build.rs", "c::d();")];
        let files: Vec<_> = files.iter().collect();
        assert_eq!(of_crate(&one, &files), [Finding::at("x/Cargo.toml", 3, "c is not used")]);
    }

    #[test]
    fn a_workspace_dependency_that_no_crate_asks_for_is_found() {
        let manifest = Manifest::parse("[dependencies]\na.workspace = true\n");
        let crates = [Crate { folder: "x".into(), manifest }];
        let root =
            "[workspace.dependencies]\na = \"1\"\n# why\nb = \"2\"\n\n[profile.dev]\nc = 1\n";
        assert_eq!(of_workspace(&crates, root), [Finding::at("Cargo.toml", 4, "no crate uses b")]);
    }
}
