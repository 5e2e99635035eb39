//! The files by which containerd and CNI are set up.

use std::path::Path;

use serde_json::json;

use crate::version::ContainerdVersion;

/// The folders of one containerd.
pub(crate) struct Folders<'a> {
    pub(crate) data: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) cni_plugins: &'a Path,
}

/// The configuration of containerd, with `pause` as the image of a pod's first process.
pub(crate) fn containerd(version: ContainerdVersion, folders: &Folders<'_>, pause: &str) -> String {
    // A path in a TOML basic string needs the escapes of JSON.
    let quoted = |path: &Path| json!(path.display().to_string()).to_string();
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
