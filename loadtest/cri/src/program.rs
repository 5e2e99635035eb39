//! The programs of the lab.

use std::ffi::OsStr;
use std::path::Path;

use headwater_daemon::find_program;

use crate::error::LabError;

/// The programs of containerd and its namespaces, each with its package.
pub(crate) const CONTAINERD: [(&str, &str); 11] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("busybox", "busybox-static"),
    ("gcc", "gcc"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
];

/// The programs that CRI-O uses, besides those of its namespaces, each with its package.
pub(crate) const CRIO: [(&str, &str); 6] = [
    ("conmon", "conmon"),
    ("runc", "runc"),
    ("skopeo", "skopeo"),
    ("busybox", "busybox-static"),
    ("gcc", "gcc"),
    ("unshare", "util-linux"),
];

/// The programs of a registry.
pub(crate) const REGISTRY: [(&str, &str); 3] =
    [("docker-registry", "docker-registry"), ("htpasswd", "apache2-utils"), ("skopeo", "skopeo")];

/// The folders where distributions put the CNI plugins.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"];

/// Looks for each program in the search path.
///
/// # Errors
/// One is missing.
pub(crate) fn require(
    programs: &[(&'static str, &'static str)],
    path: &OsStr,
) -> Result<(), LabError> {
    let missing = programs.iter().find(|(program, _)| find_program(program, path).is_none());
    missing.map_or(Ok(()), |&(program, package)| Err(LabError::MissingProgram { program, package }))
}

/// The folder of the CNI plugins.
///
/// # Errors
/// They are missing.
pub(crate) fn cni_folder() -> Result<&'static Path, LabError> {
    let mut folders = CNI_FOLDERS.map(Path::new).into_iter();
    let found = folders.find(|folder| folder.join("portmap").is_file());
    found.ok_or(LabError::MissingProgram {
        program: "the CNI plugin portmap",
        package: "containernetworking-plugins",
    })
}

#[cfg(test)]
mod tests {
    use headwater_daemon::search_path;

    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error =
            require(&[("sh", "dash"), ("no-such-program", "some-package")], &search_path([]));
        let text = error.expect_err("it is missing").to_string();
        assert_eq!(
            text,
            "no-such-program is not installed: install the package some-package (Debian, Ubuntu)"
        );
    }
}
