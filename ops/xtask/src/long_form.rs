//! The long forms of checks, which take longer than CI allows, and when each last passed here.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::place::Place;

/// The commands with a long form, in the order of their report.
pub(crate) const ALL: [&str; 14] = [
    "survive crash",
    "survive power",
    "survive kafka",
    "survive containers",
    "survive sim",
    "survive conformance",
    "survive node-conformance",
    "survive containerd-2",
    "survive cri-o",
    "survive cgroup-v2",
    "survive gateway",
    "survive kubelet",
    "fuzz",
    "bench",
];

/// Records that the long form `name` passed now.
pub(crate) fn passed(place: &Place, name: &str) {
    let file = file(place, name);
    let folder = file.parent().unwrap_or(&place.cache);
    // The record only informs; without it the next report says `never`.
    let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&file, ""));
}

/// Prints when each long form last passed on this machine.
pub(crate) fn report(place: &Place) {
    eprintln!("== long forms, not part of this check");
    for name in ALL {
        let time = fs::metadata(file(place, name)).and_then(|metadata| metadata.modified());
        let age = time.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        eprintln!("  {name:<24} {}", describe(age));
    }
}

fn file(place: &Place, name: &str) -> PathBuf {
    place.cache.join("long-forms").join(name.replace(' ', "-"))
}

fn describe(age: Option<Duration>) -> String {
    const HOUR: u64 = 60 * 60;
    match age.map(|age| age.as_secs() / HOUR) {
        None => "never passed on this machine".to_owned(),
        Some(0) => "passed less than an hour ago".to_owned(),
        Some(hours @ 1..48) => format!("passed {hours} h ago"),
        Some(hours) => format!("passed {} days ago", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_hours_and_then_days() {
        let hours = |hours: u64| describe(Some(Duration::from_secs(hours * 60 * 60)));
        assert_eq!(describe(None), "never passed on this machine");
        assert_eq!(hours(0), "passed less than an hour ago");
        assert_eq!(hours(47), "passed 47 h ago");
        assert_eq!(hours(72), "passed 3 days ago");
    }
}
