//! Images.

use headwater_cri::proto::*;
use headwater_cri_lab::BUSYBOX_IMAGE;
use tonic::{Code, Status};

use crate::bench::{Case, assert_fails, image};

async fn pull(case: &Case, name: &str) -> Result<String, Status> {
    let request = PullImageRequest { image: Some(image(name)), ..Default::default() };
    Ok(case.images().pull_image(request).await?.into_inner().image_ref)
}

async fn remove(case: &Case, name: &str) {
    let request = RemoveImageRequest { image: Some(image(name)) };
    case.images().remove_image(request).await.expect("it is removed, or gone");
}

pub(crate) async fn an_absent_image_is_no_error(case: &Case) {
    assert_eq!(case.image_status("localhost/headwater/absent:1").await, None);
    remove(case, "localhost/headwater/absent:1").await;
}

pub(crate) async fn a_pull_succeeds_or_says_why(case: &Case) {
    let registries = &case.registries;
    let id = pull(case, &registries.good).await.expect("it is pulled");
    assert_eq!(case.image_status(&registries.good).await.expect("an image").id, id);
    assert_fails(pull(case, &registries.missing).await, Code::NotFound, "not found");
    let words = if case.is_two() { "pull access denied" } else { "401 Unauthorized" };
    assert_fails(pull(case, &registries.closed).await, Code::Unknown, words);
    assert_fails(pull(case, &registries.away).await, Code::Unknown, "connection refused");
    assert_fails(pull(case, "Web:1").await, Code::Unknown, "invalid reference format");
    assert_eq!(case.image_status(&registries.away).await, None);
}

pub(crate) async fn an_image_is_known_by_its_id(case: &Case) {
    let named = case.image_status(BUSYBOX_IMAGE).await.expect("an image");
    assert!(named.id.starts_with("sha256:"), "{named:?}");
    assert!(named.repo_tags.iter().any(|tag| tag == BUSYBOX_IMAGE), "{named:?}");
    assert!(named.size > 0);
    let by_id = case.image_status(&named.id).await.expect("an image");
    assert_eq!(by_id.id, named.id);
    let request = ListImagesRequest { filter: Some(ImageFilter { image: Some(image("x")) }) };
    let listed = case.images().list_images(request).await.expect("a list").into_inner().images;
    // containerd takes no notice of the filter.
    assert!(listed.contains(&named), "{listed:?}");
}

pub(crate) async fn a_removed_image_is_absent(case: &Case) {
    let name = &case.registries.good;
    let id = pull(case, name).await.expect("it is pulled");
    remove(case, &id).await;
    assert_eq!(case.image_status(name).await, None);
    assert_eq!(case.image_status(&id).await, None);
    remove(case, &id).await;
}
