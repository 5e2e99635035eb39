//! The cloud's answers to the requests of nodes.

use headwater_object::payload::with_resource_version;

use super::*;
use crate::cloud::{CloudError, CloudRequest, CloudVerb};

fn get(key: &str) -> CloudRequest {
    CloudRequest {
        node: "a".parse().expect("a name"),
        timeout: SOON,
        verb: CloudVerb::Get,
        key: key.parse().expect("a key"),
        body: Bytes::new(),
    }
}

#[tokio::test]
async fn the_cloud_responds_with_an_object_as_its_source_has_it() {
    let world = World::new();
    let running = world.start().await;
    let app = config("app", 1, "x");
    running.list([app.clone()]).await;
    let cloud = running.controller.cloud();
    assert_eq!(
        cloud.respond(get("d/configmap/app")).await,
        Ok(with_resource_version(app.payload(), "1"))
    );
    let absent = get("d/configmap/absent");
    let not_found = CloudError::NotFound(absent.key.clone());
    assert_eq!(cloud.respond(absent).await, Err(not_found));
    running.controller.stop().await;
}
