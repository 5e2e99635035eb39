//! Invariant checkers, one per file, shared by every test harness.
