//! Compares the module tables in the `//!` of a file with the modules that the file declares.
//!
//! A module table is a table with a column `module`. Tests have no row.

use super::Finding;
use super::module::declaration;

/// The heading of the column that names modules.
const HEADING: &str = "module";

/// A module, in a table or in a declaration.
#[derive(Debug, PartialEq, Eq)]
struct Module<'a> {
    name: &'a str,
    /// Counted from 1.
    line: usize,
}

/// Checks one file by its path and text.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let Some(listed) = listed(text) else { return Vec::new() };
    let declared = declared(text);
    let mut findings = Vec::new();
    for (at, module) in listed.iter().enumerate() {
        let name = module.name;
        if listed[..at].iter().any(|earlier| earlier.name == name) {
            let what = format!("the module table names `{name}` twice: remove one");
            findings.push(Finding::at(path, module.line, what));
        } else if !declared.iter().any(|one| one.name == name) {
            let what = format!("the module table names `{name}`, which is not declared here");
            findings.push(Finding::at(path, module.line, what));
        }
    }
    for Module { name, line } in declared {
        if !listed.iter().any(|one| one.name == name) {
            findings.push(Finding::at(path, line, format!("add `{name}` to the module table")));
        }
    }
    findings
}

/// The modules in the tables of a file; `None`: it has no module table.
fn listed(text: &str) -> Option<Vec<Module<'_>>> {
    let mut modules = None;
    // The column of module names in the present table; `Some(None)`: it is not a module table.
    let mut table: Option<Option<usize>> = None;
    for (at, line) in text.lines().enumerate() {
        let row = line.strip_prefix("//!").map(str::trim).filter(|row| row.starts_with('|'));
        let Some(row) = row else {
            table = None;
            continue;
        };
        let mut cells = row.split('|').skip(1).map(str::trim);
        match table {
            None => {
                let column = cells.position(|cell| cell == HEADING);
                table = Some(column);
                if column.is_some() {
                    modules.get_or_insert_with(Vec::new);
                }
            }
            Some(None) => {}
            Some(Some(column)) => {
                let cell = cells.nth(column).unwrap_or_default();
                let names = cell.split('`').skip(1).step_by(2);
                let names = names.map(|name| name.strip_prefix("mod@").unwrap_or(name));
                let modules = modules.get_or_insert_with(Vec::new);
                modules.extend(names.map(|name| Module { name, line: at + 1 }));
            }
        }
    }
    modules
}

/// The modules that a file declares, without those of tests.
fn declared(text: &str) -> Vec<Module<'_>> {
    let mut modules = Vec::new();
    let mut is_test = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = declaration(line)
            && !is_test
        {
            modules.push(Module { name, line: at + 1 });
        }
        is_test = line == "#[cfg(test)]" || is_test && line.starts_with('#');
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        check("a/src/lib.rs", text).iter().map(ToString::to_string).collect()
    }

    const TABLE: &str = "//! A crate.\n//!\n//! | module | what it owns |\n//! |---|---|\n";

    #[test]
    fn a_table_of_exactly_the_declared_modules_is_tidy() {
        let text = format!(
            "{TABLE}//! | [`a`], `b` | the `z` |\n//! | [`mod@c`](self::c) | c |\n\n\
             mod a;\npub mod b;\n#[cfg(feature = \"x\")]\npub(crate) mod c;\n\
             #[cfg(test)]\nmod tests;\n"
        );
        assert_eq!(findings(&text), [""; 0]);
    }

    #[test]
    fn a_missing_module_is_found_at_its_declaration() {
        let text = format!("{TABLE}//! | `a` | a |\n\nmod a;\nmod b;\n");
        assert_eq!(findings(&text), ["a/src/lib.rs:8: add `b` to the module table"]);
    }

    #[test]
    fn an_undeclared_or_repeated_module_is_found_at_its_row() {
        let text = format!("{TABLE}//! | `a` | a |\n//! | `a`, `b` | more |\n\nmod a;\n");
        assert_eq!(
            findings(&text),
            [
                "a/src/lib.rs:6: the module table names `a` twice: remove one",
                "a/src/lib.rs:6: the module table names `b`, which is not declared here",
            ]
        );
    }

    #[test]
    fn the_column_of_modules_may_be_any() {
        let table = "//! | invariant | module |\n//! |---|---|\n//! | `x <= y` | [`a`] |\n";
        assert_eq!(findings(&format!("{table}\nmod a;\n")), [""; 0]);
        assert_eq!(findings(&format!("{table}\nmod b;\n")).len(), 2);
    }

    #[test]
    fn other_tables_and_files_without_one_are_free() {
        let other = "//! | word | meaning |\n//! |---|---|\n//! | `a` | a |\n";
        assert_eq!(findings(&format!("{other}\nmod b;\n")), [""; 0]);
        assert_eq!(findings("//! A crate.\n\nmod b;\n"), [""; 0]);
        let both = format!("{other}//!\n{TABLE}//! | `b` | b |\n\nmod b;\n");
        assert_eq!(findings(&both), [""; 0]);
    }
}
