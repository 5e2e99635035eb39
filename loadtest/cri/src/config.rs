//! The files by which containerd, CRI-O and CNI are set up.

use std::fs;
use std::path::Path;

use headwater_daemon::DaemonError;
use serde_json::json;

use crate::version::ContainerdVersion;

/// The folders of one containerd.
pub(crate) struct Folders<'a> {
    pub(crate) data: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) cni_plugins: &'a Path,
}

/// The folders of one CRI-O.
pub(crate) struct CrioFolders<'a> {
    pub(crate) data: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) cni_plugins: &'a Path,
    /// Its own programs.
    pub(crate) programs: &'a Path,
    /// What goes with the machine.
    pub(crate) run_root: &'a str,
}

/// A policy of signatures that accepts any image.
pub(crate) const ANY_IMAGE: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Writes a file into a folder, which is made if it is not there.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), DaemonError> {
    fs::create_dir_all(folder).map_err(DaemonError::file(folder))?;
    let path = folder.join(name);
    fs::write(&path, text).map_err(DaemonError::file(&path))
}

/// The configuration of containerd, with `pause` as the image of a pod's first process.
pub(crate) fn containerd(version: ContainerdVersion, folders: &Folders<'_>, pause: &str) -> String {
    let below = |name: &str| quoted(&folders.data.join(name));
    let (root, opt, cni, certs) = (below("root"), below("opt"), below("cni"), below("certs.d"));
    let (socket, plugins) = (quoted(folders.socket), quoted(folders.cni_plugins));
    // Where the version has the pods, where the images, and how it names both.
    let (number, runtime, images, sandbox, cni_folder) = match version {
        ContainerdVersion::Installed => {
            let cri = "io.containerd.grpc.v1.cri";
            let sandbox = format!("sandbox_image = \"{pause}\"");
            (2, cri, cri, sandbox, format!("bin_dir = {plugins}"))
        }
        ContainerdVersion::Two => {
            let sandbox = format!("pinned_images = {{ sandbox = \"{pause}\" }}");
            let folders = format!("bin_dirs = [{plugins}]");
            (3, "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", sandbox, folders)
        }
    };
    // One table may not stand twice.
    let images_table = match images == runtime {
        true => String::new(),
        false => format!("[plugins.\"{images}\"]\n"),
    };
    format!(
        r#"version = {number}
root = {root}
# Gone after a power cut, as on a machine.
state = "/run/containerd"
[grpc]
  address = {socket}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt}
[plugins."{runtime}"]
  # Root in a container may lack the capability.
  restrict_oom_score_adj = true
  disable_apparmor = true
{images_table}  {sandbox}
  [plugins."{images}".registry]
    config_path = {certs}
  [plugins."{runtime}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  # The same program under another name: the handler of a RuntimeClass.
  [plugins."{runtime}".containerd.runtimes.second]
    runtime_type = "io.containerd.runc.v2"
  [plugins."{runtime}".cni]
    {cni_folder}
    conf_dir = {cni}
"#
    )
}

/// The configuration of CRI-O, with `pause` as the image of a pod's first process. What it does not name is CRI-O's default.
pub(crate) fn crio(folders: &CrioFolders<'_>, pause: &str) -> String {
    let below = |name: &str| quoted(&folders.data.join(name));
    let (root, logs, policy, cni) =
        (below("root"), below("pod-logs"), below("policy.json"), below("cni"));
    let (socket, plugins) = (quoted(folders.socket), quoted(folders.cni_plugins));
    let (clean, pinns) = (below("clean.shutdown"), quoted(&folders.programs.join("pinns")));
    let run_root = folders.run_root;
    format!(
        r#"[crio]
root = {root}
runroot = "{run_root}"
storage_driver = "overlay"
log_dir = {logs}
clean_shutdown_file = {clean}
[crio.api]
listen = {socket}
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
pinns_path = {pinns}
enable_pod_events = true
[crio.runtime.runtimes.runc]
runtime_type = "oci"
runtime_root = "/run/runc"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{pause}"
signature_policy = {policy}
[crio.network]
network_dir = {cni}
plugin_dirs = [{plugins}]
[crio.nri]
enable_nri = false
"#
    )
}

/// The network of the pods: a bridge with addresses, and ports of the machine.
pub(crate) fn network() -> String {
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "headwater",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "hw0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    format!("{network:#}\n")
}

/// A path in a TOML basic string, which needs the escapes of JSON.
fn quoted(path: &Path) -> String {
    json!(path.display().to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted() {
        let folders = Folders {
            data: Path::new("/da\"ta"),
            socket: Path::new("/s.sock"),
            cni_plugins: Path::new("/cni"),
        };
        for (version, pause) in [
            (ContainerdVersion::Installed, r#"sandbox_image = "pause:1""#),
            (ContainerdVersion::Two, r#"pinned_images = { sandbox = "pause:1" }"#),
        ] {
            let text = containerd(version, &folders, "pause:1");
            assert!(text.contains(r#"root = "/da\"ta/root""#), "{text}");
            assert!(text.contains(pause), "{text}");
        }
    }
}
