//! The results of network plugins, which a power cut can tear.
//!
//! The library that containerd and CRI-O call plugins with writes the result for a sandbox to a file, without a sync
//! (`containernetworking/cni`, `libcni/api.go`, `cacheAdd`). After a power cut the file may be empty. The runtime then
//! refuses to stop the sandbox, for as long as the file is there, and the pod cannot start again. Without the file it
//! calls the plugin all the same, and the specification wants a deletion to succeed without a result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task;

/// The folder of the results, from the root. The library's default, which neither runtime changes.
const FOLDER: [&str; 4] = ["var", "lib", "cni", "results"];

/// A younger file may be half written. A write takes less than a millisecond.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

/// Removes the results that a power cut tore. To be called when the runtime at `socket` does not stop a sandbox; the next
/// call can succeed.
pub(crate) async fn remove_torn(socket: &Path) {
    let root = foreign_root(socket).await;
    let removing = task::spawn_blocking(move || {
        let own = || Path::new("/").join(FOLDER.iter().collect::<PathBuf>());
        let folder = root.and_then(|root| folder_below(&root)).unwrap_or_else(own);
        torn(&folder, SystemTime::now()).iter().for_each(|file| remove(file));
    });
    if let Err(error) = removing.await {
        tracing::warn!(%error, "the results of network plugins were not looked at");
    }
}

/// The root folder of the runtime at `socket`, which may see other files than this process; `None` if the runtime is in no
/// process namespace of this process.
async fn foreign_root(socket: &Path) -> Option<PathBuf> {
    let peer = UnixStream::connect(socket).await.and_then(|stream| stream.peer_cred());
    // The kernel gives zero for a process outside the namespace.
    let pid = peer.ok()?.pid().filter(|pid| *pid > 0)?;
    Some(PathBuf::from(format!("/proc/{pid}/root")))
}

/// The folder of the results below a root; `None` if it cannot be read, or leads over a link: this process would follow
/// it among its own files.
fn folder_below(root: &Path) -> Option<PathBuf> {
    let mut folder = root.to_owned();
    for name in FOLDER {
        folder.push(name);
        if !folder.symlink_metadata().ok()?.is_dir() {
            return None;
        }
    }
    folder.read_dir().is_ok().then_some(folder)
}

fn remove(file: &Path) {
    match fs::remove_file(file) {
        Ok(()) => tracing::warn!(
            file = %file.display(),
            "the result of a network plugin was torn by a power cut and is removed"
        ),
        // The stop of another sandbox failed, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(file = %file.display(), %error, "a torn result stays"),
    }
}

/// The files of a folder that were not written just now and are no JSON.
fn torn(folder: &Path, now: SystemTime) -> Vec<PathBuf> {
    let is_written = |path: &Path| {
        let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
        // The clock may have been set back since.
        changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < WRITTEN_WITHIN))
    };
    let is_whole = |path: &Path| match fs::read(path) {
        Ok(text) => serde_json::from_slice::<Value>(&text).is_ok(),
        // One that cannot be read is not known to be torn.
        Err(_) => true,
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|it| it.is_file());
    let files = entries.map(|entry| entry.path()).filter(is_file);
    files.filter(|path| !is_whole(path) && !is_written(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_no_json_is_torn_unless_it_is_being_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        for (name, text) in
            [("whole", "{\"kind\": \"cniCacheV1\"}"), ("empty", ""), ("half", "{\"k")]
        {
            fs::write(folder.join(name), text).expect("written");
        }
        let now = SystemTime::now();
        assert_eq!(torn(folder, now), Vec::<PathBuf>::new());
        for then in [now + WRITTEN_WITHIN, now - Duration::from_secs(3600)] {
            let mut found = torn(folder, then);
            found.sort();
            assert_eq!(found, [folder.join("empty"), folder.join("half")]);
        }
        assert_eq!(torn(&folder.join("absent"), now), Vec::<PathBuf>::new());
    }

    #[test]
    fn no_link_leads_out_of_the_root_of_the_runtime() {
        let root = tempfile::tempdir().expect("a folder");
        let (root, outside) = (root.path(), tempfile::tempdir().expect("a folder"));
        let results = root.join("var/lib/cni/results");
        assert_eq!(folder_below(root), None);
        fs::create_dir_all(&results).expect("made");
        assert_eq!(folder_below(root), Some(results.clone()));
        let precious = outside.path().join("precious");
        fs::write(&precious, "text").expect("written");
        std::os::unix::fs::symlink(&precious, results.join("link")).expect("linked");
        assert_eq!(torn(&results, SystemTime::now() + WRITTEN_WITHIN), Vec::<PathBuf>::new());
        fs::remove_dir_all(&results).expect("removed");
        std::os::unix::fs::symlink(outside.path(), &results).expect("linked");
        assert_eq!(folder_below(root), None);
    }
}
