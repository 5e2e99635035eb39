//! The part of a package's `Cargo.toml` that the rules check: name, lints and dependencies.

use toml::{Table, Value};

/// A package's name and its dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Whether the package inherits the lints of the workspace.
    pub(crate) inherits_lints: bool,
}

/// One dependency of a package, for every target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether version and features come from the workspace. A package that depends on itself
    /// counts too: its tests need one of its features.
    pub(crate) is_inherited: bool,
}

/// The table that declares a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// The tables, in the order in which [`Manifest::dependencies`] lists them.
const TABLES: [(&str, Kind); 3] = [
    ("dependencies", Kind::Normal),
    ("build-dependencies", Kind::Build),
    ("dev-dependencies", Kind::Dev),
];

impl Manifest {
    /// Reads a package's `Cargo.toml`.
    ///
    /// # Errors
    /// The text is not TOML.
    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let root: Table = text.parse()?;
        let mut manifest = Self::default();
        if let Some(name) = table(&root, "package").and_then(|package| package.get("name")) {
            manifest.name = name.as_str().unwrap_or_default().to_owned();
        }
        let lints = table(&root, "lints").and_then(|lints| lints.get("workspace"));
        manifest.inherits_lints = lints.and_then(Value::as_bool) == Some(true);
        manifest.add(&root);
        for target in table(&root, "target").into_iter().flat_map(Table::values) {
            manifest.add(target.as_table().unwrap_or(&Table::new()));
        }
        Ok(manifest)
    }

    /// Adds the dependencies that the tables of `parent` declare.
    fn add(&mut self, parent: &Table) {
        for (name, kind) in TABLES {
            for (name, value) in table(parent, name).into_iter().flatten() {
                let is = |key, wanted: Value| value.get(key) == Some(&wanted);
                let is_inherited = is("workspace", true.into()) || is("path", ".".into());
                self.dependencies.push(Dependency { name: name.clone(), kind, is_inherited });
            }
        }
    }
}

fn table<'a>(parent: &'a Table, name: &str) -> Option<&'a Table> {
    parent.get(name)?.as_table()
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
        )
        .expect("TOML");
        let dependency =
            |name: &str, kind, is_inherited| Dependency { name: name.into(), kind, is_inherited };
        assert_eq!(manifest.name, "x");
        assert!(manifest.inherits_lints);
        assert_eq!(
            manifest.dependencies,
            [
                dependency("a", Kind::Normal, true),
                dependency("b", Kind::Normal, false),
                dependency("d", Kind::Build, true),
                dependency("c", Kind::Dev, true),
                dependency("x", Kind::Dev, true),
            ]
        );
    }
}
