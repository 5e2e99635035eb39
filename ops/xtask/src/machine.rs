//! The packages that the build and the tests need besides a Rust toolchain, and their installation.
//!
//! RocksDB is C++: it needs a C++ compiler, and libclang to read its C header for the bindings.
//! Kafka's client is C and uses OpenSSL for TLS. Kafka itself, which the tests start, is Java; the
//! Kubernetes control plane, which they start too, is Go. containerd, its network plugins and a
//! registry of images are the distribution's.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{self, Failure};

/// The purpose that the machine is prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// To build and run Headwater.
    Build,
    /// To run the tests too.
    Test,
    /// To run those in an emulated machine too.
    Emulate,
}

/// One thing that the machine must have.
struct Need {
    work: Work,
    what: &'static str,
    why: &'static str,
    is_there: fn() -> bool,
    apt: &'static str,
    dnf: &'static str,
    apk: &'static str,
}

const NEEDS: [Need; 22] = [
    Need {
        work: Work::Build,
        what: "a C++ compiler",
        why: "RocksDB is compiled from source",
        is_there: compiler_is_there,
        apt: "g++",
        dnf: "gcc-c++",
        apk: "g++",
    },
    Need {
        work: Work::Build,
        what: "libclang with its headers",
        why: "the bindings to RocksDB are made from its C header",
        is_there: libclang_is_there,
        apt: "libclang-dev",
        dnf: "clang-devel",
        apk: "clang-dev",
    },
    Need {
        work: Work::Build,
        what: "make",
        why: "Kafka's client is compiled from source",
        is_there: || on_path("make"),
        apt: "make",
        dnf: "make",
        apk: "make",
    },
    Need {
        work: Work::Build,
        what: "pkg-config",
        why: "the build finds OpenSSL with it",
        is_there: || on_path("pkg-config") || env::var_os("OPENSSL_DIR").is_some(),
        apt: "pkg-config",
        dnf: "pkgconf-pkg-config",
        apk: "pkgconf",
    },
    Need {
        work: Work::Build,
        what: "OpenSSL with its headers",
        why: "Kafka's client uses it for TLS",
        is_there: openssl_is_there,
        apt: "libssl-dev",
        dnf: "openssl-devel",
        apk: "openssl-dev",
    },
    Need {
        work: Work::Test,
        what: "a Java runtime",
        why: "tests run against a real Kafka",
        is_there: || on_path("java"),
        apt: "default-jre-headless",
        dnf: "java-17-openjdk-headless",
        apk: "openjdk17-jre-headless",
    },
    Need {
        work: Work::Test,
        what: "Maven",
        why: "it downloads Kafka",
        is_there: || on_path("mvn"),
        apt: "maven",
        dnf: "maven",
        apk: "maven",
    },
    Need {
        work: Work::Test,
        what: "Go 1.21 or later",
        why: "tests run against a real Kubernetes API, compiled from source",
        is_there: go_is_there,
        apt: "golang-go",
        dnf: "golang",
        apk: "go",
    },
    Need {
        work: Work::Test,
        what: "containerd",
        why: "tests run pods on a real containerd",
        is_there: || is_installed("containerd") && is_installed("ctr"),
        apt: "containerd",
        dnf: "containerd",
        apk: "containerd",
    },
    Need {
        work: Work::Test,
        what: "runc",
        why: "containerd starts containers with it",
        is_there: || is_installed("runc"),
        apt: "runc",
        dnf: "runc",
        apk: "runc",
    },
    Need {
        work: Work::Test,
        what: "conmon",
        why: "CRI-O watches containers with it",
        is_there: || is_installed("conmon"),
        apt: "conmon",
        dnf: "conmon",
        apk: "conmon",
    },
    Need {
        work: Work::Test,
        what: "the CNI plugins",
        why: "containerd connects pods with them",
        is_there: cni_plugins_are_there,
        apt: "containernetworking-plugins",
        dnf: "containernetworking-plugins",
        apk: "cni-plugins",
    },
    Need {
        work: Work::Test,
        what: "iptables",
        why: "the CNI plugins forward ports with it",
        is_there: || is_installed("iptables"),
        apt: "iptables",
        dnf: "iptables-nft",
        apk: "iptables",
    },
    Need {
        work: Work::Test,
        what: "a static busybox",
        why: "the images of tests are made of it",
        is_there: || is_installed("busybox"),
        apt: "busybox-static",
        dnf: "busybox",
        apk: "busybox-static",
    },
    Need {
        work: Work::Test,
        what: "a registry of images",
        why: "tests pull images from it",
        is_there: || is_installed("docker-registry"),
        apt: "docker-registry",
        dnf: "docker-distribution",
        apk: "docker-registry",
    },
    Need {
        work: Work::Test,
        what: "htpasswd",
        why: "the registry of tests has passwords",
        is_there: || is_installed("htpasswd"),
        apt: "apache2-utils",
        dnf: "httpd-tools",
        apk: "apache2-utils",
    },
    Need {
        work: Work::Test,
        what: "skopeo",
        why: "tests send images to a registry with it",
        is_there: || is_installed("skopeo"),
        apt: "skopeo",
        dnf: "skopeo",
        apk: "skopeo",
    },
    Need {
        work: Work::Emulate,
        what: "QEMU",
        why: "some tests run in an emulated machine",
        is_there: || is_installed("qemu-system-x86_64"),
        apt: "qemu-system-x86",
        dnf: "qemu-system-x86-core",
        apk: "qemu-system-x86_64",
    },
    Need {
        work: Work::Emulate,
        what: "a kernel for emulated machines",
        why: "the emulated machine starts it",
        is_there: kernel_is_there,
        apt: "linux-image-cloud-amd64",
        dnf: "kernel-core",
        apk: "linux-virt",
    },
    Need {
        work: Work::Emulate,
        what: "cpio",
        why: "it packs the first files of the emulated machine",
        is_there: || is_installed("cpio"),
        apt: "cpio",
        dnf: "cpio",
        apk: "cpio",
    },
    Need {
        work: Work::Emulate,
        what: "modprobe",
        why: "it knows the modules of the emulated machine's kernel",
        is_there: || is_installed("modprobe"),
        apt: "kmod",
        dnf: "kmod",
        apk: "kmod",
    },
    Need {
        work: Work::Emulate,
        what: "systemd",
        why: "it starts the units of Headwater in an emulated machine",
        is_there: || Path::new("/lib/systemd/systemd").is_file(),
        apt: "systemd",
        dnf: "systemd",
        apk: "systemd",
    },
];

/// A package manager and its arguments.
struct Manager {
    program: &'static str,
    refresh: &'static [&'static str],
    install: &'static [&'static str],
    package: fn(&Need) -> &'static str,
}

const MANAGERS: [Manager; 3] = [
    Manager {
        program: "apt-get",
        refresh: &["update", "-qq"],
        install: &["install", "-qq", "--yes", "--no-install-recommends"],
        package: |need| need.apt,
    },
    Manager {
        program: "dnf",
        refresh: &[],
        install: &["install", "--quiet", "--assumeyes"],
        package: |need| need.dnf,
    },
    Manager {
        program: "apk",
        refresh: &["update", "--quiet"],
        install: &["add", "--quiet"],
        package: |need| need.apk,
    },
];

/// Installs what is missing; prints nothing if nothing is.
///
/// # Errors
/// Something is missing and cannot be installed; the failure says what to install by hand.
pub(crate) fn prepare(work: Work) -> Result<(), Failure> {
    let missing = missing(work);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        eprintln!("xtask: missing: {} ({})", need.what, need.why);
    }
    let Some(manager) = MANAGERS.iter().find(|manager| on_path(manager.program)) else {
        return Err(by_hand(&missing));
    };
    let packages: Vec<_> = missing.iter().map(|need| (manager.package)(need)).collect();
    if !is_root() {
        return Err(Failure::new(
            format!(
                "install it with `sudo {} install {}`, then run this again",
                manager.program,
                packages.join(" "),
            )
            .replace("apk install", "apk add"),
        ));
    }
    eprintln!("xtask: installing {} with {}", packages.join(" "), manager.program);
    let ask = |args: &[&str]| {
        let mut command = Command::new(manager.program);
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    if !manager.refresh.is_empty() {
        // An old package list often suffices; the installation decides.
        if let Err(failure) = step::run(&mut ask(manager.refresh)) {
            eprintln!("xtask: {failure}; continuing with the present package lists");
        }
    }
    step::run(&mut ask(&[manager.install, packages.as_slice()].concat()))?;
    let missing = self::missing(work);
    if missing.is_empty() { Ok(()) } else { Err(by_hand(&missing)) }
}

fn missing(work: Work) -> Vec<&'static Need> {
    let wanted = NEEDS.iter().filter(|need| need.work <= work);
    wanted.filter(|need| !(need.is_there)()).collect()
}

/// The failure where no package manager can install what is missing.
fn by_hand(missing: &[&Need]) -> Failure {
    let mut text = String::from("no package manager here can install what is missing:\n");
    for need in missing {
        text += &format!(
            "  {}: package {} (Debian, Ubuntu), {} (Fedora), {} (Alpine)\n",
            need.what, need.apt, need.dnf, need.apk,
        );
    }
    text += "LIBCLANG_PATH names a libclang in an unusual place, CXX a compiler";
    Failure::new(text)
}

fn is_root() -> bool {
    step::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn compiler_is_there() -> bool {
    env::var_os("CXX").is_some() || on_path("c++") || on_path("g++") || on_path("clang++")
}

fn openssl_is_there() -> bool {
    let found = step::output(Command::new("pkg-config").args(["--exists", "openssl"]));
    found.is_ok() || env::var_os("OPENSSL_DIR").is_some()
}

fn go_is_there() -> bool {
    let version = step::output(Command::new("go").args(["env", "GOVERSION"]));
    version.is_ok_and(|version| can_update_itself(version.trim()))
}

/// Whether a Go of this version, such as `go1.26.8`, downloads the later one that a module needs.
fn can_update_itself(version: &str) -> bool {
    let Some(numbers) = version.strip_prefix("go") else { return false };
    let mut numbers = numbers.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (1, 21),
        _ => false,
    }
}

fn libclang_is_there() -> bool {
    env::var_os("LIBCLANG_PATH").is_some()
        || on_path("clang") && library_folders().iter().any(|folder| holds_libclang(folder))
        || library_folders().iter().any(|folder| holds_libclang(folder) && has_headers(folder))
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether a program is there, also one of administrators, whose folders a user's path may lack.
fn is_installed(program: &str) -> bool {
    let administrators = ["/usr/sbin", "/sbin"].map(Path::new);
    on_path(program) || administrators.iter().any(|folder| folder.join(program).is_file())
}

/// Whether a kernel is there that Debian makes for emulated machines.
fn kernel_is_there() -> bool {
    let files = Path::new("/boot").read_dir().into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name());
    names.any(|name| name.to_string_lossy().ends_with("-cloud-amd64"))
}

/// Whether the CNI plugins are in a folder where distributions put them.
fn cni_plugins_are_there() -> bool {
    let folders = ["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"].map(Path::new);
    folders.iter().any(|folder| folder.join("portmap").is_file())
}

/// The folders where distributions put libclang: one per version, or that of all libraries.
fn library_folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/usr/lib"), "/usr/lib64".into(), "/usr/local/lib".into()];
    for entry in Path::new("/usr/lib").read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("llvm") {
            folders.push(entry.path().join("lib"));
        } else if name.ends_with("-linux-gnu") {
            folders.push(entry.path());
        }
    }
    folders
}

/// Whether `folder` has a library under one of the names that the bindings' generator tries.
fn holds_libclang(folder: &Path) -> bool {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| is_libclang(&name.to_string_lossy()))
}

fn is_libclang(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    let named = rest.starts_with(".so")
        || rest
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    named && rest.contains(".so")
}

/// Whether the compiler's own headers (`stddef.h` and others) are beside the library: a libclang
/// without them loads and then fails at the first `#include`.
fn has_headers(folder: &Path) -> bool {
    let versions = folder.join("clang").read_dir().into_iter().flatten().flatten();
    let beside = versions.map(|version| version.path().join("include/stddef.h"));
    let fedora = Path::new("/usr/lib/clang").read_dir().into_iter().flatten().flatten();
    beside.chain(fedora.map(|v| v.path().join("include/stddef.h"))).any(|header| header.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_distinguished_from_its_neighbours() {
        for name in ["libclang.so", "libclang.so.1", "libclang-14.so.1", "libclang-18.so.18"] {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclangAST.a", "libclang-14.a", "clang.so"] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn a_go_before_toolchains_were_modules_is_too_old() {
        for version in ["go1.21.0", "go1.26.8", "go1.27rc1", "go2.0"] {
            assert!(can_update_itself(version), "{version}");
        }
        for version in ["go1.20.14", "go1.19", "devel", ""] {
            assert!(!can_update_itself(version), "{version}");
        }
    }

    #[test]
    fn the_failure_names_every_package() {
        let text = by_hand(&NEEDS.iter().collect::<Vec<_>>()).to_string();
        for package in [
            "g++",
            "gcc-c++",
            "libclang-dev",
            "clang-devel",
            "libssl-dev",
            "maven",
            "golang",
            "runc",
        ] {
            assert!(text.contains(package), "{text}");
        }
    }
}
