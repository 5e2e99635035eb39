//! The files by which containerd and CNI are set up.

use std::path::Path;

use serde_json::json;

/// The folders of one containerd.
pub(crate) struct Folders<'a> {
    pub(crate) data: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) cni_plugins: &'a Path,
}

/// The configuration of containerd 1.6, with `pause` as the image of a pod's first process.
pub(crate) fn containerd(folders: &Folders<'_>, pause: &str) -> String {
    // A path in a TOML basic string needs the escapes of JSON.
    let quoted = |path: &Path| json!(path.display().to_string()).to_string();
    let below = |name: &str| quoted(&folders.data.join(name));
    let (root, opt, cni, certs) = (below("root"), below("opt"), below("cni"), below("certs.d"));
    let (socket, plugins) = (quoted(folders.socket), quoted(folders.cni_plugins));
    format!(
        r#"version = 2
root = {root}
# Gone after a power cut, as on a machine.
state = "/run/containerd"
[grpc]
  address = {socket}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Root in a container may lack the capability.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  # The same program under another name: the handler of a RuntimeClass.
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.second]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {plugins}
    conf_dir = {cni}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {certs}
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
        let text = containerd(&folders, "pause:1");
        assert!(text.contains(r#"root = "/da\"ta/root""#), "{text}");
        assert!(text.contains(r#"sandbox_image = "pause:1""#), "{text}");
    }
}
