//! Images over CRI.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use headwater_edged::runtime::{Image, ImageError, Images, RegistryCredentials};
use tokio::sync::{Semaphore, watch};

use crate::client::{CallError, CriClient};
use crate::proto;

/// Pulls at a time: a gateway's link carries no more at once.
const PULLS_MAX: usize = 3;

/// The images of a runtime.
#[derive(Debug)]
pub(crate) struct CriImages {
    client: CriClient,
    room: Arc<Semaphore>,
    /// The pulls that go on, by image and user: pods that want the same wait for the same.
    pulls: Mutex<HashMap<PullKey, watch::Receiver<Option<PullResult>>>>,
}

/// An image, and the users that are tried.
type PullKey = (String, Vec<(String, String)>);

type PullResult = Result<Arc<str>, ImageError>;

impl CriImages {
    pub(crate) fn new(client: CriClient) -> Self {
        Self { client, room: Arc::new(Semaphore::new(PULLS_MAX)), pulls: Mutex::default() }
    }
}

#[async_trait]
impl Images for CriImages {
    async fn status(&self, name: &str) -> Result<Option<Image>, ImageError> {
        let image = image_status(&self.client, name).await;
        Ok(image.map_err(|error| failed(name, error))?.map(image_of))
    }

    async fn pull(
        &self,
        name: &str,
        credentials: &[RegistryCredentials],
    ) -> Result<Arc<str>, ImageError> {
        let users = credentials.iter().map(|one| (one.username.clone(), one.password.clone()));
        let key = (name.to_owned(), users.collect::<Vec<_>>());
        let mut result = {
            let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
            // One that has ended is over: who comes later pulls anew.
            pulls.retain(|_, pull| pull.borrow().is_none() && pull.has_changed().is_ok());
            let begin = || self.begin(name.to_owned(), credentials.to_vec());
            pulls.entry(key).or_insert_with(begin).clone()
        };
        let ended = result.wait_for(Option::is_some).await.map(|result| result.clone());
        ended.ok().flatten().unwrap_or_else(|| {
            let cause = "the pull was broken off".to_owned();
            Err(ImageError::Runtime { name: name.to_owned(), cause })
        })
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        let answer = self.client.list_images(proto::ListImagesRequest::default()).await;
        let images = answer.map_err(|error| failed("", error))?.images;
        Ok(images.into_iter().map(image_of).collect())
    }

    async fn remove(&self, id: &str) -> Result<(), ImageError> {
        let request = proto::RemoveImageRequest { image: Some(named(id)) };
        match self.client.remove_image(request).await {
            Ok(_) | Err(CallError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(id, error)),
        }
    }

    async fn disk_bytes(&self) -> Result<u64, ImageError> {
        let answer = self.client.image_fs_info(proto::ImageFsInfoRequest {}).await;
        let systems = answer.map_err(|error| failed("", error))?.image_filesystems;
        Ok(systems.into_iter().filter_map(|one| one.used_bytes).map(|bytes| bytes.value).sum())
    }
}

impl CriImages {
    /// Begins a pull. It goes on when the pod that asked for it is gone: others may want the image.
    fn begin(
        &self,
        name: String,
        credentials: Vec<RegistryCredentials>,
    ) -> watch::Receiver<Option<PullResult>> {
        let (ended, result) = watch::channel(None);
        let (client, room) = (self.client.clone(), self.room.clone());
        tokio::spawn(async move {
            // The semaphore is never closed.
            let Ok(_room) = room.acquire().await else { return };
            ended.send_replace(Some(pull(&client, &name, &credentials).await));
        });
        result
    }
}

/// Tries the users in order, or none. The last refusal counts.
async fn pull(client: &CriClient, name: &str, credentials: &[RegistryCredentials]) -> PullResult {
    let users = credentials.iter().map(|one| {
        Some(proto::AuthConfig {
            username: one.username.clone(),
            password: one.password.clone(),
            ..proto::AuthConfig::default()
        })
    });
    let users: Vec<_> = if credentials.is_empty() { vec![None] } else { users.collect() };
    let mut refused = None;
    for auth in users {
        let request =
            proto::PullImageRequest { image: Some(named(name)), auth, sandbox_config: None };
        match client.pull_image(request).await {
            Ok(answer) => return Ok(answer.image_ref.into()),
            Err(error) => match failed(name, error) {
                error @ ImageError::Refused { .. } => refused = Some(error),
                error => return Err(error),
            },
        }
    }
    Err(refused.unwrap_or_else(|| ImageError::InvalidName { name: name.to_owned() }))
}

/// The image of this name, if it is there.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn image_status(
    client: &CriClient,
    name: &str,
) -> Result<Option<proto::Image>, CallError> {
    let request = proto::ImageStatusRequest { image: Some(named(name)), verbose: false };
    match client.image_status(request).await {
        Ok(answer) => Ok(answer.image),
        Err(CallError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn named(image: &str) -> proto::ImageSpec {
    proto::ImageSpec { image: image.to_owned(), ..proto::ImageSpec::default() }
}

fn image_of(image: proto::Image) -> Image {
    let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
    Image { id: image.id.into(), names, bytes: image.size }
}

/// What a failed call means. CRI has one code for all: the words are those of containerd and CRI-O, which
/// quote the registry's client.
fn failed(name: &str, error: CallError) -> ImageError {
    let name = name.to_owned();
    let cause = match error {
        CallError::Failed { message, .. } | CallError::NotFound { message, .. } => message,
        error => return ImageError::Runtime { name, cause: error.to_string() },
    };
    let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    if says(&["invalid reference format", "failed to parse reference"]) {
        ImageError::InvalidName { name }
    } else if says(&UNREACHABLE) {
        ImageError::Unreachable { name, cause }
    } else if says(&REFUSED) {
        ImageError::Refused { name, cause }
    } else {
        ImageError::Runtime { name, cause }
    }
}

/// The words of a registry that cannot be reached.
const UNREACHABLE: [&str; 9] = [
    "connection refused",
    "no such host",
    "network is unreachable",
    "no route to host",
    "i/o timeout",
    "TLS handshake timeout",
    "connection reset",
    "deadline exceeded",
    "server misbehaving",
];

/// The words of a registry that refuses.
const REFUSED: [&str; 7] = [
    "401 Unauthorized",
    "403 Forbidden",
    "not found",
    "unauthorized",
    "authorization failed",
    "pull access denied",
    "manifest unknown",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pull_is_known_by_the_words_of_its_runtime() {
        let call = "pull_image";
        let of = |text: &str| {
            let (code, message) = (tonic::Code::Unknown, text.to_owned());
            failed("x", CallError::Failed { call, code, message })
        };
        let unreachable = "failed to do request: Head \"https://r/v2/\": dial tcp 127.0.0.1:1: \
                           connect: connection refused";
        assert!(matches!(of(unreachable), ImageError::Unreachable { .. }));
        let refused = "failed to authorize: failed to fetch anonymous token: unexpected status: 401 \
                       Unauthorized";
        assert!(matches!(of(refused), ImageError::Refused { .. }));
        assert!(matches!(of("invalid reference format"), ImageError::InvalidName { .. }));
        assert!(matches!(of("no space left on device"), ImageError::Runtime { .. }));
        let absent =
            failed("x", CallError::NotFound { call, message: "r/x:1: not found".to_owned() });
        assert!(matches!(absent, ImageError::Refused { .. }));
    }
}
