//! The one binary: composition, configuration, command line.

fn main() {}
