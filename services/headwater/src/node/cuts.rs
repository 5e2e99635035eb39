//! Links that an operator cut. A cut is a file beside the node's databases, so that it survives a
//! restart.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use headwater_event::NodeName;
use headwater_rocks::create_durably;

/// The file in a node's directory that marks its link as cut.
const CUT: &str = "link-cut";

/// Whether the link of the node with this directory is cut.
pub(crate) fn is_cut(node: &Path) -> bool {
    node.join(CUT).exists()
}

/// Returns the nodes of the data directory at `root` whose links are cut.
pub(crate) fn all(root: &Path) -> Vec<NodeName> {
    let entries = fs::read_dir(root.join("nodes")).into_iter().flatten().flatten();
    let cut = entries.filter(|entry| is_cut(&entry.path()));
    cut.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Records that a link is cut or restored.
///
/// # Errors
/// When the directory cannot be written. The earlier record may be lost then.
pub(crate) fn set(node: &Path, cut: bool) -> io::Result<()> {
    let file = node.join(CUT);
    if cut {
        // A hub has no other files in the directory of a node.
        create_durably(node)?;
        File::create(file)?;
    } else if let Err(error) = fs::remove_file(file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    match File::open(node) {
        Ok(node) => node.sync_all(),
        // The link was never cut.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_there_until_the_link_is_restored() {
        let root = tempfile::tempdir().expect("a folder");
        let node = root.path().join("nodes/gw-7");
        assert!(!is_cut(&node));
        for cut in [true, true, false, false] {
            set(&node, cut).expect("written");
            assert_eq!(is_cut(&node), cut);
            assert_eq!(all(root.path()).len(), usize::from(cut));
        }
    }
}
