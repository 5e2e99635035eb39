//! The images of a pod's containers, as the planner needs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::plan::ImageState;
use crate::backoff::Backoff;
use crate::config::Settings;
use crate::container::image_name;
use crate::pod;
use crate::runtime::{ImageError, Images, PodState, RunHistory};

/// The time for which a container waits with the reason of a failed pull: long enough for a watch of the cloud to
/// see it. Under a kubelet it is the time until the pod's next sync.
const TOLD: Duration = Duration::from_secs(2);

/// The image of every container that does not run, by the container's name.
#[derive(Debug)]
pub(super) struct ImageTracker {
    images: BTreeMap<String, ContainerImage>,
    /// The id of the image with which each container ran last.
    ran: BTreeMap<String, Arc<str>>,
    /// Between pulls of one image.
    backoff_base: Duration,
    backoff_cap: Duration,
}

#[derive(Debug)]
struct ContainerImage {
    state: ImageState,
    backoff: Backoff,
    /// The image's name and the credentials of the last pull, as a number.
    pulled_with: u64,
}

impl ImageTracker {
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { backoff_base, backoff_cap, .. } = *settings;
        Self { images: BTreeMap::new(), ran: BTreeMap::new(), backoff_base, backoff_cap }
    }

    /// Asks the runtime for the images of the containers that do not run. An image that is being
    /// pulled, or whose pull failed, keeps its state.
    pub(super) async fn observe(&mut self, images: &dyn Images, pod: &Pod, state: &PodState) {
        for (name, runs) in &state.containers {
            if let Some(id) = &runs.image_id {
                self.ran.insert(name.clone(), id.clone());
            }
        }
        for container in pod::every_container(pod) {
            if state.containers.get(&container.name).is_some_and(RunHistory::is_running) {
                continue;
            }
            let pulled = match self.state(&container.name) {
                ImageState::Pulling | ImageState::Failed { .. } => continue,
                ImageState::Present { pulled } => pulled,
                ImageState::Unknown | ImageState::Absent | ImageState::Invalid { .. } => false,
            };
            let name = container.image.as_deref().unwrap_or_default();
            if let Err(message) = image_name::check(name) {
                self.set(&container.name, ImageState::Invalid { message });
                continue;
            }
            let image = match images.status(name).await {
                Ok(Some(_)) => ImageState::Present { pulled },
                Ok(None) => ImageState::Absent,
                Err(error) => {
                    tracing::debug!(image = name, %error, "the runtime does not report on an image");
                    ImageState::Unknown
                }
            };
            self.set(&container.name, image);
        }
    }

    /// The state of a container's image.
    pub(super) fn state(&self, container: &str) -> ImageState {
        self.images.get(container).map_or(ImageState::Unknown, |image| image.state.clone())
    }

    /// The id of the image with which the container ran last.
    pub(super) fn ran(&self, container: &str) -> Option<&Arc<str>> {
        self.ran.get(container)
    }

    /// Records that a pull begins, with this name and these credentials.
    pub(super) fn begin_pull(&mut self, container: &str, with: u64) {
        self.set(container, ImageState::Pulling).pulled_with = with;
    }

    /// Whether the last pull of the container's image failed.
    pub(super) fn has_failed(&self, container: &str) -> bool {
        matches!(self.state(container), ImageState::Failed { .. })
    }

    /// Takes note of the name and the credentials with which the next pull would be made. A pull that
    /// failed with others does not wait out its back-off.
    pub(super) fn renew(&mut self, container: &str, with: u64) {
        let failed = self.has_failed(container);
        let image = self.images.get_mut(container).filter(|image| image.pulled_with != with);
        if let Some(image) = image.filter(|_| failed) {
            image.state = ImageState::Unknown;
            image.backoff.reset();
        }
    }

    /// Records the result of a pull.
    pub(super) fn end_pull<T>(
        &mut self,
        container: &str,
        result: Result<T, ImageError>,
        now: Instant,
    ) {
        let Some(image) = self.images.get_mut(container) else { return };
        image.state = match result {
            Ok(_) => {
                image.backoff.reset();
                ImageState::Present { pulled: true }
            }
            Err(error) => {
                let wait = image.backoff.next_wait();
                let (until, told_until) = (now + wait, now + TOLD.min(wait / 2));
                ImageState::Failed { until, told_until, reason: error.wait_reason() }
            }
        };
    }

    /// Records a start: the next start asks again for the image, and pulls it if the policy
    /// demands this.
    pub(super) fn forget(&mut self, container: &str) {
        self.images.remove(container);
    }

    fn set(&mut self, container: &str, state: ImageState) -> &mut ContainerImage {
        let (base, cap) = (self.backoff_base, self.backoff_cap);
        let new = || ContainerImage {
            state: ImageState::Unknown,
            backoff: Backoff::new(base, cap),
            pulled_with: 0,
        };
        let image = self.images.entry(container.to_owned()).or_insert_with(new);
        image.state = state;
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_pulls_wait_10_20_to_300_seconds_until_one_succeeds() {
        let now = Instant::now();
        let mut tracker = ImageTracker::new(&Settings::default());
        let mut waits = Vec::new();
        for _ in 0..7 {
            tracker.begin_pull("main", 1);
            let error = ImageError::Refused { name: "web:1".to_owned(), cause: "401".to_owned() };
            tracker.end_pull::<()>("main", Err(error), now);
            let ImageState::Failed { until, told_until, reason } = tracker.state("main") else {
                panic!("a failed pull is {:?}", tracker.state("main"));
            };
            assert_eq!((reason.reason, &*reason.message), ("ErrImagePull", "401"));
            assert_eq!(told_until, now + TOLD);
            waits.push(until.duration_since(now).as_secs());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        tracker.begin_pull("main", 1);
        tracker.end_pull("main", Ok(()), now);
        assert_eq!(tracker.state("main"), ImageState::Present { pulled: true });
        tracker.begin_pull("main", 1);
        let error = ImageError::InvalidName { name: String::new() };
        tracker.end_pull::<()>("main", Err(error), now);
        let until = now + Duration::from_secs(10);
        assert!(
            matches!(tracker.state("main"), ImageState::Failed { until: at, .. } if at == until)
        );
    }

    #[test]
    fn other_credentials_end_a_back_off_and_the_same_do_not() {
        let now = Instant::now();
        let mut tracker = ImageTracker::new(&Settings::default());
        let fail = |tracker: &mut ImageTracker, with| {
            tracker.begin_pull("main", with);
            let error = ImageError::Refused { name: "web:1".to_owned(), cause: "401".to_owned() };
            tracker.end_pull::<()>("main", Err(error), now);
        };
        fail(&mut tracker, 1);
        fail(&mut tracker, 1);
        tracker.renew("main", 1);
        assert!(tracker.has_failed("main"), "nothing is new");
        tracker.renew("main", 2);
        assert_eq!(tracker.state("main"), ImageState::Unknown);
        fail(&mut tracker, 2);
        let ImageState::Failed { until, .. } = tracker.state("main") else { panic!("it failed") };
        assert_eq!(until, now + Duration::from_secs(10), "the waits start over");
        tracker.begin_pull("main", 2);
        tracker.renew("main", 3);
        assert_eq!(tracker.state("main"), ImageState::Pulling, "a pull is not cut short");
    }
}
