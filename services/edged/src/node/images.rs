//! The images of a node, as its object states them. Pure.

use k8s_openapi::api::core::v1::ContainerImage;

use crate::runtime::Image;

/// As a kubelet's nodeStatusMaxImages.
const IMAGES_MAX: usize = 50;

/// As a kubelet's MaxNamesPerImageInNodeStatus.
const NAMES_MAX: usize = 5;

/// The largest images with the first of their names, digests before tags, as under a kubelet. `images` has the largest
/// first.
pub(crate) fn stated(images: &[Image]) -> Vec<ContainerImage> {
    let stated = images.iter().take(IMAGES_MAX).map(|image| {
        let (digests, tags): (Vec<&String>, Vec<_>) =
            image.names.iter().partition(|name| name.contains('@'));
        let names = digests.into_iter().chain(tags).take(NAMES_MAX).cloned();
        ContainerImage {
            names: Some(names.collect()),
            size_bytes: Some(i64::try_from(image.bytes).unwrap_or(i64::MAX)),
        }
    });
    stated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_fifty_images_are_stated_with_five_names_each() {
        let image = |bytes: u64, tags: u32| {
            let tags = (0..tags).map(|tag| format!("r/web:{tag}"));
            let names = tags.chain([format!("r/web@sha256:{bytes}")]).collect();
            Image { id: bytes.to_string().into(), names, bytes, is_pinned: false }
        };
        let images: Vec<Image> = (0..60).rev().map(|bytes| image(bytes, 7)).collect();
        let stated = stated(&images);
        let sizes: Vec<_> = stated.iter().filter_map(|image| image.size_bytes).collect();
        assert_eq!(sizes, (10..60).rev().collect::<Vec<i64>>());
        let names = ["r/web@sha256:59", "r/web:0", "r/web:1", "r/web:2", "r/web:3"];
        assert_eq!(stated[0].names.as_deref(), Some(&names.map(str::to_owned)[..]));
        let nameless = Image { names: Vec::new(), ..image(1, 0) };
        assert_eq!(super::stated(&[nameless])[0].names, Some(Vec::new()));
    }
}
