//! The outcomes of the records of one append.

use std::sync::{Arc, Mutex, PoisonError};

use headwater_event::Partition;
use headwater_log::RecordPosition;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{DeliveryResult, Message};
use tokio::sync::oneshot;

use crate::native::offset;

/// A record that was sent, until its outcome is known.
pub(crate) struct Delivery {
    pub(crate) call: Arc<AppendCall>,
    pub(crate) index: usize,
}

/// One call of `append`: collects the outcomes of its records.
pub(crate) struct AppendCall {
    state: Mutex<State>,
}

struct State {
    appended: Vec<Option<RecordPosition>>,
    left: usize,
    failed: Vec<RDKafkaErrorCode>,
    done: Option<oneshot::Sender<()>>,
}

impl AppendCall {
    /// A call of so many `records`. `done` is sent once the outcome of each is known.
    pub(crate) fn new(records: usize, done: oneshot::Sender<()>) -> Self {
        let appended = vec![None; records];
        let state = State { appended, left: records, failed: Vec::new(), done: Some(done) };
        Self { state: Mutex::new(state) }
    }

    fn finish(&self, index: usize, result: Result<RecordPosition, RDKafkaErrorCode>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(appended) => state.appended[index] = Some(appended),
            Err(code) => state.failed.push(code),
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0
            && let Some(done) = state.done.take()
        {
            // A dropped future of `append` receives nothing.
            let _ = done.send(());
        }
    }

    /// Fails the record at `index` and all after it: they are not sent.
    pub(crate) fn fail_from(&self, index: usize, code: RDKafkaErrorCode) {
        let records = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.appended.len()
        };
        (index..records).for_each(|index| self.finish(index, Err(code)));
    }

    /// Returns the positions of the records, or the codes of those that failed.
    pub(crate) fn outcome(&self) -> Result<Vec<RecordPosition>, Vec<RDKafkaErrorCode>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let appended: Vec<_> = state.appended.iter().flatten().copied().collect();
        if appended.len() == state.appended.len() {
            return Ok(appended);
        }
        let mut failed = state.failed.clone();
        if !appended.is_empty() {
            // Some records are written and some are not: this is no refusal.
            failed.push(RDKafkaErrorCode::Partial);
        }
        Err(failed)
    }
}

impl Delivery {
    /// Records the outcome that librdkafka reports.
    pub(crate) fn done(&self, result: &DeliveryResult<'_>) {
        let result = match result {
            Ok(message) => {
                let partition = u32::try_from(message.partition()).unwrap_or_default();
                let partition = Partition(partition);
                Ok(RecordPosition { partition, offset: offset(message.offset()) })
            }
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        self.call.finish(self.index, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [RecordPosition; 2] = [
        RecordPosition { partition: Partition(0), offset: headwater_event::Offset(7) },
        RecordPosition { partition: Partition(1), offset: headwater_event::Offset(9) },
    ];

    fn call() -> (AppendCall, oneshot::Receiver<()>) {
        let (done, finished) = oneshot::channel();
        (AppendCall::new(2, done), finished)
    }

    #[test]
    fn a_call_is_over_when_each_of_its_records_is() {
        let (call, mut finished) = call();
        call.finish(1, Ok(TWO[1]));
        assert!(finished.try_recv().is_err());
        call.finish(0, Ok(TWO[0]));
        assert!(finished.try_recv().is_ok());
        assert_eq!(call.outcome(), Ok(TWO.to_vec()), "in the order given");
    }

    #[test]
    fn one_written_record_makes_a_failure_of_the_others_partial() {
        let (call, _finished) = call();
        call.finish(0, Ok(TWO[0]));
        call.fail_from(1, RDKafkaErrorCode::MessageSizeTooLarge);
        let failed = call.outcome().expect_err("one is missing");
        assert!(failed.contains(&RDKafkaErrorCode::Partial));
    }

    #[test]
    fn a_call_whose_records_all_fail_is_over() {
        let (call, mut finished) = call();
        call.fail_from(0, RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(finished.try_recv().is_ok());
        let failed = call.outcome().expect_err("none is written");
        assert_eq!(failed, [RDKafkaErrorCode::MessageSizeTooLarge; 2]);
    }
}
