//! Development commands: up, test, check.

fn main() {}
