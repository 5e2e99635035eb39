//! What a client asked for.

use headwater_cri::proto::{CreateContainerRequest, RunPodSandboxRequest};

/// The most requests that are kept: those of some hundred pods.
const REQUESTS_MAX: usize = 10_000;

/// A request that the twin took.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedRequest {
    /// For a sandbox.
    Sandbox(Box<RunPodSandboxRequest>),
    /// For a container.
    Container(Box<CreateContainerRequest>),
}

/// The requests so far, in order; those after the first 10,000 are not kept.
#[derive(Debug, Default)]
pub(super) struct Record {
    is_on: bool,
    requests: Vec<RecordedRequest>,
}

impl Record {
    pub(super) fn begin(&mut self) {
        self.is_on = true;
    }

    pub(super) fn add(&mut self, request: impl FnOnce() -> RecordedRequest) {
        if self.is_on && self.requests.len() < REQUESTS_MAX {
            self.requests.push(request());
        }
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.clone()
    }
}
