//! Our protocol files beside those of the projects that own the protocols: every message, field, value and call that we
//! have must be one of theirs, with its name, its number and its type. Ours are parts of theirs in words of our own.
//!
//! Go fetches theirs, by version and checksum, as it fetches the programs of the other tests.

mod difference;

use std::path::{Path, PathBuf};
use std::process::Command;

use prost_reflect::DescriptorPool;
use serde::Deserialize;

use difference::differences;

/// A protocol, in our file and in those of its project.
struct Protocol {
    /// Our file.
    ours: &'static str,
    /// The module of Go that has theirs.
    module: &'static str,
    /// Their files in the module.
    theirs: &'static [&'static str],
}

const PROTOCOLS: [Protocol; 5] = [
    Protocol {
        ours: "cri/runtime.proto",
        module: "k8s.io/cri-api",
        theirs: &["pkg/apis/runtime/v1/api.proto"],
    },
    Protocol {
        ours: "cri/containerd.proto",
        module: "github.com/containerd/containerd/api",
        theirs: &["services/events/v1/events.proto", "events/task.proto"],
    },
    Protocol {
        ours: "csi/csi.proto",
        module: "github.com/container-storage-interface/spec",
        theirs: &["csi.proto"],
    },
    Protocol {
        ours: "csi/registration.proto",
        module: "k8s.io/kubelet",
        theirs: &["pkg/apis/pluginregistration/v1/api.proto"],
    },
    Protocol {
        ours: "kubelet/device_plugin.proto",
        module: "k8s.io/kubelet",
        theirs: &["pkg/apis/deviceplugin/v1beta1/api.proto"],
    },
];

/// A module that Go has fetched.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    path: String,
    version: String,
    dir: PathBuf,
}

/// The modules of `protos/go.mod`, as `go.sum` knows them.
fn modules() -> Vec<Module> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("protos");
    // The file of checksums is as it is in the repository: a module with another one is refused.
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json"]).current_dir(folder).env("GOFLAGS", "-mod=readonly");
    let output = go.output().expect("go starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let modules = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    modules.map(|module| module.expect("a module")).collect()
}

fn pool(files: &[&str], folder: &Path) -> DescriptorPool {
    let compiled = protox::compile(files, [folder]);
    let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    DescriptorPool::from_file_descriptor_set(compiled).expect("descriptors")
}

#[test]
fn our_protocols_are_parts_of_those_of_their_projects() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let modules = modules();
    let mut found = Vec::new();
    for Protocol { ours, module, theirs } in PROTOCOLS {
        let module = modules.iter().find(|it| it.path == module).expect("it is required");
        let of = format!("{ours}, {} {}", module.path, module.version);
        let differences = differences(&pool(&[ours], &own), &pool(theirs, &module.dir));
        found.extend(differences.into_iter().map(|it| format!("{of}: {it}")));
    }
    assert_eq!(found, [""; 0]);
}
