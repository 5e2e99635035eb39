//! A list of the cloud's picture, read page by page.
//!
//! The first page is read like any request. A list that goes on would take a processor from the
//! publisher for as long as it lasts, so its other pages are read at the lowest priority, unless they
//! take a lock.

use headwater_controller::{Filter, Picture, PicturePage};
use headwater_event::ResourceKey;
use headwater_owner::{BackgroundThread, run_blocking};
use headwater_store::EngineError;
use serde_json::Value;
use tonic::Status;

use super::internal;

/// Reads a list of the picture.
pub(super) struct PictureList {
    picture: Picture,
    /// The key behind which the next page begins.
    after: Option<ResourceKey>,
    has_ended: bool,
    /// From the second page on.
    background: Option<BackgroundThread>,
    has_begun: bool,
}

impl PictureList {
    pub(super) fn new(picture: Picture) -> Self {
        Self { picture, after: None, has_ended: false, background: None, has_begun: false }
    }

    /// The objects of the next page, each as `form` returns it; `None` after the last page. A list has at
    /// least one page, and a page may be empty.
    pub(super) async fn next<T: Send + 'static>(
        &mut self,
        filter: &Filter<'_>,
        now_ms: i64,
        form: impl Fn(ResourceKey, Value) -> T + Send + 'static,
    ) -> Result<Option<Vec<T>>, Status> {
        if self.has_ended {
            return Ok(None);
        }
        let outline = loop {
            let outline = self.picture.outline(filter, self.after.as_ref());
            let outline = outline.map_err(|error| internal(&error))?;
            let Some(next) = outline.skips_to() else { break outline };
            self.after = Some(next.clone());
            tokio::task::yield_now().await;
        };
        let takes_no_lock = outline.takes_no_lock();
        let picture = self.picture.clone();
        let fill = move || -> Result<(Vec<T>, Option<ResourceKey>), EngineError> {
            let PicturePage { objects, next } = picture.fill(outline, now_ms)?;
            Ok((objects.into_iter().map(|(key, object)| form(key, object)).collect(), next))
        };
        let filled = if self.has_begun && takes_no_lock {
            let background = self.background()?;
            background.run(fill).await.map_err(|error| internal(&error))?
        } else {
            run_blocking(fill).await.map_err(|error| internal(&error))?
        };
        let (objects, next) = filled.map_err(|error| internal(&error))?;
        self.has_begun = true;
        self.has_ended = next.is_none();
        self.after = next;
        Ok(Some(objects))
    }

    /// The thread of a long list.
    fn background(&mut self) -> Result<BackgroundThread, Status> {
        if let Some(background) = &self.background {
            return Ok(background.clone());
        }
        let background = BackgroundThread::start("long list").map_err(|error| internal(&error))?;
        self.background = Some(background.clone());
        Ok(background)
    }
}
