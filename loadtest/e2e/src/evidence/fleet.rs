//! Evidence of a fleet: the databases of its parts, running or not, and the topics between them.

use std::sync::Arc;

use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::{DOWNSTREAM_TOPIC, POSITIONS_TOPIC, UPSTREAM_TOPIC, UpstreamLog};
use headwater_rocks::Role;
use headwater_store::schema;

use super::{Copies, Evidence, Unreadable, log, unreadable};
use crate::fleet::Fleet;
use crate::part::{HaltedPart, Part};

/// What brokers call the reader.
const CLIENT: &str = "headwater.evidence";

impl Evidence {
    /// Reads what every edge and every controller of `fleet` has on its disk, and both logs up to
    /// where they end. A running part is halted while its disk is read: the copy is what a kill
    /// at that moment would have left. Edges stay halted until the log is read, so that the log is
    /// never behind them.
    ///
    /// # Errors
    /// Names what is there and cannot be read.
    pub fn of_fleet(fleet: &Fleet) -> Result<Self, Unreadable> {
        let mut evidence = Self::default();
        let copies = Copies::new();
        let edges = fleet.parts().filter(|(_, part)| part.data().join("nodes").is_dir());
        let edges: Vec<&Part> = edges.map(|(_, part)| part).collect();
        let _halted: Vec<HaltedPart<'_>> = edges.iter().map(|part| part.halt()).collect();
        for part in edges {
            let known: Vec<_> = evidence.nodes.keys().cloned().collect();
            evidence.read_nodes(part.data(), &copies)?;
            let of_part = evidence.nodes.iter_mut().filter(|(name, _)| !known.contains(name));
            of_part.for_each(|(_, node)| node.is_away = part.process_id().is_none());
        }
        for (name, part) in fleet.parts().filter(|(_, part)| part.process_id().is_some()) {
            let picture = part.data().join("controller/picture");
            let halted = part.halt();
            let opened = copies.open(&picture, Role::Fold, schema::CONTROLLER)?;
            drop(halted);
            if let Some(engine) = opened {
                let read = evidence.read_picture(name, &*engine);
                read.map_err(|error| unreadable(&picture, &error))?;
            }
        }
        let read = read_logs(fleet, &mut evidence);
        read.map_err(|reason| unreadable("the log".as_ref(), &*reason))?;
        Ok(evidence)
    }

    /// Whether a log of `fleet` is away.
    pub fn is_log_away(fleet: &Fleet) -> bool {
        let read = read_logs(fleet, &mut Self::default());
        read.is_err_and(|reason| log::is_temporary(&*reason))
    }
}

/// Reads both logs of `fleet` up to where they end.
fn read_logs(fleet: &Fleet, evidence: &mut Evidence) -> Result<(), Box<log::Failure>> {
    let open = |topic: &str| {
        let mut settings = KafkaSettings::new(fleet.kafka.bootstrap(), topic);
        CLIENT.clone_into(&mut settings.client_id);
        settings.commit_positions = false;
        KafkaLog::new(settings)
    };
    let reports = Arc::new(open(UPSTREAM_TOPIC)?);
    let upstream = UpstreamLog::new(reports, Arc::new(open(POSITIONS_TOPIC)?));
    log::read(&open(DOWNSTREAM_TOPIC)?, &upstream, evidence)
}
