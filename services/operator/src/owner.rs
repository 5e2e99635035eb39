//! The owner of a path that this user may not use, and the command that may.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User};

/// The user that a path belongs to: of the path itself, or of its nearest folder that this user may
/// look at. A user without a name is shown by its number.
pub fn owner_of(path: &Path) -> String {
    let found = path.ancestors().find_map(|path| fs::metadata(path).ok());
    let owner = found.map_or(Uid::from_raw(0), |found| Uid::from_raw(found.uid()));
    match User::from_uid(owner) {
        Ok(Some(user)) => user.name,
        _ => format!("#{owner}"),
    }
}

/// What to do about a path of `owner`: the command as `sudo` takes it.
pub fn as_owner(owner: &str) -> String {
    let owner = owner.replace('#', "\\#");
    format!("run the command as that user: sudo -u {owner} headwater ...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_that_of_the_nearest_folder_that_can_be_seen() {
        assert_eq!(owner_of(Path::new("/proc/1/no/such/path")), "root");
        assert_eq!(as_owner("headwater").split("sudo").nth(1), Some(" -u headwater headwater ..."));
        assert!(as_owner("#4711").contains("-u \\#4711 headwater"));
    }
}
