//! The pod worker: desired pods, plan, runtime, status.
