//! The pulls of a pod's images: with which credentials, and what `Always` means without a registry.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::io::AsyncReadExt as _;

use super::executor::StepOutcome;
use super::go_duration::go_duration;
use super::plan::ImageState;
use super::signal::{PullOutcome, Signal};
use super::{Worker, container_of};
use crate::config::PullOffline;
use crate::container::pull_credentials::{CONFIG_BYTES_MAX, PullCredentials};
use crate::event::Severity;
use crate::pod;
use crate::runtime::{Image, ImageError, Images, PulledImage, RegistryCredentials};
use headwater_telemetry::error_chain;

impl Worker {
    /// Begins the pull of a container's image. A signal brings its end.
    pub(super) async fn pull(&mut self, pod: &Pod, name: &str) -> StepOutcome {
        let Some(images) = self.shared.runtime.images().cloned() else {
            return StepOutcome::Waiting;
        };
        let Some(container) = container_of(pod, name) else { return StepOutcome::Waiting };
        let image = container.image.clone().unwrap_or_default();
        let node_config = match &self.shared.settings.registry_config {
            Some(path) => node_config(path).await,
            None => None,
        };
        let objects = &self.assignment.objects;
        let credentials = PullCredentials::of(pod, objects, node_config.as_deref(), &image);
        if !credentials.problems.is_empty() {
            let problems = credentials.problems.join("; ");
            self.warn(None, "pull secrets cannot be used", &problems);
            let message = format!(
                "Unable to retrieve some image pull secrets ({problems}); attempting to pull the \
                 image may not succeed."
            );
            let reason = "FailedToRetrieveImagePullSecret";
            self.event(None, Severity::Warning, reason, message);
        }
        let with = self.pulled_with(pod, &container);
        let is_kept = self.shared.settings.pull_offline == PullOffline::Present;
        let Some(tracker) = &mut self.images else { return StepOutcome::Waiting };
        tracker.begin_pull(name, with);
        let message = format!("Pulling image {image:?}");
        self.event(Some(name), Severity::Normal, "Pulling", message);
        let Some(tracker) = &self.images else { return StepOutcome::Waiting };
        let ran = tracker.ran(name).filter(|_| is_kept).cloned();
        let (signals, container) = (self.signals.clone(), name.to_owned());
        tokio::spawn(async move {
            let result = pull(&*images, &image, &credentials.logins, ran).await;
            let _ = signals.send(Box::new(Signal::Pull { container, result })).await;
        });
        // The status states that the image is pulled.
        StepOutcome::Changed
    }

    /// Records the end of a pull.
    pub(super) fn end_pull(
        &mut self,
        pod: &Pod,
        name: &str,
        result: Result<PullOutcome, ImageError>,
        now: tokio::time::Instant,
    ) {
        let container = container_of(pod, name);
        let image = container.as_ref().and_then(|container| container.image.as_deref());
        let image = image.unwrap_or_default();
        match &result {
            Ok(PullOutcome::New { took, took_with_wait, bytes }) => {
                let (took, whole) = (go_duration(*took), go_duration(*took_with_wait));
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({whole} including waiting). Image \
                     size: {bytes} bytes."
                );
                self.event(Some(name), Severity::Normal, "Pulled", message);
            }
            Ok(PullOutcome::AsBefore { cause }) => {
                let cause = error_chain(cause);
                self.warn(Some(name), "a container starts without its registry", &cause);
                let message = format!(
                    "Container image \"{image}\" is used as before: it could not be pulled, and the \
                     container ran from it: {cause}"
                );
                self.event(Some(name), Severity::Warning, "PulledBefore", message);
            }
            Err(error) => {
                let cause = error_chain(error);
                self.warn(Some(name), "an image was not pulled", &cause);
                let message =
                    format!("Failed to pull image {image:?}: {}", error.wait_reason().message);
                self.event(Some(name), Severity::Warning, "Failed", message);
            }
        }
        if let Some(images) = &mut self.images {
            images.end_pull(name, result, now);
        }
        // A Secret may have changed while the image was pulled.
        self.renew_pulls(pod);
    }

    /// Records that a container starts from an image that is here, without a pull.
    pub(super) fn tell_presence(&self, container: &Container) {
        let state = self.images.as_ref().map(|images| images.state(&container.name));
        if state == Some(ImageState::Present { pulled: false }) {
            let image = container.image.as_deref().unwrap_or_default();
            let message = format!("Container image {image:?} already present on machine");
            self.event(Some(&container.name), Severity::Normal, "Pulled", message);
        }
    }

    /// Lets pulls that failed be tried again at once, where the image or the credentials are others.
    pub(super) fn renew_pulls(&mut self, pod: &Pod) {
        for container in pod::every_container(pod) {
            let failed = |images: &super::ImageTracker| images.has_failed(&container.name);
            if !self.images.as_deref().is_some_and(failed) {
                continue;
            }
            let with = self.pulled_with(pod, &container);
            if let Some(images) = &mut self.images {
                images.renew(&container.name, with);
            }
        }
    }

    /// The image's name and the credentials of the pod for it, as a number.
    fn pulled_with(&self, pod: &Pod, container: &Container) -> u64 {
        let image = container.image.as_deref().unwrap_or_default();
        let credentials = PullCredentials::of(pod, &self.assignment.objects, None, image);
        let mut hasher = DefaultHasher::new();
        (image, credentials.fingerprint()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Pulls an image. If the registry cannot be reached, the image of this name that is here will do, if it
/// is the one with which the container ran.
async fn pull(
    images: &dyn Images,
    name: &str,
    logins: &[RegistryCredentials],
    ran: Option<Arc<str>>,
) -> Result<PullOutcome, ImageError> {
    let began = tokio::time::Instant::now();
    let cause = match images.pull(name, logins).await {
        Ok(PulledImage { took, .. }) => {
            let took_with_wait = began.elapsed();
            let bytes = images.status(name).await.ok().flatten().map_or(0, |image| image.bytes);
            return Ok(PullOutcome::New { took, took_with_wait, bytes });
        }
        Err(cause @ ImageError::Unreachable { .. }) => cause,
        Err(error) => return Err(error),
    };
    let Some(ran) = ran else { return Err(cause) };
    // A runtime may report a run's image by its digest in a registry.
    let is_same = |image: &Image| image.id == ran || image.names.iter().any(|name| **name == *ran);
    match images.status(name).await {
        Ok(Some(image)) if is_same(&image) => Ok(PullOutcome::AsBefore { cause }),
        _ => Err(cause),
    }
}

/// The node's docker config; `None` if there is none. One byte too much makes it too large.
async fn node_config(path: &Path) -> Option<Vec<u8>> {
    let read = async {
        let file = tokio::fs::File::open(path).await?;
        let mut bytes = Vec::new();
        file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).await?;
        Ok::<_, std::io::Error>(bytes)
    };
    match read.await {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the docker config cannot be read");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::runtime::memory::MemoryRuntime;

    const IMAGE: &str = "localhost/web:1";

    #[tokio::test]
    async fn a_container_that_ran_starts_from_its_image_only_while_the_registry_is_out_of_reach() {
        let (notices, _noticed) = mpsc::channel(1);
        let runtime = MemoryRuntime::new(notices);
        let first = runtime.pull(IMAGE, &[]).await.expect("pulled").id;
        let pulled = |ran: Option<&Arc<str>>| {
            let (runtime, ran) = (runtime.clone(), ran.cloned());
            async move { pull(&runtime, IMAGE, &[], ran).await }
        };
        let new = pulled(Some(&first)).await;
        assert!(matches!(new, Ok(PullOutcome::New { bytes, .. }) if bytes > 0), "{new:?}");
        runtime.fail_pulls(4);
        let kept = pulled(Some(&first)).await;
        assert!(matches!(kept, Ok(PullOutcome::AsBefore { .. })), "{kept:?}");
        assert!(pulled(None).await.is_err(), "it never ran, or the node is strict");
        assert!(pulled(Some(&"another".into())).await.is_err(), "it ran from another image");
        runtime.remove_image(IMAGE);
        assert!(pulled(Some(&first)).await.is_err(), "the image is gone");
        let invalid = pull(&runtime, "", &[], Some(first)).await;
        assert!(matches!(invalid, Err(ImageError::InvalidName { .. })), "{invalid:?}");
    }

    #[tokio::test]
    async fn a_docker_config_of_the_node_may_be_absent_and_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.json");
        assert_eq!(node_config(&path).await, None);
        std::fs::write(&path, b"{}").expect("written");
        assert_eq!(node_config(&path).await.as_deref(), Some(&b"{}"[..]));
        std::fs::write(&path, vec![b' '; 3 * CONFIG_BYTES_MAX]).expect("written");
        assert_eq!(node_config(&path).await.map(|bytes| bytes.len()), Some(CONFIG_BYTES_MAX + 1));
    }
}
