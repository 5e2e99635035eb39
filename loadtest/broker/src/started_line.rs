//! The line of its output by which Kafka's start is over.

use std::path::{Path, PathBuf};

use headwater_daemon::Readiness;

/// The line, in `kafka.server.KafkaRaftServer`'s words.
const STARTED: &str = "Kafka Server started";

/// A broker is ready when its log has the line. Its partitions can be used a moment later.
#[derive(Debug)]
pub(crate) struct StartedLine {
    log: PathBuf,
}

impl StartedLine {
    pub(crate) fn in_log(log: &Path) -> Self {
        Self { log: log.to_owned() }
    }
}

impl Readiness for StartedLine {
    fn is_ready(&mut self) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|text| text.contains(STARTED))
    }
}
