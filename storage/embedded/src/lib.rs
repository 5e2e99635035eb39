//! The embedded log: one log on one storage engine.
