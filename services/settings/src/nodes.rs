//! Which nodes there are: a number of them, or their names.

use headwater_event::{NameError, NodeName};
use serde::{Deserialize, Deserializer};

/// The most nodes that one process is asked to be.
pub const NODES_MAX: usize = 10_000;

/// It is neither a number in range nor a list of node names.
#[derive(Debug, thiserror::Error)]
#[error("{given:?}: {reason}")]
pub struct NodesError {
    given: String,
    reason: String,
}

/// The names of the nodes in `given`: `node-1`, `node-2`, ... where it is a number.
///
/// # Errors
/// See [`NodesError`].
pub fn node_names(given: &str) -> Result<Vec<NodeName>, NodesError> {
    let wrong = |reason: String| NodesError { given: given.to_owned(), reason };
    let names: Vec<String> = match given.parse::<usize>() {
        Ok(0) => return Err(wrong("there must be at least one node".to_owned())),
        Ok(count) if count > NODES_MAX => {
            return Err(wrong(format!("one process runs at most {NODES_MAX} nodes")));
        }
        Ok(count) => (1..=count).map(|n| format!("node-{n}")).collect(),
        Err(_) => given.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let mut nodes = names
        .into_iter()
        .map(NodeName::try_from)
        .collect::<Result<Vec<_>, NameError>>()
        .map_err(|error| wrong(error.to_string()))?;
    let count = nodes.len();
    // node-2 before node-10.
    nodes.sort_by(|a, b| (a.as_str().len(), a).cmp(&(b.as_str().len(), b)));
    nodes.dedup();
    if nodes.len() < count {
        return Err(wrong("a name occurs twice".to_owned()));
    }
    Ok(nodes)
}

/// A number of nodes may stand in a file or variable without quotes.
pub fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "want a number above 0, or names as \"a,b\"")]
    enum TextOrNumber {
        Text(String),
        Number(u64),
    }
    Ok(match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    })
}
