//! What the hub counts, for whoever scrapes the process.
//!
//! Nothing is labelled by node: a hub serves thousands of them. Handles are bound once, here.

use prometheus::{IntCounter, Registry, register_int_counter_vec_with_registry};

use headwater_session::message::PushMode;

/// The metrics of a hub. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct HubMetrics {
    pushes: ByMode,
}

/// One counter for each way that brings a replica forward.
#[derive(Clone)]
pub(crate) struct ByMode {
    tail: IntCounter,
    delta: IntCounter,
    snapshot: IntCounter,
}

impl HubMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let pushes = register_int_counter_vec_with_registry!(
            "headwater_hub_pushes_total",
            "Pushes handed to a session's transport, parts counted each.",
            &["mode"],
            registry
        )?;
        Ok(Self { pushes: ByMode::of(|mode| pushes.with_label_values(&[mode])) })
    }

    /// A push was handed to the transport.
    pub(crate) fn pushed(&self, mode: PushMode) {
        self.pushes.of_mode(mode).inc();
    }
}

impl ByMode {
    fn of(counter: impl Fn(&str) -> IntCounter) -> Self {
        Self { tail: counter("tail"), delta: counter("delta"), snapshot: counter("snapshot") }
    }

    pub(crate) fn of_mode(&self, mode: PushMode) -> &IntCounter {
        match mode {
            PushMode::Tail => &self.tail,
            PushMode::Delta => &self.delta,
            PushMode::Snapshot => &self.snapshot,
        }
    }
}
