//! The content of a pod's `/etc/hosts` (`pkg/kubelet/kubelet_pods.go`). Without the mount the runtime
//! would give the container the host's.

use std::fmt::Write as _;
use std::net::IpAddr;

use headwater_edged::container::{LaunchSpec, WaitReason};
use headwater_edged::pod::PodRecord;
use k8s_openapi::api::core::v1::Pod;

use super::hostname::PodName;
use super::{NodeFacts, spec};

/// The place of the file in a container.
pub const HOSTS_PATH: &str = "/etc/hosts";

/// The first line, by which programs know the file, and that of a pod in the host's network.
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_OF_HOST: &str = "# Kubernetes-managed hosts file (host network).\n";

/// The names of this host that every pod has.
const LOCAL: &str = "\
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

/// Whether the container gets the pod's file: it mounts nothing else there.
pub fn mounts_hosts_file(launch: &LaunchSpec) -> bool {
    !launch.mounts.iter().any(|mount| mount.path.as_os_str() == HOSTS_PATH.trim_start_matches('/'))
}

/// The file. A pod in the host's network has the host's lines, `of_host`, instead of its own.
///
/// # Errors
/// The pod's hostname or subdomain is no name.
pub fn hosts_file(
    pod: &Pod,
    record: &PodRecord,
    addresses: &[IpAddr],
    of_host: &str,
    node: &NodeFacts,
) -> Result<String, WaitReason> {
    let namespace = record.key.namespace().unwrap_or_default();
    let name = PodName::of(pod, record.key.name(), namespace, node)?;
    let mut file = String::new();
    if spec(pod).host_network == Some(true) {
        file.push_str(HEADER_OF_HOST);
        file.push_str(of_host);
        if !file.ends_with('\n') {
            file.push('\n');
        }
    } else {
        file.push_str(HEADER);
        file.push_str(LOCAL);
        for address in addresses {
            let _ = match &name.domain {
                Some(domain) => {
                    let hostname = &name.hostname;
                    writeln!(file, "{address}\t{hostname}.{domain}\t{hostname}")
                }
                None => writeln!(file, "{address}\t{}", name.hostname),
            };
        }
    }
    let mut aliases = spec(pod).host_aliases.iter().flatten().peekable();
    if aliases.peek().is_some() {
        file.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.iter().flatten();
        // A name with a line break would be a line of its own.
        let is_name = |name: &&String| !name.is_empty() && !name.contains(char::is_whitespace);
        let names: Vec<&str> = names.filter(is_name).map(String::as_str).collect();
        if alias.ip.parse::<IpAddr>().is_ok() && !names.is_empty() {
            let _ = writeln!(file, "{}\t{}", alias.ip, names.join("\t"));
        }
    }
    Ok(file)
}
