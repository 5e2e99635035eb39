//! Row 15: what one changed pod costs on the wire.

use headwater_loadtest::failure::Failure;

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::limit::patch;
use crate::link::Link;
use crate::pods::PODS_PER_NODE;
use crate::run::Run;
use crate::samples::Samples;

const OBJECT_BYTES: usize = 4_000;

/// Measures it.
///
/// # Errors
/// When the edge does not come in step.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let changes: u32 = run.pick(200, 2_000);
    let mut link = Link::start(OBJECT_BYTES)?;
    link.say((0..PODS_PER_NODE).map(|number| (number, 0)))?;
    link.start_edge()?;
    link.in_step()?;

    let before = link.quiet()?;
    let (mut patches, mut json) = (0, 0);
    for turn in 1..=changes {
        let number = turn % PODS_PER_NODE;
        let was = link.pods.object(number, turn.saturating_sub(PODS_PER_NODE));
        let is = link.pods.object(number, turn);
        patches += patch::bytes(&was, &is)?;
        json += is.len();
        link.say([(number, turn)])?;
        // Each by itself: what is gathered costs less.
        link.in_step()?;
    }
    let passed = link.quiet()?.since(before);
    let each = |bytes: f64| bytes / f64::from(changes);
    let (down, patch) = (each(passed.down as f64), each(patches as f64));

    let mut measured = RowResult::default();
    measured.push(
        Figure::bytes("bytes down a change", down, "zstd --patch-from", patch)
            .held_to(Bound::at_most(400.0, 1.5 * patch)),
    );
    measured.push(
        Figure::ratio(
            "bytes down a change, of JSON",
            down.into(),
            "the object as JSON",
            each(json as f64).into(),
        )
        .held_to(Bound::at_most(1.0 / 10.0, 1.0 / 20.0)),
    );
    measured.push(Figure::alone("bytes up a change", Samples::from(each(passed.up as f64))));
    measured.set("changes", format!("{changes}, one by one, each of one annotation"));
    measured.set("object", format!("{:.0} bytes of JSON", each(json as f64)));
    measured.set("counted", "bytes through a socket: HTTP/2 and what it carries, heartbeats too");
    measured.note("The part of JSON has no floor of its own: twice its target counts instead.");
    Ok(measured)
}
