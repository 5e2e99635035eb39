//! The bodies of a log in the store of its fold.

use headwater_event::BodyAddress;
use headwater_log::{Bodies, Body};
use headwater_store::EngineError;
use headwater_view::StreamState;

/// The body that was read last: the events of one change of a shared object follow each other, and
/// all get the same bytes.
pub(crate) type CachedBody = Option<(BodyAddress, Body)>;

/// The bodies in a stream state, its open batch included.
pub(crate) struct StoredBodies<'s> {
    pub(crate) state: &'s mut StreamState,
    pub(crate) last: &'s mut CachedBody,
}

impl Bodies for StoredBodies<'_> {
    type Error = EngineError;

    fn put(&mut self, at: BodyAddress, body: Body) {
        self.state.put_body(&at, body.header.clone(), body.object.clone());
        *self.last = Some((at, body));
    }

    fn remove(&mut self, at: BodyAddress) {
        self.state.remove_body(&at);
        self.last.take_if(|(last, _)| *last == at);
    }

    fn get(&mut self, at: BodyAddress) -> Result<Option<Body>, EngineError> {
        if let Some((_, body)) = self.last.as_ref().filter(|(last, _)| *last == at) {
            return Ok(Some(body.clone()));
        }
        let Some((header, object)) = self.state.body(&at)? else { return Ok(None) };
        let body = Body { header, object };
        *self.last = Some((at, body.clone()));
        Ok(Some(body))
    }
}
