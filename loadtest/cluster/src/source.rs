//! The source of the programs: a Go module of ours that depends on Kubernetes.

use headwater_daemon::{GoPrograms, required_version};

const GO_MOD: &str = include_str!("../control-plane/go.mod");

const METRICS_GO_MOD: &str = include_str!("../metrics-server/go.mod");

/// The module that provides the server of metrics.
const METRICS_SERVER: &str = "sigs.k8s.io/metrics-server";

/// The module that provides the control plane.
const KUBERNETES: &str = "k8s.io/kubernetes";

/// The packages that report the version; a release sets the same variables.
const VERSION_PACKAGES: [&str; 2] =
    ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];

/// The packages that are compiled.
const PACKAGES: usize = 3_000;
const KUBELET_PACKAGES: usize = 1_800;
const METRICS_PACKAGES: usize = 1_100;
const IMAGE_PACKAGES: usize = 900;

/// The control plane, and the suite of tests.
pub(crate) fn control_plane() -> GoPrograms {
    let files = vec![
        ("go.mod", GO_MOD),
        ("go.sum", include_str!("../control-plane/go.sum")),
        ("main.go", include_str!("../control-plane/main.go")),
        ("suite/main.go", include_str!("../control-plane/suite/main.go")),
    ];
    GoPrograms {
        name: format!("Kubernetes {}", version()),
        files,
        more: &[],
        tags: "",
        linker_flags: linker_flags(),
        packages: PACKAGES,
        took: "12 min on two cores",
    }
}

/// The package of Kubernetes' sample of a device plugin.
const SAMPLE_PLUGIN: &str = "k8s.io/kubernetes/test/images/sample-device-plugin";

/// The kubelet of the same version, and a plugin of it. They are built only where a test compares with them.
pub(crate) fn node_programs() -> GoPrograms {
    let files = vec![
        ("go.mod", GO_MOD),
        ("go.sum", include_str!("../control-plane/go.sum")),
        ("kubelet/main.go", include_str!("../control-plane/kubelet/main.go")),
    ];
    GoPrograms {
        name: format!("the kubelet {}", version()),
        files,
        more: &[SAMPLE_PLUGIN],
        tags: "",
        linker_flags: linker_flags(),
        packages: KUBELET_PACKAGES,
        took: "6 min on two cores",
    }
}

/// The program of the suite's image with a set-user-id program.
const SET_USER_ID: &str = "k8s.io/kubernetes/test/images/nonewprivs";

/// Programs of the suite's images beside the one that most of them have. They are built only where all cases run.
pub(crate) fn image_programs() -> GoPrograms {
    GoPrograms {
        name: format!("programs of images of Kubernetes {}", version()),
        files: vec![("go.mod", GO_MOD), ("go.sum", include_str!("../control-plane/go.sum"))],
        more: &[SET_USER_ID],
        tags: "",
        linker_flags: linker_flags(),
        packages: IMAGE_PACKAGES,
        took: "2 min on two cores",
    }
}

/// The server that `kubectl top` asks. It is built only where a test runs it.
pub(crate) fn metrics_server() -> GoPrograms {
    let version = required_version(METRICS_GO_MOD, METRICS_SERVER);
    GoPrograms {
        name: format!("metrics-server {version}"),
        files: vec![
            ("go.mod", METRICS_GO_MOD),
            ("go.sum", include_str!("../metrics-server/go.sum")),
        ],
        more: &[],
        tags: "",
        linker_flags: "-s -w".to_owned(),
        packages: METRICS_PACKAGES,
        took: "4 min on two cores",
    }
}

/// The version of Kubernetes that the module requires, such as `v1.36.3`.
pub(crate) fn version() -> &'static str {
    required_version(GO_MOD, KUBERNETES)
}

/// The linker's flags: no symbol tables, and the version, which the modules do not know.
fn linker_flags() -> String {
    let mut flags = "-s -w".to_owned();
    let version = version();
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    let variables = [
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
        ("gitTreeState", "clean"),
    ];
    for package in VERSION_PACKAGES {
        for (name, value) in variables {
            flags += &format!(" -X {package}.{name}={value}");
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_reports_the_version_that_the_module_requires() {
        assert!(version().starts_with("v1.36."), "{}", version());
        let flags = linker_flags();
        for package in VERSION_PACKAGES {
            for variable in [&format!("gitVersion={}", version()), "gitMinor=36"] {
                assert!(flags.contains(&format!("-X {package}.{variable}")), "{flags}");
            }
        }
    }
}
