//! The scenarios, listed.

use clap::ValueEnum;

use super::summary::table;
use crate::scenario::{Scenario, names};

/// How they are listed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Output {
    /// With what they run on and what they show.
    Table,
    /// One name a line.
    Name,
}

/// The list.
pub(super) fn list(output: Output) -> String {
    match output {
        Output::Name => names().map(|name| format!("{name}\n")).collect(),
        Output::Table => {
            let mut table = table(&["SCENARIO", "TARGETS", "EDGES", "DURATION", "SHOWS"]);
            // One that cannot be read is a defect that a test finds.
            for scenario in names().filter_map(|name| Scenario::load(name, &[]).ok()) {
                table.add_row([
                    scenario.name.clone(),
                    scenario.supported(),
                    format!("{} {}", scenario.edges.count, scenario.edges.kind),
                    humantime::format_duration(scenario.duration).to_string(),
                    scenario.about.clone(),
                ]);
            }
            format!("{table}\n")
        }
    }
}
