//! A control plane starts, serves, survives, and ends. Its client is kubectl.

mod failures;
mod faults;
mod foreground;
mod kubectl;
mod serving;
