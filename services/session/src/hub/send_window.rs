//! The window of a session: bytes of pushes that the edge has not received yet.

use super::io::Violation;

/// Counts the bytes of all pushes of a session, over all its streams.
#[derive(Debug, Default)]
pub(super) struct SendWindow {
    /// Bytes that may be in flight.
    bytes: u64,
    sent: u64,
    received: u64,
}

impl SendWindow {
    /// A window of `bytes`, with nothing in flight.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, sent: 0, received: 0 }
    }

    /// Bytes that the edge has received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// The size of the next push, at most `frame_bytes_max`; `None`: the window is full. With
    /// nothing in flight there is always room, else an object larger than the window would never
    /// pass.
    pub(super) fn room(&self, frame_bytes_max: u64) -> Option<u64> {
        let in_flight = self.sent - self.received;
        if in_flight == 0 {
            return Some(frame_bytes_max.min(self.bytes));
        }
        let left = self.bytes.saturating_sub(in_flight);
        (left > 0).then(|| left.min(frame_bytes_max))
    }

    /// Counts a push of `bytes`; returns the bytes sent with it.
    pub(super) fn send(&mut self, bytes: u64) -> u64 {
        self.sent = self.sent.saturating_add(bytes);
        self.sent
    }

    /// The edge acknowledges `received` bytes in all.
    pub(super) fn acknowledge(&mut self, received: u64) -> Result<(), Violation> {
        let (before, sent) = (self.received, self.sent);
        if received < before || received > sent {
            return Err(Violation::Bytes { received, before, sent });
        }
        self.received = received;
        Ok(())
    }
}
