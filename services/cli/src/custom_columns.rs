//! `-o custom-columns`: a table whose columns are named paths.

use serde_json::Value;

use crate::comma_list;
use crate::exit::Failure;
use crate::path::{self, Path};

/// The text of a cell without a value.
const NONE: &str = "<none>";

/// The columns of `-o custom-columns`, each with its header.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumns(Vec<(String, Path)>);

impl CustomColumns {
    /// Parses `NAME:.metadata.name,NODE:.spec.nodeName`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let columns = comma_list::split(text, ['[', ']']).into_iter().map(|column| {
            let (header, path) = column
                .split_once(':')
                .filter(|(header, path)| !header.is_empty() && !path.is_empty())
                .ok_or_else(|| {
                    format!("{column:?} is no HEADER:PATH; write it like NAME:.metadata.name")
                })?;
            let path = Path::parse(path).map_err(|failure| match failure {
                Failure::Usage(text) => text,
                other => format!("{other:?}"),
            })?;
            Ok((header.to_owned(), path))
        });
        columns.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn header(&self) -> Vec<String> {
        self.0.iter().map(|(header, _)| header.clone()).collect()
    }

    /// The cells of one object. Several values of a cell are separated by commas.
    pub(crate) fn cells(&self, object: &Value) -> Vec<String> {
        let cell = |path: &Path| {
            let values = path.all(object);
            let values: Vec<String> =
                values.into_iter().filter(|value| !value.is_null()).map(path::text).collect();
            if values.is_empty() { NONE.to_owned() } else { values.join(",") }
        };
        self.0.iter().map(|(_, path)| cell(path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_column_is_a_path() {
        let columns = CustomColumns::parse(
            "NAME:.metadata.name,Images:{.spec.containers[*].image},L:.metadata.labels['a','b'],N:x",
        );
        let columns = columns.expect("well-formed");
        assert_eq!(columns.header(), ["NAME", "Images", "L", "N"]);
        let pod = json!({
            "metadata": {"name": "web", "labels": {"a": "1", "b": 2}},
            "spec": {"containers": [{"image": "x"}, {"image": "y"}]},
            "x": null,
        });
        assert_eq!(columns.cells(&pod), ["web", "x,y", "1,2", "<none>"]);
    }

    #[test]
    fn a_malformed_column_is_named() {
        for (text, named) in [
            ("", "\"\" is no HEADER:PATH"),
            ("NAME", "\"NAME\" is no HEADER:PATH"),
            ("NAME:.metadata.name,", "\"\" is no HEADER:PATH"),
            ("NAME:", "\"NAME:\" is no HEADER:PATH"),
            ("NAME:.a[", "a bracket is not closed"),
        ] {
            let error = CustomColumns::parse(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
