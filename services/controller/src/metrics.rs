//! What the controller counts, for whoever scrapes the process. Handles are bound once, here.

use headwater_event::Event;
use prometheus::{IntCounter, Registry, register_int_counter_vec_with_registry};

/// The metrics of a controller. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct ControllerMetrics {
    applied: IntCounter,
    removed: IntCounter,
    heads: IntCounter,
}

impl ControllerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let events = register_int_counter_vec_with_registry!(
            "headwater_controller_events_appended_total",
            "Events that the log has durably, by what they say of their entry.",
            &["kind"],
            registry
        )?;
        let events = |kind| events.with_label_values(&[kind]);
        Ok(Self { applied: events("applied"), removed: events("removed"), heads: events("head") })
    }

    /// These events are in the log.
    pub(crate) fn appended<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        for event in events {
            match event {
                Event::Applied(_) => self.applied.inc(),
                Event::Removed(_) => self.removed.inc(),
                Event::Head => self.heads.inc(),
            }
        }
    }
}
