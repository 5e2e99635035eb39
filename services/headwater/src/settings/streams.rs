//! The `[streams]` table: streams of API servers through a hub to the pods of a node. Settings of `edge`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use headwater_edge::TunnelSettings;
use headwater_settings::{InvalidSetting, duration_text};
use serde::{Deserialize, Serialize};

/// The most streams of a node: a hub takes no more calls of a connection at a time.
const STREAMS_MAX: usize = 16;

/// The settings of streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Streams {
    /// Streams at a time; 0: none, so that a hub reaches no pod of the node.
    pub(crate) max: usize,
    /// KiB a second of all streams together, each way; 0: as many as there is room for.
    pub(crate) kib_per_second: u64,
    /// How long the second connection stays without streams.
    #[serde(with = "duration_text")]
    pub(crate) idle: Duration,
    /// The socket of the kubelet's server of a pod worker in another process.
    pub(crate) socket: Option<PathBuf>,
}

impl Default for Streams {
    fn default() -> Self {
        let TunnelSettings { streams_max, idle, .. } = TunnelSettings::default();
        Self { max: streams_max, kib_per_second: 0, idle, socket: None }
    }
}

impl Streams {
    /// Checks the table. `edged`: whether the pod worker is in the same process.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn check(&self, edged: bool) -> Result<(), InvalidSetting> {
        if self.max > STREAMS_MAX {
            let what = format!("want at most {STREAMS_MAX}");
            return Err(InvalidSetting::new("streams.max", what));
        }
        if edged && self.socket.is_some() {
            let what = "it is of a pod worker in another process: set it with --no-edged only";
            return Err(InvalidSetting::new("streams.socket", what));
        }
        Ok(())
    }

    /// The bounds.
    pub(crate) fn bounds(&self) -> TunnelSettings {
        TunnelSettings {
            streams_max: self.max,
            idle: self.idle,
            bytes_per_second: NonZeroU64::new(self.kib_per_second.saturating_mul(1 << 10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_node_are_bounded_and_a_socket_is_of_another_process() {
        let table = Streams::default();
        table.check(true).expect("the defaults");
        assert_eq!(table.bounds(), TunnelSettings::default());
        let many = Streams { max: 17, ..table.clone() };
        assert_eq!(many.check(true).expect_err("too many").key, "streams.max");
        let socket = Streams { socket: Some("/run/x".into()), ..table };
        socket.check(false).expect("it is in another process");
        assert_eq!(socket.check(true).expect_err("its own").key, "streams.socket");
    }
}
