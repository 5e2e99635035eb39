//! Checks for directories of claims that have left their node.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_edged::kept_claims;

use super::Check;

/// Lists the directories of every node in the data directory whose claim is not on the node. Each
/// stays until its claim returns or a person removes it.
pub(super) fn look(data: &Path) -> Vec<Check> {
    let nodes = fs::read_dir(data.join("nodes")).into_iter().flatten().flatten();
    let mut nodes: Vec<PathBuf> = nodes.map(|node| node.path()).collect();
    nodes.sort();
    nodes.iter().flat_map(|node| judge(node)).collect()
}

fn judge(node: &Path) -> Vec<Check> {
    let edged = node.join("edged");
    let name = node.file_name().unwrap_or_default().to_string_lossy();
    match kept_claims(&edged) {
        Ok(kept) => kept
            .into_iter()
            .map(|claim| {
                let found = format!(
                    "{} left {name} at {}, and its data stays in {}",
                    claim.name,
                    claim.left_at.strftime("%FT%TZ"),
                    claim.data.display()
                );
                let advice = "if its data is not needed, remove the directory above \"data\"";
                Check::warn("claims", found, advice)
            })
            .collect(),
        Err(error) => {
            let found = format!("{}: {error}", edged.join("claims").display());
            vec![Check::warn("claims", found, "run doctor as the user that runs the pods")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_left_its_node_is_listed_with_its_directory() {
        let data = tempfile::tempdir().expect("a directory");
        assert!(look(data.path()).is_empty());
        for (uid, left_at) in [("c1", "\"2026-01-02T03:04:05Z\""), ("c2", "null")] {
            let dir = data.path().join("nodes/gw-1/edged/claims").join(uid);
            fs::create_dir_all(dir.join("data")).expect("made");
            let record = format!(
                r#"{{"name": {{"namespace": "shop", "name": "data"}}, "policy": "Retain",
                    "is_deleted": false, "left_at": {left_at}}}"#
            );
            fs::write(dir.join("claim.json"), record).expect("written");
        }
        let checks = look(data.path());
        assert_eq!(checks.len(), 1, "{checks:?}");
        let found = &checks[0].found;
        assert!(found.starts_with("shop/data left gw-1 at 2026-01-02T03:04:05Z"), "{found}");
        assert!(found.ends_with("claims/c1/data"), "{found}");
    }
}
