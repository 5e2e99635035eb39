//! Programs that are installed on the machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The folders of administrators' programs, which a user's path may lack.
const ADMINISTRATORS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The search path: `first`, then the user's, then the folders of administrators.
pub fn search_path(first: impl IntoIterator<Item = PathBuf>) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let users = env::split_paths(&path);
    let folders = first.into_iter().chain(users).chain(ADMINISTRATORS.map(PathBuf::from));
    // A folder that came from a path has no colon.
    env::join_paths(folders).unwrap_or(path)
}

/// The path of a program, from the first folder of a search path that has it.
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_the_first_folder_that_has_it() {
        let path = search_path([]);
        let shell = find_program("sh", &path).expect("every machine has a shell");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("sh"), "").expect("written");
        let own = find_program("sh", &search_path([folder.path().to_owned()]));
        assert_eq!(own, Some(folder.path().join("sh")));
        assert_ne!(own, Some(shell));
        assert_eq!(find_program("no-such-program", &path), None);
    }
}
