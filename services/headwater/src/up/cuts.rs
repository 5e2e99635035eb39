//! Links that an operator cut. A cut is a file beside the node's databases, so that it outlives a
//! restart: whoever tries what a node does when it starts cut off must be able to.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The file in a node's directory that says so.
const CUT: &str = "link-cut";

/// Whether the link of the node whose directory this is was cut.
pub(crate) fn is_cut(node: &Path) -> bool {
    node.join(CUT).exists()
}

/// Writes down that it was cut, or that it was restored.
///
/// # Errors
/// When the directory cannot be written; what was written down before may be lost then.
pub(crate) fn set(node: &Path, cut: bool) -> io::Result<()> {
    let file = node.join(CUT);
    if cut {
        File::create(file)?;
    } else if let Err(error) = fs::remove_file(file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    File::open(node)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_there_until_the_link_is_restored() {
        let node = tempfile::tempdir().expect("a folder");
        assert!(!is_cut(node.path()));
        for cut in [true, true, false, false] {
            set(node.path(), cut).expect("written");
            assert_eq!(is_cut(node.path()), cut);
        }
    }
}
