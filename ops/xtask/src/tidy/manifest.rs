//! The part of a package's `Cargo.toml` that the rules ask about: name and dependencies.
//!
//! Reads the plain form that this tree uses, one dependency a line; not TOML at large.

/// A package's name and what it depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Whether the lints of the workspace hold here.
    pub(crate) inherits_lints: bool,
}

/// One line of a dependency table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) table: Table,
    /// Whether version and features come from the workspace, or the crate means itself, as one
    /// does whose tests need a feature of its own.
    pub(crate) is_inherited: bool,
}

/// Which table a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Normal,
    Build,
    Dev,
}

impl Manifest {
    /// Reads a package's `Cargo.toml`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut section = "";
        for (line, text) in text.lines().enumerate() {
            let text = text.trim();
            if let Some(header) = text.strip_prefix('[') {
                section = header.trim_end_matches(']');
                continue;
            }
            let Some((key, value)) = text.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key.starts_with('#') {
                continue;
            }
            let table = match section {
                "package" if key == "name" => {
                    manifest.name = value.trim_matches('"').to_owned();
                    continue;
                }
                "lints" if key == "workspace" => {
                    manifest.inherits_lints = value == "true";
                    continue;
                }
                _ if section.ends_with("dev-dependencies") => Table::Dev,
                _ if section.ends_with("build-dependencies") => Table::Build,
                _ if section.ends_with("dependencies") => Table::Normal,
                _ => continue,
            };
            let name = key.split('.').next().unwrap_or(key).to_owned();
            let is_inherited = key.ends_with(".workspace")
                || value.contains("workspace = true")
                || value.contains("path = \".\"");
            manifest.dependencies.push(Dependency { name, line: line + 1, table, is_inherited });
        }
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_dependency_is_read() {
        let manifest = Manifest::parse(
            "[package]\nname = \"x\"\n\n[dependencies]\n# none = \"1\"\na.workspace = true\n\
             b = \"1\"\n\n[target.'cfg(unix)'.dev-dependencies]\nc = { workspace = true }\n\
             x = { path = \".\", features = [\"testing\"] }\n\
             [build-dependencies]\nd.workspace = true\n\n[lints]\nworkspace = true\n",
        );
        let dependency = |name: &str, line, table, is_inherited| Dependency {
            name: name.into(),
            line,
            table,
            is_inherited,
        };
        assert_eq!(manifest.name, "x");
        assert!(manifest.inherits_lints);
        assert_eq!(
            manifest.dependencies,
            [
                dependency("a", 6, Table::Normal, true),
                dependency("b", 7, Table::Normal, false),
                dependency("c", 10, Table::Dev, true),
                dependency("x", 11, Table::Dev, true),
                dependency("d", 13, Table::Build, true),
            ]
        );
    }
}
