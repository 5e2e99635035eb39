//! What an operator brings to a gateway: the program, units and settings, certificates, and containerd's own files.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use headwater_cri_lab::{Image, PAUSE_IMAGE};
use headwater_e2e::authority::Authority;
use headwater_e2e::running::{programs, root};
use tempfile::TempDir;

/// The units of a gateway whose pods are containers.
const UNITS: [&str; 2] = ["headwater-edge.service", "headwater-edged-cri.service"];

/// containerd's settings: the driver of control groups is that of the service manager.
const CONTAINERD: &str = "version = 2
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = 'PAUSE'
  disable_apparmor = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '/usr/lib/cni'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
      SystemdCgroup = true
";

const NETWORK: &str = r#"{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}
"#;

/// A folder that the machine sees at the same path.
pub(crate) struct Kit(TempDir);

impl Kit {
    pub(crate) fn make(authority: &Authority, node: &str, hub: SocketAddr) -> Self {
        // The machine has a /tmp of its own.
        let kit = Self(TempDir::new_in("/var/tmp").expect("a folder"));
        let deploy = root().join("ops/deploy");
        for unit in UNITS {
            kit.copy(&deploy.join("systemd").join(unit), unit);
        }
        let edge = shipped(
            &deploy.join("edge.toml"),
            &[
                (
                    "hub = \"hub-a.example.org:7300,hub-b.example.org:7300\"",
                    &format!("hub = \"{hub}\""),
                ),
                ("#edged = true", "edged = false"),
                ("runtime = \"process\"", ""),
            ],
        );
        kit.write("edge.toml", &edge);
        let edged = shipped(
            &deploy.join("edged.toml"),
            &[
                ("runtime = \"process\"", "runtime = \"cri\""),
                ("#cgroup_driver = \"cgroupfs\"", "cgroup_driver = \"systemd\""),
            ],
        );
        kit.write("edged.toml", &edged);
        let flags = authority.issue("node", node);
        let files = flags.iter().skip(1).step_by(2);
        for (file, name) in files.zip(["ca.crt", "node.crt", "node.key"]) {
            kit.copy(Path::new(file), name);
        }
        kit.write("config.toml", &CONTAINERD.replace("PAUSE", PAUSE_IMAGE));
        kit.write("pods.conflist", NETWORK);
        for (image, name) in [(Image::pause(), "pause.tar"), (Image::busybox(), "busybox.tar")] {
            image.expect("an image").write(&kit.0.path().join(name)).expect("written");
        }
        kit
    }

    /// The steps of `ops/deploy/README.md`, and those of containerd.
    pub(crate) fn installation(&self) -> String {
        let (kit, program) = (self.0.path().display(), programs().join("headwater"));
        format!(
            "set -e
            cd {kit}
            install -D -m 0644 config.toml /etc/containerd/config.toml
            install -D -m 0644 pods.conflist /etc/cni/net.d/10-pods.conflist
            systemctl enable --now containerd
            ctr --namespace k8s.io images import pause.tar
            ctr --namespace k8s.io images import busybox.tar

            install -m 0755 {} /usr/local/bin/
            id headwater || useradd --system --home-dir /var/lib/headwater --shell /usr/sbin/nologin headwater
            install -D -m 0640 -g headwater edge.toml /etc/headwater/edge.toml
            install -m 0640 -g headwater ca.crt node.crt node.key /etc/headwater/
            install -D -m 0600 edged.toml /etc/headwater/edged.toml
            install -m 0644 {} /etc/systemd/system/
            systemctl daemon-reload
            systemctl enable --now headwater-edge headwater-edged-cri
            sync
            ",
            program.display(),
            UNITS.join(" "),
        )
    }

    fn copy(&self, from: &Path, name: &str) {
        fs::copy(from, self.0.path().join(name)).expect("copied");
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).expect("written");
    }
}

/// A settings file as it is shipped, with some lines as an operator sets them.
fn shipped(file: &Path, changes: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(file).expect("it is there");
    changes.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(&format!("\n{from}\n")).count(), 1, "{from} of {}", file.display());
        text.replacen(&format!("\n{from}\n"), &format!("\n{to}\n"), 1)
    })
}
