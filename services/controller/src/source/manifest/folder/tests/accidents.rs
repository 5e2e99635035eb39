//! A folder without its manifests: an accident, or a removal that is meant.

use super::*;

#[test]
fn all_files_gone_change_nothing_unless_that_is_meant() {
    let mut story = Story::new();
    story.write("c.yaml", config_map("c", "1"));
    story.update();
    story.scan.clear();
    assert!(matches!(story.try_update(), Err(ManifestError::Emptied { objects: 1, .. })));
    story.restart();
    assert!(
        matches!(story.try_update(), Err(ManifestError::Emptied { objects: 1, .. })),
        "also at a restart"
    );
    story.folder = Folder::new("manifests", true);
    assert_eq!(story.update().events, ["init", "done"]);
    assert!(story.published.is_empty());
}

/// A ConfigMap and two pods.
fn story() -> Story {
    let mut story = Story::new();
    story.write("c.yaml", config_map("c", "1"));
    story.write("d.json", deployment("d", 2, "i"));
    story.update();
    story
}

/// What a checkout that has not ended leaves, beside what can never be looked into.
fn empty_but_for_what_is_hidden(story: &mut Story) {
    story.scan =
        vec![("away.yaml", Err("cannot be read".to_owned())), ("new.yaml", Ok(String::new()))];
    story.unreadable_folders = vec!["lost+found".into(), "away".into(), "away.yaml".into()];
}

#[test]
fn an_emptied_folder_is_none_in_order_because_something_in_it_cannot_be_looked_into() {
    let mut story = story();
    let (files, before) = (story.scan.clone(), story.published.clone());
    empty_but_for_what_is_hidden(&mut story);
    for what in ["in a run", "at a restart"] {
        let refused = story.try_update();
        assert!(matches!(refused, Err(ManifestError::Emptied { objects: 3, .. })), "{what}");
        story.restart();
    }
    story.scan.extend(files);
    story.update();
    assert_eq!(story.published, before, "the files are back");
    story.folder = Folder::new("manifests", true);
    story.update();
    empty_but_for_what_is_hidden(&mut story);
    story.update();
    assert!(story.published.is_empty(), "it is meant");
}

#[test]
fn an_emptied_folder_with_a_hidden_one_takes_nothing_over() {
    let writer = story();
    let mut standby = Story::new();
    empty_but_for_what_is_hidden(&mut standby);
    standby.update();
    standby.published.clone_from(&writer.published);
    standby.is_takeover = true;
    assert!(matches!(standby.try_update(), Err(ManifestError::Emptied { objects: 3, .. })));
}

#[test]
fn only_the_objects_whose_files_could_be_seen_count_as_gone() {
    let mut story = story();
    story.write("locked/l.yaml", config_map("l", "1"));
    story.write("usb/u.yaml", config_map("u", "1"));
    story.mounts.insert("usb".into(), 7);
    story.update();
    story.scan.clear();
    story.mounts.clear();
    story.unreadable_folders = vec!["locked".into()];
    for _ in 0..2 {
        assert!(matches!(story.try_update(), Err(ManifestError::Emptied { objects: 3, .. })));
        story.restart();
    }
    // Of a folder all of whose manifests are hidden nothing goes.
    story.write("c.yaml", config_map("c", "1"));
    story.update();
    assert_eq!(story.published.len(), 3);
    story.unreadable_folders.push("c.yaml".into());
    story.delete("c.yaml");
    assert_eq!(story.update().events, NOTHING);
}

#[test]
fn a_manifest_under_another_name_is_no_accident() {
    let mut story = story();
    story.unreadable_folders = vec!["lost+found".into()];
    story.delete("d.json");
    story.update();
    story.delete("c.yaml");
    story.write("renamed.yaml", config_map("c", "1"));
    assert_eq!(story.update().events, ["+default/configmap/c u1"]);
}

#[test]
fn what_cannot_be_looked_into_stays_even_where_a_removal_is_meant() {
    let mut story = Story::new();
    story.folder = Folder::new("manifests", true);
    story.write("locked/c.yaml", config_map("c", "1"));
    story.write("open.yaml", config_map("open", "1"));
    story.update();
    story.scan.clear();
    story.unreadable_folders = vec!["locked".into()];
    assert_eq!(story.update().events, ["-default/configmap/open u2"]);
    story.folder = Folder::new("manifests", true);
    assert_eq!(story.update().events, ["init", "+default/configmap/c u1", "done"]);
    story.unreadable_folders.clear();
    assert_eq!(story.update().events, ["-default/configmap/c u1"]);
}
