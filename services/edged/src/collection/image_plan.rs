//! Which images are removed. Pure: decided from the images, their use, the disk, the settings and the time.
//!
//! The rules are a kubelet's (`pkg/kubelet/images/image_gc_manager.go`). At the high threshold of the disk, images
//! go until the low one is reached: the image whose last use is longest ago comes first. An image that was not used
//! for the maximum age goes, too. An image that a container has, or that the runtime pins, never goes; an image
//! that came a moment ago stays, because a container is about to use it; so does every image after the start of the pod
//! worker, where a kubelet removes it at once: the pods of the node are about to start.

use std::sync::Arc;

use tokio::time::Instant;

use crate::config::ImageCollection;

/// An image, and its use as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageFacts {
    pub(crate) id: Arc<str>,
    pub(crate) bytes: u64,
    /// The runtime keeps it, whatever is asked of it.
    pub(crate) is_pinned: bool,
    /// A container has it, running or not.
    pub(crate) is_used: bool,
    /// Its first appearance, or the start of the pod worker.
    pub(crate) seen: Instant,
    /// The last time at which a container had it, or else its first appearance.
    pub(crate) last_used: Instant,
}

/// The space of the file system of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) capacity_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// Why an image is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RemovalReason {
    /// It was not used for the maximum age.
    Age,
    /// The disk is full.
    Space,
}

/// An image to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) id: Arc<str>,
    pub(crate) bytes: u64,
    pub(crate) reason: RemovalReason,
}

impl DiskSpace {
    /// The part in use, in percent, as a kubelet rounds it.
    pub(crate) fn used_percent(self) -> u64 {
        let available = u128::from(self.available_bytes.min(self.capacity_bytes)) * 100;
        let free = available / u128::from(self.capacity_bytes.max(1));
        100 - u64::try_from(free).unwrap_or(100)
    }

    /// The bytes that are missing until `percent` of the disk are in use.
    pub(crate) fn missing_bytes(self, percent: u8) -> u64 {
        let free = u128::from(self.capacity_bytes) * u128::from(100 - percent.min(100)) / 100;
        u64::try_from(free).unwrap_or(u64::MAX).saturating_sub(self.available_bytes)
    }
}

/// The images to remove, in this order. Images for their age come first. The sizes of the others are together as much as
/// is missing, or they are all that may go.
///
/// `begin_percent` is the part in use at which space is made: the high threshold, or the low one for a collection that
/// has begun.
pub(crate) fn plan(
    images: &[ImageFacts],
    disk: DiskSpace,
    settings: &ImageCollection,
    begin_percent: u8,
    now: Instant,
) -> Vec<Removal> {
    let mut unused: Vec<&ImageFacts> =
        images.iter().filter(|image| !image.is_used && !image.is_pinned).collect();
    unused.sort_by_key(|image| (image.last_used, image.seen, image.id.clone()));
    let age = |since: Instant| now.saturating_duration_since(since);
    let is_old =
        |image: &ImageFacts| settings.age_max.is_some_and(|age_max| age(image.last_used) > age_max);
    let is_young = |image: &ImageFacts| age(image.seen) < settings.age_min;
    let removal =
        |image: &ImageFacts, reason| Removal { id: image.id.clone(), bytes: image.bytes, reason };
    let mut removals = Vec::new();
    let mut freed: u64 = 0;
    unused.retain(|image| {
        let is_old = is_old(image) && !is_young(image);
        if is_old {
            removals.push(removal(image, RemovalReason::Age));
            freed = freed.saturating_add(image.bytes);
        }
        !is_old
    });
    let missing = disk.missing_bytes(settings.low_percent);
    if disk.used_percent() < u64::from(begin_percent) || missing == 0 {
        return removals;
    }
    for image in unused.into_iter().filter(|image| !is_young(image)) {
        if freed >= missing {
            break;
        }
        removals.push(removal(image, RemovalReason::Space));
        freed = freed.saturating_add(image.bytes);
    }
    removals
}

/// Every image that may go for the space of the disk, the one whose last use is longest ago first.
pub(crate) fn unused(
    images: &[ImageFacts],
    settings: &ImageCollection,
    now: Instant,
) -> Vec<Removal> {
    let disk = DiskSpace { capacity_bytes: u64::MAX, available_bytes: 0 };
    let settings = ImageCollection { low_percent: 0, ..*settings };
    plan(images, disk, &settings, 0, now)
}

#[cfg(test)]
mod tests;
