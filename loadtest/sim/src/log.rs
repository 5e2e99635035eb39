//! A process's way to a log: the twin, with the network between.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::{Cursor, Partition};
use headwater_log::{
    Append, AppendError, AppendFault, Batch, Bounds, Description, Log, MemoryLog, ReadError,
    Reader, RecordPosition,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::frame::Frame;

/// How long a call to the log takes at most.
const CALL_MS_MAX: u64 = 5;

/// How long a record is on its way to a reader at most.
const READ_MS_MAX: u64 = 10;

/// One process's handle on a log.
#[derive(Clone)]
pub(crate) struct SimLog {
    pub(crate) handle: MemoryLog,
    frame: Frame,
    who: Arc<str>,
    /// Locked, first come first served, until an append has reached the log.
    turns: Arc<Mutex<()>>,
}

impl SimLog {
    pub(crate) fn new(frame: &Frame, log: &MemoryLog, who: &str) -> Self {
        let (handle, frame, turns) = (log.handle(), frame.clone(), Arc::default());
        Self { handle, frame, who: who.into(), turns }
    }

    /// The next append has an outcome that its writer does not learn.
    pub(crate) fn confuse(&self) {
        let fault = match self.frame.below(4) {
            0 => AppendFault::UnknownWritten,
            1 => AppendFault::UnknownLost,
            2 => AppendFault::UnknownWrittenLater,
            _ => AppendFault::UnknownSome((0..64).map(|_| self.frame.happens(500)).collect()),
        };
        self.frame.fault("append of unknown outcome", format_args!("{} {fault:?}", self.who));
        self.handle.inject_fault(fault);
    }

    async fn call(&self) {
        sleep(self.frame.delay(CALL_MS_MAX)).await;
    }
}

#[async_trait]
impl Log for SimLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.call().await;
        self.handle.describe().await
    }

    async fn append(&self, appends: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let arrival = Instant::now() + self.frame.delay(CALL_MS_MAX);
        let turn = self.turns.lock().await;
        sleep_until(arrival).await;
        for append in &appends {
            let key = String::from_utf8_lossy(&append.record.key);
            let value = append.record.value.as_ref().map(blake3_short);
            self.frame.note(format_args!("{} appends {key} {value:?}", self.who));
        }
        let outcome = self.handle.append(appends).await;
        drop(turn);
        if let Err(error) = &outcome {
            self.frame.note(format_args!("{} append: {error}", self.who));
        }
        self.call().await;
        outcome
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.call().await;
        self.handle.bounds(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.call().await;
        self.handle.start(partition).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.call().await;
        let reader = self.handle.read(cursors).await?;
        Ok(Box::new(SimReader { reader, frame: self.frame.clone(), on_its_way: None }))
    }
}

/// Reads behind the network.
struct SimReader {
    reader: Box<dyn Reader>,
    frame: Frame,
    /// A wait that is given up loses nothing.
    on_its_way: Option<(Instant, Batch)>,
}

#[async_trait]
impl Reader for SimReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        if self.on_its_way.is_none() {
            let batch = self.reader.next().await?;
            self.on_its_way = Some((Instant::now() + self.frame.delay(READ_MS_MAX), batch));
        }
        if let Some((arrives, _)) = &self.on_its_way {
            sleep_until(*arrives).await;
        }
        match self.on_its_way.take() {
            Some((_, batch)) => Ok(batch),
            None => self.reader.next().await,
        }
    }
}

/// Enough of a hash to distinguish bytes.
pub(crate) fn blake3_short(bytes: impl AsRef<[u8]>) -> String {
    blake3::hash(bytes.as_ref()).to_hex()[..8].to_owned()
}
