//! Serving: which push goes out next, as far as the window has room.

use std::sync::Arc;

use headwater_event::StreamId;

use super::catch_up_plan::{CatchUpPlan, PlanInput};
use super::stream_sender::StreamSender;
use super::tail::tail_push;
use super::{HubCloseReason, HubOutput, HubSession};
use crate::message::{HubMessage, ParkNotice, Push, PushMode};
use crate::shared_push::SharedPush;
use crate::source::StreamSource;

impl HubSession {
    /// Sends pushes until the window is full, the private stream first.
    pub(super) fn serve(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        if !self.is_open() {
            return Ok(());
        }
        let mut senders = std::mem::take(&mut self.senders);
        let result = self.serve_streams(source, &mut senders, outputs);
        self.senders = senders;
        result
    }

    /// Sends pushes of each stream that is not idle, the private one first.
    fn serve_streams(
        &mut self,
        source: &dyn StreamSource,
        senders: &mut [StreamSender],
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let private = StreamId::node(&self.node);
        // Two turns instead of a list in this order: a list would be allocated for each event.
        for is_private in [true, false] {
            for sender in senders.iter_mut() {
                let is_due = sender.is_served && !sender.is_idle;
                if is_due && (*sender.stream() == private) == is_private {
                    self.serve_stream(source, sender, outputs)?;
                }
            }
        }
        Ok(())
    }

    /// Sends pushes of one stream until the window is full or the stream has nothing to send.
    fn serve_stream(
        &mut self,
        source: &dyn StreamSource,
        sender: &mut StreamSender,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let stream = &sender.stream().clone();
        loop {
            let room = self.window.room(self.settings.frame_bytes_max);
            if let Some(bytes_max) = room
                && let Some(push) = sender.next_part(bytes_max)?
            {
                self.send(sender, push, outputs);
                continue;
            }
            if sender.transfer_since().is_some() {
                return Ok(());
            }
            let summary = sender.take_summary();
            let status = source.status(stream)?;
            sender.tail = status.checkpoint.seq;
            let next_epoch_from = match &sender.held {
                Some(held) => source.next_epoch_from(stream, held.checkpoint.epoch)?,
                None => None,
            };
            let behind = PlanInput {
                held: sender.held.as_ref(),
                reset: sender.reset || summary.is_some(),
                overflowed: sender.overflowed,
                lacks_events: sender.lacks_events,
                next_epoch_from,
            };
            let plan = CatchUpPlan::choose(&behind, &status, self.settings.tail_events_max);
            let parked = if let CatchUpPlan::Park(reason) = plan { Some(reason) } else { None };
            if let Some(reason) = parked
                && sender.parked != parked
            {
                let parked = ParkNotice { stream: stream.clone(), reason: reason.to_owned() };
                outputs.push(HubOutput::Send(HubMessage::ParkNotice(parked)));
            }
            sender.parked = parked;
            sender.snapshot_due = plan == CatchUpPlan::Snapshot;
            if plan == CatchUpPlan::Snapshot
                && let Some(summary) = summary
            {
                // The stream waited for its transfer slot before it sent the comparison.
                sender.begin_correction(source, &summary, &status, self.now_ms)?;
                continue;
            }
            match (plan, room) {
                (CatchUpPlan::Idle | CatchUpPlan::Park(_), _) => {
                    sender.is_idle = true;
                    sender.overflowed = false;
                    return Ok(());
                }
                (_, None) => {
                    sender.overflowed = true;
                    return Ok(());
                }
                (CatchUpPlan::Tail, Some(bytes_max)) => {
                    let from = sender.sent();
                    if let Some(shared) = source.shared_tail(stream, from, &status, bytes_max)? {
                        self.share(sender, shared, outputs);
                    } else if let Some(push) = tail_push(source, stream, from, &status, bytes_max)?
                    {
                        self.send(sender, push, outputs);
                    } else {
                        sender.lacks_events = true;
                    }
                }
                (CatchUpPlan::Delta | CatchUpPlan::Snapshot, Some(_)) if !source.may_transfer() => {
                    sender.is_idle = true;
                    return Ok(());
                }
                (CatchUpPlan::Delta, Some(_)) => {
                    let reader = source.delta(stream, sender.sent())?;
                    sender.begin(PushMode::Delta, reader, &status, self.now_ms);
                }
                (CatchUpPlan::Snapshot, Some(_)) if sender.may_compare() => {
                    let compare = sender.compare(&status.hash, self.now_ms);
                    outputs.push(HubOutput::Send(HubMessage::Compare(compare)));
                    return Ok(());
                }
                (CatchUpPlan::Snapshot, Some(_)) => {
                    let reader = source.snapshot(stream)?;
                    sender.begin(PushMode::Snapshot, reader, &status, self.now_ms);
                }
            }
        }
    }

    fn send(&mut self, sender: &mut StreamSender, push: Push, outputs: &mut Vec<HubOutput>) {
        let sent_bytes = self.window.send(push.bytes());
        sender.sending(&push, sent_bytes);
        outputs.push(HubOutput::Send(HubMessage::Push(push)));
    }

    fn share(
        &mut self,
        sender: &mut StreamSender,
        shared: Arc<SharedPush>,
        outputs: &mut Vec<HubOutput>,
    ) {
        let sent_bytes = self.window.send(shared.bytes());
        sender.sending(shared.push(), sent_bytes);
        outputs.push(HubOutput::Share(shared));
    }
}
