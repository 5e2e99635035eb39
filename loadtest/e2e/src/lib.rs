//! Tests with the real binary and real processes.
