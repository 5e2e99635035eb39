//! Checks the units under `ops/deploy/systemd`: what each must say, and that it starts its part with
//! the settings file of that part.

use std::path::Path;

/// What every unit says. A core of the process would have keys and Secrets in it.
const OF_EVERY_PART: [&str; 6] = [
    "WatchdogSignal=SIGKILL",
    "LimitCORE=0",
    "Restart=always",
    "UMask=0077",
    "StateDirectoryMode=0700",
    "NoNewPrivileges=yes",
];

/// What the units say whose pods are children of the process: a pod takes neither the process nor
/// another pod with it.
const OF_PODS: [&str; 4] =
    ["OOMPolicy=continue", "Delegate=yes", "KillMode=process", "TasksMax=infinity"];

/// What a unit with pods must not say: it would make the delegated control groups read-only, or
/// empty a folder that pods still use.
const NOT_OF_PODS: [&str; 2] = ["ProtectControlGroups=yes", "PrivateTmp=yes"];

fn directives(part: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/deploy/systemd");
    let text = std::fs::read_to_string(folder.join(format!("headwater-{part}.service")));
    let text = text.expect("each part has a unit");
    let service = text.split("[Service]").nth(1).and_then(|rest| rest.split("\n[").next());
    let lines = service.expect("a unit of a service").lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn a_unit_leaves_no_core_and_starts_its_part() {
    for part in ["controller", "hub", "edge", "edged"] {
        let found = directives(part);
        let starts = format!(
            "ExecStart=/usr/local/bin/headwater {part} --config /etc/headwater/{part}.toml"
        );
        for wanted in OF_EVERY_PART.into_iter().chain([starts.as_str()]) {
            assert!(found.iter().any(|line| line == wanted), "{part}: {wanted}: {found:#?}");
        }
    }
}

#[test]
fn a_pod_that_takes_all_memory_takes_no_other_pod_and_no_edge_with_it() {
    for part in ["edge", "edged"] {
        let found = directives(part);
        for wanted in OF_PODS {
            assert!(found.iter().any(|line| line == wanted), "{part}: {wanted}: {found:#?}");
        }
        for refused in NOT_OF_PODS {
            assert!(!found.iter().any(|line| line == refused), "{part}: {refused}");
        }
    }
}
