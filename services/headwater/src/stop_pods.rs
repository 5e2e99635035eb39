//! `headwater stop-pods`: ends the pods that an edge left running when it stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_cli::args::StopPods;
use headwater_cli::exit::{CommandResult, Failure, Outcome};
use headwater_edged::pod::{GRACE_MAX, PodRecord};
use headwater_event::NodeName;

use crate::data_dir::{DataDir, DataDirError};
use crate::pod_runtime::end_pods;

/// Ends every pod of the data directory within its grace period.
pub(crate) fn run(args: &StopPods) -> CommandResult {
    let data = DataDir::open_present(&args.data).map_err(|error| match error {
        DataDirError::InUse { dir } => Failure::message(format!(
            "the edge of {} runs, and its pods with it: stop it first",
            dir.display()
        )),
        error => error.into(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stop_all(&data, args.grace.map(Duration::from)))
}

async fn stop_all(data: &DataDir, grace: Option<Duration>) -> CommandResult {
    let (mut ended, mut left) = (0, Vec::new());
    let name =
        |pod: &PodRecord| format!("{}/{}", pod.key.namespace().unwrap_or_default(), pod.key.name());
    for (node, dir) in nodes(data)? {
        let pods = end_pods(&node, &dir, grace.unwrap_or(GRACE_MAX).min(GRACE_MAX)).await?;
        for pod in &pods.ended {
            println!("pod {} ended", name(pod));
        }
        ended += pods.ended.len();
        left.extend(pods.left.iter().map(name));
    }
    if !left.is_empty() {
        let text = format!(
            "{} of {} pods still run: {}; run the command again, with `--grace 1s` to kill them",
            left.len(),
            left.len() + ended,
            left.join(", ")
        );
        return Err(Failure::message(text));
    }
    match ended {
        0 => println!("no pod runs in {}", data.root().display()),
        1 => println!("1 pod ended"),
        _ => println!("{ended} pods ended"),
    }
    Ok(Outcome::Done)
}

/// The nodes of the data directory, each with the directory of its pod worker, by name.
fn nodes(data: &DataDir) -> std::io::Result<Vec<(NodeName, PathBuf)>> {
    let entries = match std::fs::read_dir(data.root().join("nodes")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        nodes.extend(name.map(|name| (name, edged_dir(&path))));
    }
    nodes.sort();
    Ok(nodes)
}

fn edged_dir(node: &Path) -> PathBuf {
    node.join("edged")
}
