//! A part of Headwater as a process, and what the kernel says of it.

use std::path::Path;
use std::time::Duration;

use headwater_loadtest::kernel::memory_bytes;
use headwater_loadtest::socket::connect;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::{EdgeStatus, StatusRequest};

use crate::failure::{Attempt, Failure};

/// Between two looks at a memory that is to come to rest.
const REST: Duration = Duration::from_millis(500);

/// How many looks at most.
const LOOKS: usize = 10;

/// Two looks that differ by less are one: a part of the whole.
const SAME: f64 = 0.005;

/// What an edge says of itself on its socket.
///
/// # Errors
/// When it does not answer.
pub(crate) async fn edge_status(socket: &Path) -> Result<EdgeStatus, Failure> {
    let channel = connect(socket).await.tried("asking an edge")?;
    let answer = MetaClient::new(channel).status(StatusRequest {}).await;
    Ok(answer.tried("asking an edge")?.into_inner())
}

/// The memory of a process in bytes, once it has come to rest.
///
/// # Errors
/// When it does not run.
pub(crate) fn memory_at_rest(id: u32) -> Result<f64, Failure> {
    let look = || memory_bytes(id).map(|bytes| bytes as f64).tried("it does not run");
    let mut before = look()?;
    for _ in 0..LOOKS {
        std::thread::sleep(REST);
        let now = look()?;
        if (now - before).abs() <= before * SAME {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
