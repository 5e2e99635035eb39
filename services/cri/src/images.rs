//! Images over CRI.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use headwater_edged::runtime::{
    DiskUsage, FileSystemUsage, Image, ImageError, ImageUsage, Images, PulledImage,
    RegistryCredentials,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::client::{CallError, CriClient};
use crate::image_cache::ImageCache;
use crate::proto;

/// Pulls of one registry at a time: a gateway's link carries no more at once.
const PULLS_MAX: usize = 3;

/// A pull that takes longer goes on without its place: a registry that hangs or drips must not keep others waiting.
const PLACE_MAX: Duration = Duration::from_secs(10);

/// A pull that has ended serves the pods that ask this soon after it, too: they looked for the image before it was
/// there.
const SHARED: Duration = Duration::from_secs(5);

/// The images of a runtime.
#[derive(Debug)]
pub(crate) struct CriImages {
    client: CriClient,
    /// The image of every sandbox, where the runtime does not pin it (containerd before 2.0). It may change with the runtime.
    sandbox_image: Arc<Mutex<Option<String>>>,
    seen: Arc<ImageCache>,
    pulls: Mutex<Pulls>,
}

#[derive(Debug, Default)]
struct Pulls {
    /// The pulls that go on, by image and users: pods that want the same wait for the same.
    running: HashMap<PullKey, watch::Receiver<Option<PullEnd>>>,
    /// The places for pulls of each registry with a pull that goes on.
    places: HashMap<String, Arc<Semaphore>>,
}

/// An image, and the users that are tried.
type PullKey = (String, Vec<RegistryCredentials>);

type PullResult = Result<PulledImage, ImageError>;

/// What a pull ended with, and when.
type PullEnd = (PullResult, Instant);

impl CriImages {
    pub(crate) fn new(
        client: CriClient,
        sandbox_image: Arc<Mutex<Option<String>>>,
        seen: Arc<ImageCache>,
    ) -> Self {
        Self { client, sandbox_image, seen, pulls: Mutex::default() }
    }
}

#[async_trait]
impl Images for CriImages {
    async fn status(&self, name: &str) -> Result<Option<Image>, ImageError> {
        let image = self.seen.status(&self.client, name).await;
        Ok(image.map_err(|error| failed(name, error))?.map(image_of))
    }

    async fn pull(
        &self,
        name: &str,
        credentials: &[RegistryCredentials],
    ) -> Result<PulledImage, ImageError> {
        let mut result = {
            let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
            pulls.join(&self.client, &self.seen, (name.to_owned(), credentials.to_vec()))
        };
        let ended = result.wait_for(Option::is_some).await.map(|end| end.clone());
        let (result, _) = ended.ok().flatten().unwrap_or_else(|| {
            let cause = "the pull was broken off".to_owned();
            (Err(ImageError::Runtime { name: name.to_owned(), cause }), Instant::now())
        });
        result
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        let answer = self.client.list_images(proto::ListImagesRequest::default()).await;
        let images = answer.map_err(|error| failed("", error))?.images;
        let mut images: Vec<Image> = images.into_iter().map(image_of).collect();
        let sandbox_image =
            self.sandbox_image.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(name) = sandbox_image {
            // The name may be short, and the list has full ones: the runtime knows which image it is.
            let pinned = self.status(&name).await?;
            let is_pinned = |image: &Image| pinned.as_ref().is_some_and(|it| it.id == image.id);
            images.iter_mut().for_each(|image| image.is_pinned |= is_pinned(image));
        }
        Ok(images)
    }

    async fn remove(&self, id: &str) -> Result<(), ImageError> {
        let request = proto::RemoveImageRequest { image: Some(named(id)) };
        // Before the call, for those that ask during it; and after it, for their answers.
        self.seen.forget();
        let removed = self.client.remove_image(request).await;
        self.seen.forget();
        match removed {
            Ok(_) | Err(CallError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(id, error)),
        }
    }

    async fn in_use(&self) -> Result<BTreeSet<Arc<str>>, ImageError> {
        let request = proto::ListContainersRequest::default();
        let listed = self.client.list_containers(request).await;
        let containers = listed.map_err(|error| failed("", error))?.containers;
        let images = containers.into_iter().flat_map(|container| {
            let asked = container.image.map(|image| image.image);
            [Some(container.image_ref), Some(container.image_id), asked]
        });
        let images = images.flatten().filter(|image| !image.is_empty());
        Ok(images.map(Arc::from).collect())
    }

    async fn usage(&self) -> Result<ImageUsage, ImageError> {
        let answer = self.client.image_fs_info(proto::ImageFsInfoRequest {}).await;
        let systems = answer.map_err(|error| failed("", error))?.image_filesystems;
        let mut images = DiskUsage::default();
        let mut place = None;
        for system in systems {
            images.bytes += system.used_bytes.map_or(0, |bytes| bytes.value);
            images.inodes += system.inodes_used.map_or(0, |inodes| inodes.value);
            place = place.or(system.fs_id.map(|id| PathBuf::from(id.mountpoint)));
        }
        let place = place.unwrap_or_default();
        let measured = {
            let place = place.clone();
            // A file system of a network may hang.
            tokio::task::spawn_blocking(move || FileSystemUsage::of(&place)).await
        };
        let measured = measured.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let file_system = measured.map_err(|error| ImageError::Runtime {
            name: String::new(),
            cause: format!(
                "cannot measure the file system of images at {}: {error}",
                place.display()
            ),
        })?;
        Ok(ImageUsage { images, file_system })
    }
}

impl Pulls {
    /// Joins the pull of an image that goes on, or begins one.
    fn join(
        &mut self,
        client: &CriClient,
        seen: &Arc<ImageCache>,
        key: PullKey,
    ) -> watch::Receiver<Option<PullEnd>> {
        // A pull that failed serves the pods that wait for it. The next pod begins another one.
        self.running.retain(|_, pull| match &*pull.borrow() {
            None => pull.has_changed().is_ok(),
            Some((result, at)) => result.is_ok() && at.elapsed() < SHARED,
        });
        // The map itself has one handle of the places; a pull that waits or runs has another.
        self.places.retain(|_, places| Arc::strong_count(places) > 1);
        if let Some(result) = self.running.get(&key) {
            return result.clone();
        }
        let places = self.places.entry(registry(&key.0).to_owned());
        let places = places.or_insert_with(|| Arc::new(Semaphore::new(PULLS_MAX))).clone();
        let result = begin(client.clone(), seen.clone(), key.clone(), places);
        self.running.insert(key, result.clone());
        result
    }
}

/// Begins a pull. It goes on when the pod that asked for it is gone: others may want the image.
fn begin(
    client: CriClient,
    seen: Arc<ImageCache>,
    (name, credentials): PullKey,
    places: Arc<Semaphore>,
) -> watch::Receiver<Option<PullEnd>> {
    let (ended, result) = watch::channel(None);
    tokio::spawn(async move {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let result = in_place(place, pull(&client, &name, &credentials)).await;
        // Its name may be that of another image now.
        seen.forget();
        ended.send_replace(Some((result, Instant::now())));
        drop(places);
    });
    result
}

/// Waits for a pull, which keeps its place for a while at most.
async fn in_place<T>(place: OwnedSemaphorePermit, pull: impl Future<Output = T>) -> T {
    tokio::pin!(pull);
    match tokio::time::timeout(PLACE_MAX, &mut pull).await {
        Ok(result) => result,
        Err(_) => {
            drop(place);
            pull.await
        }
    }
}

/// The registry of an image: what comes before its first slash.
fn registry(image: &str) -> &str {
    image.split_once('/').map_or("", |(registry, _)| registry)
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
    let began = Instant::now();
    let mut refused = None;
    for auth in users {
        let request =
            proto::PullImageRequest { image: Some(named(name)), auth, sandbox_config: None };
        match client.pull_image(request).await {
            Ok(answer) => {
                return Ok(PulledImage { id: answer.image_ref.into(), took: began.elapsed() });
            }
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

/// The image of every sandbox, as the verbose status of containerd names it. Others pin it.
pub(crate) fn sandbox_image(info: &HashMap<String, String>) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(info.get("config")?).ok()?;
    let name = config.get("sandboxImage")?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn named(image: &str) -> proto::ImageSpec {
    proto::ImageSpec { image: image.to_owned(), ..proto::ImageSpec::default() }
}

fn image_of(image: proto::Image) -> Image {
    let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
    Image { id: image.id.into(), names, bytes: image.size, is_pinned: image.pinned }
}

/// What a failed call means. CRI has one code for all: the words are those of containerd and CRI-O, which
/// quote the registry's client.
fn failed(name: &str, error: CallError) -> ImageError {
    let name = name.to_owned();
    // A kubelet shows the code, too, unless it is this one, which says nothing.
    let with_code = |code, message| format!("rpc error: code = {code:?} desc = {message}");
    let cause = match error {
        CallError::Failed { code: tonic::Code::Unknown, message, .. } => message,
        CallError::Failed { code, message, .. } => with_code(code, message),
        CallError::NotFound { message, .. } => with_code(tonic::Code::NotFound, message),
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
const UNREACHABLE: [&str; 13] = [
    "RegistryUnavailable",
    "connection refused",
    "no such host",
    "network is unreachable",
    "no route to host",
    "i/o timeout",
    "TLS handshake timeout",
    "connection reset",
    "deadline exceeded",
    "server misbehaving",
    "Temporary failure in name resolution",
    "connection timed out",
    // A connection that broke off.
    "EOF",
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
        for broken in [
            "failed to do request: Head \"https://r/v2/\": dial tcp: lookup r: Temporary failure in name resolution",
            "failed to do request: Get \"https://r/v2/\": EOF",
            "failed to copy: httpReadSeeker: failed open: unexpected EOF",
            "failed to do request: Head \"https://r/v2/\": dial tcp 10.0.0.1:443: connect: connection timed out",
        ] {
            assert!(matches!(of(broken), ImageError::Unreachable { .. }), "{broken}");
        }
        let refused = "failed to authorize: failed to fetch anonymous token: unexpected status: 401 \
                       Unauthorized";
        assert!(matches!(of(refused), ImageError::Refused { .. }));
        assert!(matches!(of("invalid reference format"), ImageError::InvalidName { .. }));
        assert!(matches!(of("no space left on device"), ImageError::Runtime { .. }));
        let absent =
            failed("x", CallError::NotFound { call, message: "r/x:1: not found".to_owned() });
        let wait = absent.wait_reason();
        assert!(matches!(absent, ImageError::Refused { .. }));
        assert_eq!(wait.message, "rpc error: code = NotFound desc = r/x:1: not found");
    }

    #[test]
    fn containerds_status_names_the_image_of_sandboxes() {
        let info = |config: &str| HashMap::from([("config".to_owned(), config.to_owned())]);
        let found = sandbox_image(&info(r#"{"sandboxImage":"localhost/pause:1","cni":{}}"#));
        assert_eq!(found.as_deref(), Some("localhost/pause:1"));
        for none in ["", "[]", "{}", r#"{"sandboxImage":""}"#, r#"{"sandboxImage":7}"#] {
            assert_eq!(sandbox_image(&info(none)), None, "{none}");
        }
        assert_eq!(sandbox_image(&HashMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pull_that_takes_long_gives_its_place_to_the_next_one() {
        let places = Arc::new(Semaphore::new(1));
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let place = places.clone().acquire_owned().await.expect("a place");
        let hanging = tokio::spawn(in_place(place, released));
        let began = tokio::time::Instant::now();
        let place = places.clone().acquire_owned().await.expect("a place");
        assert_eq!(began.elapsed(), PLACE_MAX);
        assert!(!hanging.is_finished(), "it goes on");
        in_place(place, std::future::ready(())).await;
        assert_eq!((places.available_permits(), began.elapsed()), (1, PLACE_MAX));
        release.send(()).expect("it waits");
        hanging.await.expect("it ends").expect("it was released");
        assert_eq!(places.available_permits(), 1);
    }

    #[test]
    fn the_registry_of_an_image_is_the_first_part_of_its_name() {
        for (image, expected) in [("r:5/a/b:1", "r:5"), ("team/web", "team"), ("web:1", "")] {
            assert_eq!(registry(image), expected);
        }
    }
}
