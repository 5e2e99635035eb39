//! `headwater logs`: what a container wrote.

use std::io::Write;

use headwater_proto::operator::LogsRequest;

use crate::cli::Logs;
use crate::client;
use crate::exit::{CommandResult, Outcome};

pub(super) async fn run(args: Logs) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let request = LogsRequest {
        // As kubectl takes it: the pod, or pod/NAME.
        pod: args.pod.strip_prefix("pod/").unwrap_or(&args.pod).to_owned(),
        namespace: args.namespace,
        container: args.container.unwrap_or_default(),
        follow: args.follow,
        previous: args.previous,
    };
    let mut chunks = operator.logs(request).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    while let Some(chunk) = chunks.message().await? {
        stdout.write_all(&chunk.data)?;
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}
