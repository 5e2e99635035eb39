//! A duration as Go writes it, for messages that a kubelet has, too.

use std::time::Duration;

/// `10s`, `1.25s`, `2m40s`, `1h0m3s`; of less than a second `340ms`. Parts of a millisecond are left out.
pub(super) fn go_duration(duration: Duration) -> String {
    let (all, millis) = (duration.as_secs(), duration.subsec_millis());
    if all == 0 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    let head = match (hours, minutes) {
        (0, 0) => String::new(),
        (0, minutes) => format!("{minutes}m"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    };
    let part = format!("{millis:03}");
    match part.trim_end_matches('0') {
        "" => format!("{head}{seconds}s"),
        part => format!("{head}{seconds}.{part}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_as_by_go() {
        for (millis, text) in [
            (0, "0s"),
            (40, "40ms"),
            (999, "999ms"),
            (1000, "1s"),
            (1250, "1.25s"),
            (10_005, "10.005s"),
            (160_000, "2m40s"),
            (120_000, "2m0s"),
            (3_603_000, "1h0m3s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
