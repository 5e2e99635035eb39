//! An object that is too large for the log is named for as long as it is left out.

use super::metrics::value;
use super::*;

fn large(name: &str) -> Object {
    // Digits of hashes, so that compression does not make it small.
    let digits = |n: u32| blake3::hash(&n.to_le_bytes()).to_hex()[..].to_owned();
    config(name, 1, &(0..200).map(digits).collect::<String>())
}

#[tokio::test]
async fn an_object_that_the_log_does_not_take_is_named_until_it_fits_or_nothing_needs_it() {
    let settings = MemorySettings { partitions: 2, record_bytes_max: 4000, ..Default::default() };
    let world = World::with(settings);
    let running = world.start().await;
    let progress = running.controller.progress();
    let left_out = || progress.borrow().left_out.clone();
    let count = || value(&running.registry, "headwater_controller_left_out_objects");
    running.list([pod("p", "c"), large("c")]).await;
    let named = left_out();
    let [sentence] = &*named else { panic!("{named:?}") };
    assert!(sentence.starts_with("d/configmap/c has ") && sentence.contains(" takes 4000, "));
    assert!(sentence.ends_with("left out of node/a; make it smaller"), "{sentence}");
    assert_eq!(count(), Some(1.0));

    running.set(config("c", 2, "x")).await;
    until_true("nothing to name", async || left_out().is_empty()).await;
    assert_eq!(count(), Some(0.0));

    // The log never has it, so no event removes it.
    running
        .send([pod("q", "d"), large("d")].map(|it| SourceEvent::Apply(it, Cause::default())))
        .await;
    until_true("the other object", async || left_out().len() == 1).await;
    running.delete("d/pod/q", "u-q").await;
    until_true("nothing to name", async || left_out().is_empty()).await;
    running.controller.stop().await;
}
