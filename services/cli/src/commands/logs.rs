//! `headwater logs`: the log of a container.

use std::io::Write;

use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::LogsRequest;

use crate::args::Logs;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::render::plain;

pub(super) async fn run(args: Logs) -> CommandResult {
    // As in kubectl: the pod, or pod/NAME.
    let pod = pod(&args.pod)?.to_owned();
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let since_ms = args.since.map_or(0, |since| {
        now_ms.saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)).max(1)
    });
    let mut operator = client::connect(&args.target.data).await?;
    let request = LogsRequest {
        pod,
        namespace: args.namespace,
        container: args.container.unwrap_or_default(),
        follow: args.follow,
        previous: args.previous,
        all_containers: args.all_containers,
        tail: args.tail,
        since_ms,
        timestamps: args.timestamps,
        prefix: args.prefix,
    };
    let mut chunks = operator.logs(request).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    while let Some(chunk) = chunks.message().await? {
        if !chunk.note.is_empty() {
            eprintln!("{}", plain(&chunk.note));
        }
        stdout.write_all(&chunk.data)?;
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

/// The pod's name.
fn pod(word: &str) -> Result<&str, Failure> {
    match word.split_once('/') {
        None => Ok(word),
        Some((of, name)) if ObjectType::named(of).is_some_and(|of| of.name == "pod") => Ok(name),
        Some((of, _)) => Err(Failure::Usage(format!("{of} is not a pod: only pods have logs"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_type_or_without() {
        for word in ["web", "pod/web", "po/web", "pods/web"] {
            assert_eq!(pod(word).expect("a pod"), "web");
        }
        assert!(matches!(pod("svc/web"), Err(Failure::Usage(_))));
    }
}
