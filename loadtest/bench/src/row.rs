//! The table: which rows there are.

use std::time::{Duration, Instant};

use headwater_loadtest::failure::Failure;

use crate::figure::RowResult;
use crate::rows;
use crate::run::Run;
use crate::turns::Turns;

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) number: u8,
    pub(crate) name: &'static str,
    /// What is measured, and what it is measured against.
    pub(crate) about: &'static str,
    measure: fn(&mut Run) -> Result<RowResult, Failure>,
}

/// How long the short form of a row may take before it is given up: several times what it takes.
const SHORT_WITHIN: Duration = Duration::from_secs(8 * 60);

/// The long form, likewise.
const LONG_WITHIN: Duration = Duration::from_secs(60 * 60);

/// In the order of their numbers.
pub(crate) const ROWS: &[Row] = &[
    Row {
        number: 1,
        name: "apply",
        about: "An edge applies events as fast as they come: session, decoding, hashes, derived \
                rows, RocksDB without syncs; against bare RocksDB given the same batches.",
        measure: rows::apply::unsynced,
    },
    Row {
        number: 2,
        name: "apply-synced",
        about: "The same with a sync for every group; against a file that is given the same bytes \
                and synced as often.",
        measure: rows::apply::synced,
    },
    Row {
        number: 3,
        name: "append",
        about: "Events appended to Kafka through the log's writer (positions, hashes, records), \
                against a bare producer of rdkafka's that sends the same records with the same \
                settings.",
        measure: rows::append::measure,
    },
    Row {
        number: 4,
        name: "propagation",
        about: "From the intended moment of a change to the moment when a worker at the node sees \
                it, durable in the edge's RocksDB; against producing and \
                consuming the same bytes at the same rate on the same broker.",
        measure: rows::propagation::measure,
    },
    Row {
        number: 5,
        name: "idle",
        about: "What an idle edge costs its hub in memory and time; against a bare HTTP/2 server \
                with as many streams.",
        measure: rows::crowd::idle,
    },
    Row {
        number: 6,
        name: "delivery",
        about: "A hub's time on a processor for each event that it delivers; against a thread \
                that writes as many bytes to as many sockets.",
        measure: rows::crowd::delivery,
    },
    Row {
        number: 8,
        name: "resume",
        about: "An edge comes back from where it stood, 1 % of its pods changed: bytes on the \
                wire against the changed objects, compressed.",
        measure: rows::resume::valid,
    },
    Row {
        number: 9,
        name: "resume-lost",
        about: "An edge comes back and what it stood at means nothing any more, 1 % of its pods \
                changed: bytes on the wire against the changed objects, compressed.",
        measure: rows::resume::lost,
    },
    Row {
        number: 11,
        name: "metasync",
        about: "Pod statuses on their way to the cloud: bytes on the wire against a patch of what \
                changed, and against sending all statuses once a minute.",
        measure: rows::metasync::measure,
    },
    Row {
        number: 12,
        name: "crash",
        about: "An edge killed while 5,000 events a second come, from its next start to right \
                answers; against bare RocksDB opening the same database.",
        measure: rows::crash::measure,
    },
    Row {
        number: 13,
        name: "bootstrap",
        about: "A hub folds a log on Kafka from its start, against the slower of consuming the \
                same topic and writing the same bytes to bare RocksDB; an edge with nothing takes \
                a snapshot, against the live objects, compressed.",
        measure: rows::bootstrap::measure,
    },
    Row {
        number: 14,
        name: "memory",
        about: "Memory and disk of an edge with its pods, after churn; against a process that has \
                opened an empty database.",
        measure: rows::memory::measure,
    },
    Row {
        number: 15,
        name: "wire",
        about: "One changed pod on its way to the edge: bytes on the wire against a patch of the \
                object.",
        measure: rows::wire::measure,
    },
    Row {
        number: 16,
        name: "isolation",
        about: "One edge in a black hole and one that reads a byte a second, among a hundred; \
                against the same without them.",
        measure: rows::crowd::isolation,
    },
    Row {
        number: 17,
        name: "kubeedge",
        about: "What KubeEdge was measured at on a machine like this one, done by Headwater: \
                creates and updates, a thousand at once, coming back, idleness, memory, kills.",
        measure: rows::kubeedge::measure,
    },
    Row {
        number: 18,
        name: "fleet",
        about: "The cloud half with the log of a large fleet on Kafka: restarts with and without \
                its disk, a take-over, memory, a long answer, and an object of every node.",
        measure: rows::fleet::measure,
    },
    Row {
        number: 19,
        name: "request",
        about: "A get of a node over the request lane, hub and active controller, to a Kubernetes API \
                and back; against the same get by a client of the API server.",
        measure: rows::request::measure,
    },
    Row {
        number: 20,
        name: "api",
        about: "What KubeEdge was measured at with its Kubernetes API in front, done by Headwater: \
                objects from the API to an edge, statuses back, kills, and a thousand idle nodes.",
        measure: rows::api::measure,
    },
    Row {
        number: 21,
        name: "containers",
        about: "Pods as containers of a real containerd, on one edge: from the source to Ready in the \
                cloud, a killed container, 110 at once and idle, and a machine that starts again; \
                against raw calls of the runtime.",
        measure: rows::containers::measure,
    },
    Row {
        number: 22,
        name: "bulk",
        about: "Changes on their way to an edge while a log of one of its pods is read through the port \
                of its hub, as fast as a link of 100 Mbit/s has it; against the same changes alone.",
        measure: rows::bulk::measure,
    },
];

impl Row {
    pub(crate) fn within(full: bool) -> Duration {
        if full { LONG_WITHIN } else { SHORT_WITHIN }
    }

    /// Measures it in this process.
    ///
    /// # Errors
    /// When something does not do at all what it should.
    pub(crate) fn measure(&self, full: bool, seed: u64) -> Result<RowResult, Failure> {
        let mut run = Run { full, turns: Turns::of(seed), began: Instant::now() };
        let mut measured = (self.measure)(&mut run)?;
        measured.busiest_core = run.turns.busiest_core();
        Ok(measured)
    }
}

/// The rows of these numbers or names; all of them where none is named.
///
/// # Errors
/// Names what is no row.
pub(crate) fn find(words: &[String]) -> Result<Vec<Row>, Failure> {
    if words.is_empty() {
        return Ok(ROWS.to_vec());
    }
    let find = |word: &String| {
        let is = |row: &&Row| row.name == word || row.number.to_string() == *word;
        let found = ROWS.iter().find(is).copied();
        found.ok_or_else(|| Failure::of(format!("no row {word:?}; there are {}", known())))
    };
    words.iter().map(find).collect()
}

/// The rows by which a run is asked for.
fn known() -> String {
    let names = ROWS.iter().map(|Row { number, name, .. }| format!("{number} {name}"));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_number_and_name() {
        let found = find(&["3".to_owned(), "apply".to_owned()]).expect("there are such rows");
        assert_eq!(found.iter().map(|row| row.number).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(find(&[]).expect("all").len(), ROWS.len());
        let failure = find(&["99".to_owned()]).err().expect("none").to_string();
        assert!(failure.contains("99") && failure.contains("apply"), "{failure}");
    }

    #[test]
    fn numbers_and_names_are_of_one_row_each() {
        assert!(ROWS.windows(2).all(|two| two[0].number < two[1].number));
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
