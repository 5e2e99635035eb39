//! Finds Rust files that no `mod` declaration reaches: the compiler never reads them, so their
//! errors stay hidden.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::File;

/// The files of the crate in `folder` that its roots do not reach.
pub(crate) fn unreached(folder: &str, files: &[&File]) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&File> =
        files.iter().copied().filter(|file| is_root(folder, &file.path)).collect();
    while let Some(file) = waiting.pop() {
        if !reached.insert(&file.path) {
            continue;
        }
        let below = folder_of_children(folder, &file.path);
        for name in declared(&file.text) {
            let child = format!("{below}/{name}.rs");
            waiting.extend(files.iter().copied().filter(|file| file.path == child));
        }
        let beside = file.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        for path in placed(&file.text) {
            let child = format!("{beside}/{path}");
            waiting.extend(files.iter().copied().filter(|file| file.path == child));
        }
    }
    let dead = files.iter().filter(|file| !reached.contains(&file.path));
    dead.map(|file| Finding::of(&file.path, "no `mod` declares it: declare or delete it")).collect()
}

/// Whether cargo compiles the file by itself.
fn is_root(folder: &str, path: &str) -> bool {
    let Some(inside) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let parts: Vec<_> = inside.split('/').collect();
    matches!(
        parts.as_slice(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["tests" | "benches" | "examples", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
    )
}

/// The folder of the modules that a file declares.
fn folder_of_children<'a>(folder: &str, path: &'a str) -> &'a str {
    if is_root(folder, path) {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    } else {
        path.strip_suffix(".rs").unwrap_or(path)
    }
}

/// The names in lines of the form `mod name;`, with or without a visibility.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| declaration(line.trim()))
}

/// The module that a line declares.
pub(super) fn declaration(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.rsplit_once(' ')?;
    let is_declaration = before == "mod" || before.ends_with(" mod") && before.starts_with("pub");
    is_declaration.then_some(name)
}

/// The paths in lines of the form `#[path = "..."]`, by which tests share modules.
fn placed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| File { path: format!("a/b/{path}"), text: (*text).into() })
            .collect();
        let files: Vec<_> = files.iter().collect();
        unreached("a/b", &files).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_file_that_is_declared_is_alive() {
        let files = [
            ("src/lib.rs", "//! x\n\nmod one;\npub(crate) mod two;\n"),
            ("src/one.rs", "#[cfg(test)]\nmod tests;\n"),
            ("src/one/tests.rs", ""),
            ("src/two.rs", "pub mod deep;"),
            ("src/two/deep.rs", ""),
            ("tests/whole.rs", "#[path = \"part/x.rs\"]\nmod y;"),
            ("tests/part/x.rs", ""),
            ("tests/many/main.rs", "mod part;"),
            ("tests/many/part.rs", ""),
            ("build.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_not_declared_is_dead() {
        let files = [
            ("src/lib.rs", "mod one;\n// mod gone;\n"),
            ("src/one.rs", ""),
            ("src/gone.rs", "mod child;"),
            ("src/gone/child.rs", ""),
            ("src/child.rs", ""),
        ];
        assert_eq!(dead(&files), ["a/b/src/gone.rs", "a/b/src/gone/child.rs", "a/b/src/child.rs"]);
    }
}
