//! The images that the runtime has shown a moment ago. Many pods of one image start together, and a pod asks for its image at each
//! step of its start.
//!
//! Only what is there is kept. A pull, a removal and a container that could not be made forget everything.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{CallError, CriClient};
use crate::images::image_status;
use crate::proto::Image;

/// An image counts as it was shown for this long: another client of the runtime may remove it, or move its name.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ImageCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// By the name that was asked for, with the moment before the call.
    images: HashMap<String, (Instant, Image)>,
    /// How often everything was forgotten: an answer from before that is not kept.
    times_forgotten: u64,
}

impl ImageCache {
    /// The image of this name, if it is there.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn status(
        &self,
        client: &CriClient,
        name: &str,
    ) -> Result<Option<Image>, CallError> {
        self.look(name, || image_status(client, name)).await
    }

    /// Forgets everything: an image may have gone, or have another name.
    pub(crate) fn forget(&self) {
        self.with(|seen| {
            seen.images.clear();
            seen.times_forgotten += 1;
        });
    }

    async fn look<F: Future<Output = Result<Option<Image>, CallError>>>(
        &self,
        name: &str,
        ask: impl FnOnce() -> F,
    ) -> Result<Option<Image>, CallError> {
        let (known, times_forgotten) = self.with(|seen| {
            seen.images.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
            (seen.images.get(name).map(|(_, image)| image.clone()), seen.times_forgotten)
        });
        if known.is_some() {
            return Ok(known);
        }
        let asked_at = Instant::now();
        let found = ask().await?;
        if let Some(image) = &found {
            self.with(|seen| {
                if seen.times_forgotten == times_forgotten {
                    seen.images.insert(name.to_owned(), (asked_at, image.clone()));
                }
            });
        }
        Ok(found)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        // Every change is whole before a panic could occur.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn image(id: &str) -> Image {
        Image { id: id.to_owned(), ..Image::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_is_asked_for_once_in_a_moment_and_one_that_is_absent_each_time() {
        let (seen, asked) = (ImageCache::default(), Cell::new(0));
        let look = async |name: &str, answer: Option<Image>| {
            let ask = || {
                asked.set(asked.get() + 1);
                async { Ok(answer) }
            };
            seen.look(name, ask).await.expect("an answer").map(|image| image.id)
        };
        for _ in 0..2 {
            assert_eq!(look("web", None).await, None);
        }
        for _ in 0..100 {
            assert_eq!(look("web", Some(image("1"))).await.as_deref(), Some("1"));
        }
        assert_eq!(asked.get(), 3);
        assert_eq!(look("other", Some(image("2"))).await.as_deref(), Some("2"));
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(look("web", Some(image("3"))).await.as_deref(), Some("3"));
        seen.forget();
        assert_eq!(look("web", None).await, None, "it was removed");
        assert_eq!(asked.get(), 6);
    }

    #[tokio::test]
    async fn an_answer_from_before_a_removal_is_not_kept() {
        let seen = ImageCache::default();
        let ask = || async {
            seen.forget();
            Ok(Some(image("1")))
        };
        assert!(seen.look("web", ask).await.expect("an answer").is_some());
        let gone = seen.look("web", || async { Ok(None) }).await;
        assert_eq!(gone.expect("an answer"), None);
    }
}
