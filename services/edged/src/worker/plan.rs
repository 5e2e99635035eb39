//! The next steps of one pod. Pure: the same facts give the same plan.
//!
//! [`plan`] compares the goal ([`Fate`] and the pod's spec) with the facts (sandbox, images,
//! [`ContainerFacts`]) and names the next steps. It never waits: [`Plan::wake_at`] is the time at
//! which to plan again.
//!
//! ```text
//!   sandbox      None --Open--> Ready --Close--> None        Lost: kill what runs, then Close
//!   image        Absent --Pull--> Pulling --> Present | Failed --(until)--> Pull
//!   container    Start needs sandbox Ready and image Present; init containers come first
//!   restart      of all containers: Kill what runs from before, then as a new pod in the same sandbox
//!   end pending  nothing, until it is known how the container ended
//!   end          PreStop -> Terminate -> Kill, then Close, then the final step: Discard -> AskDelete | CleanUp | Leave
//! ```

mod facts;
mod outcome;
mod planner;
mod step;

pub use facts::{
    ContainerFacts, Containers, ImageState, Outcome, PodFacts, Run, Sandbox, Stopping,
};
pub use outcome::{is_initialized, outcome, stopped};
pub(crate) use planner::TERMINATION_MIN;
pub use planner::plan;
pub use step::{Action, FailReason, Fate, FinalStep, Plan};

#[cfg(test)]
mod scenario;
#[cfg(test)]
mod tests;
