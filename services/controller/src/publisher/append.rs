//! Appends in groups, reads back what was appended, and mends what a fenced writer touched.

use headwater_event::{Applied, EntryKey, Event};
use headwater_follow::Step;
use headwater_log::acceptance::RepairKey;
use headwater_log::{Draft, Outcome, WriterError, repair};
use headwater_view::Entry;
use tokio::time::Instant;

use super::{PublishError, Publisher, WritableLog};
use crate::spans;

/// Events, and bytes of objects, in one append: half of what an engine takes as one batch.
const APPEND_EVENTS_MAX: usize = 1024;
const APPEND_BYTES_MAX: usize = 4 << 20;

impl Publisher {
    pub(super) async fn append(
        &mut self,
        writing: &mut WritableLog,
        drafts: Vec<Draft>,
    ) -> Result<(), PublishError> {
        let mut rest = drafts.into_iter().peekable();
        while rest.peek().is_some() {
            let mut group = Vec::new();
            let mut bytes = 0;
            while let Some(draft) =
                rest.next_if(|_| group.len() < APPEND_EVENTS_MAX && bytes < APPEND_BYTES_MAX)
            {
                bytes += object_bytes(&draft.event);
                group.push(draft);
            }
            self.append_group(writing, group).await?;
        }
        Ok(())
    }

    /// Appends one group; an event that no log can take is left out by name.
    async fn append_group(
        &mut self,
        writing: &mut WritableLog,
        mut group: Vec<Draft>,
    ) -> Result<(), PublishError> {
        let partitions = writing.follower.acceptance().metadata().partitions;
        loop {
            let mut drafts = group.clone();
            let spans = spans::appends(&mut drafts, partitions);
            let began = Instant::now();
            let outcome = writing.writer.append(drafts).await;
            if let Err(error) = &outcome {
                self.metrics.append_failed(error);
            }
            match outcome {
                Ok(written) => {
                    let events = group.iter().map(|draft| &draft.event);
                    let bytes = events.clone().map(object_bytes).sum();
                    self.metrics.appended(events, bytes, began.elapsed());
                    spans::appended(spans, &written);
                    return self.read_back(writing, written.len()).await;
                }
                Err(WriterError::TooLarge { stream, key, bytes, bytes_max }) => {
                    tracing::error!(
                        %stream, %key, bytes, bytes_max,
                        "the object is too large for the log and is left out; make it smaller"
                    );
                    group.retain(|draft| {
                        draft.stream != stream
                            || draft.event.key().is_none_or(|entry| entry.as_str() != key)
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads until everything that was appended has come back.
    pub(super) async fn read_back(
        &mut self,
        writing: &mut WritableLog,
        appended: usize,
    ) -> Result<(), PublishError> {
        self.progress.send_modify(|progress| progress.appended += appended as u64);
        while writing.writer.in_flight() > 0 {
            let step = writing.follower.next().await?;
            writing.observe(&step)?;
            // What was appended behind another's claim never comes back as an event.
            if !writing.writer.is_alive() {
                return Err(PublishError::Fenced);
            }
        }
        Ok(())
    }

    /// Looks at what others wrote: a higher claim ends this writer, a fenced record is mended.
    pub(super) async fn observe(
        &mut self,
        writing: &mut WritableLog,
        step: &Step,
    ) -> Result<(), PublishError> {
        writing.observe(step)?;
        if !writing.writer.is_alive() {
            return Err(PublishError::Fenced);
        }
        self.repair(writing).await
    }

    /// Appends the truth again for each key that a record which does not count has touched.
    pub(super) async fn repair(&mut self, writing: &mut WritableLog) -> Result<(), PublishError> {
        let mut drafts = Vec::new();
        for (stream, touched) in writing.writer.repairs(writing.follower.acceptance()) {
            let present = match &touched {
                RepairKey::Head => None,
                RepairKey::Entry(key) => {
                    self.published(&stream, key)?.map(|entry| applied(key.clone(), entry))
                }
            };
            drafts.push(repair(stream, touched, present));
        }
        self.append(writing, drafts).await
    }
}

impl WritableLog {
    /// Takes note of what was read. A stream that stands takes nothing more in this epoch, however
    /// often it is appended: the next one takes it up.
    fn observe(&mut self, step: &Step) -> Result<(), PublishError> {
        for outcome in &step.outcomes {
            self.writer.observe(outcome);
            let (stream, why) = match outcome {
                Outcome::Hole(hole) => {
                    (Some(&hole.stream), format!("seq {} is missing", hole.expected))
                }
                Outcome::Malformed(malformed) => (malformed.stream.as_ref(), malformed.to_string()),
                _ => continue,
            };
            let position = stream.and_then(|stream| self.follower.acceptance().stream(stream));
            let stopped = position.and_then(|position| position.stopped);
            if let Some(stream) = stream.filter(|_| stopped >= Some(self.writer.epoch())) {
                return Err(PublishError::Stands { stream: stream.clone(), why });
            }
        }
        Ok(())
    }
}

fn object_bytes(event: &Event) -> usize {
    match event {
        Event::Applied(applied) => applied.object.len(),
        Event::Removed(_) | Event::Head => 0,
    }
}

fn applied(key: EntryKey, entry: Entry) -> Applied {
    let Entry { uid, resource_version, object, .. } = entry;
    Applied { key, uid, resource_version, object }
}
