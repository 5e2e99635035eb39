//! A controller takes over whose folder shows less than that of the writer before.

use super::rollouts::rolling;
use super::*;

/// A writer and a standby that have read the same files.
fn pair(files: &[(&'static str, String)]) -> (Story, Story) {
    let (mut writer, mut standby) = (Story::new(), Story::new());
    for (path, text) in files {
        writer.write(path, text.clone());
        standby.write(path, text.clone());
    }
    writer.settle();
    standby.published.clone_from(&writer.published);
    standby.update();
    (writer, standby)
}

fn keys(story: &Story) -> Vec<String> {
    story.published.keys().map(ToString::to_string).collect()
}

#[test]
fn what_is_published_from_a_hidden_folder_stays_as_the_writer_published_it() {
    let (mut writer, mut standby) = pair(&[
        ("locked/c.yaml", config_map("c", "1")),
        ("locked/d.json", rolling("i:1")),
        ("locked/p.yaml", pod("p", "i:1")),
        ("locked/unused.yaml", config_map("unused", "1")),
        ("open.yaml", config_map("open", "1")),
    ]);
    let paths = ["locked/c.yaml", "locked/d.json", "locked/p.yaml", "locked/unused.yaml"];
    paths.iter().for_each(|path| standby.delete(path));
    standby.unreadable_folders = vec!["locked".into()];
    standby.update();

    writer.write("locked/c.yaml", config_map("c", "2"));
    writer.write("locked/d.json", rolling("i:2"));
    writer.write("locked/new.yaml", pod("new", "i:1"));
    writer.delete("locked/p.yaml");
    writer.settle();
    // No node needs it, so it is in no stream.
    writer.published.remove("default/configmap/unused");
    standby.take_over(&writer);
    let mut expected = keys(&writer);
    expected.push("default/configmap/unused".to_owned());
    expected.sort();
    assert_eq!(keys(&standby), expected);
    for key in keys(&writer) {
        assert_eq!(standby.object(&key), writer.object(&key));
    }
    assert_eq!(standby.update().events, NOTHING, "as long as it is hidden");

    // The folder is back: its files count.
    standby.unreadable_folders.clear();
    standby.write("locked/c.yaml", config_map("c", "3"));
    standby.write("locked/d.json", rolling("i:2"));
    standby.update();
    assert_eq!(standby.object("default/configmap/c")["data"], json!({"k": "3"}));
    assert!(standby.pods().keys().all(|name| name.starts_with("d-")), "{:?}", standby.pods());
    assert!(standby.pods().keys().eq(writer.pods().keys().filter(|name| name.starts_with("d-"))));
}

#[test]
fn what_a_broken_document_described_stays_as_the_writer_published_it() {
    let documents =
        |data: &str| format!("{}---\n{}", config_map("whole", "1"), config_map("c", data));
    let (mut writer, mut standby) = pair(&[("f.yaml", documents("1"))]);
    standby.write("f.yaml", format!("{}---\n{{broken", config_map("whole", "1")));
    standby.update();
    writer.write("f.yaml", documents("2"));
    writer.settle();
    standby.take_over(&writer);
    assert_eq!(keys(&standby), keys(&writer));
    assert_eq!(standby.object("default/configmap/c")["data"], json!({"k": "2"}));
    assert_eq!(standby.update().notices, NOTHING, "it was named before");
}

#[test]
fn a_workload_whose_file_does_not_read_at_a_takeover_stays_with_the_pods_that_the_writer_made() {
    let (mut writer, mut standby) =
        pair(&[("d.json", rolling("i:1")), ("open.yaml", config_map("open", "1"))]);
    standby.write("d.json", "{broken");
    standby.update();
    writer.write("d.json", rolling("i:2"));
    writer.settle();
    for _ in 0..2 {
        standby.take_over(&writer);
        assert!(standby.pods().keys().eq(writer.pods().keys()), "{:?}", standby.pods());
        let workloads = standby.folder.workloads();
        let [held] = &workloads[..] else { panic!("{workloads:?}") };
        assert_eq!((&*held.kind, &*held.name, held.pods.len()), ("Deployment", "d", 2));
        assert!(held.pods.iter().all(|pod| !pod.is_current), "they are of a newer template");
        assert_eq!(standby.update().events, NOTHING);
    }
    standby.write("d.json", rolling("i:2"));
    standby.update();
    assert!(standby.pods().keys().eq(writer.pods().keys()), "it unfolds to the same pods");
    let workloads = standby.folder.workloads();
    assert!(workloads.len() == 1 && workloads[0].pods.iter().all(|pod| pod.is_current));

    // One that the writer has removed is gone.
    standby.write("d.json", "{broken");
    standby.update();
    writer.delete("d.json");
    writer.settle();
    standby.take_over(&writer);
    assert!(standby.pods().is_empty() && standby.folder.workloads().is_empty());
}

#[test]
fn the_files_of_a_mount_that_only_the_writer_has_stay() {
    let (mut writer, mut standby) = (Story::new(), Story::new());
    let files = [("usb/c.yaml", config_map("c", "1")), ("open.yaml", config_map("open", "1"))];
    for (path, text) in files.clone() {
        writer.write(path, text);
    }
    writer.mounts.insert("usb".into(), 7);
    writer.settle();
    standby.write("open.yaml", config_map("open", "1"));
    standby.update();
    standby.take_over(&writer);
    assert_eq!(keys(&standby), keys(&writer));
    assert!(standby.folder.skipped[0].to_string().starts_with("usb: was a mount"));
    // The files come, in a folder that is no mount.
    standby.write("usb/more.yaml", config_map("more", "1"));
    assert_eq!(standby.update().events, NOTHING, "not all of them are there");
    standby.write("usb/c.yaml", config_map("c", "2"));
    let events = standby.update().events;
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(standby.object("default/configmap/c")["data"], json!({"k": "2"}));

    // A folder that has the same files without a mount is as good.
    let mut copy = Story::new();
    files.into_iter().for_each(|(path, text)| copy.write(path, text));
    copy.update();
    copy.take_over(&writer);
    copy.write("usb/c.yaml", config_map("c", "2"));
    assert_eq!(copy.update().events.len(), 1, "it is followed");
}

#[test]
fn a_folder_in_place_of_a_mount_needs_the_files_that_came_since_too() {
    let mut writer = Story::new();
    writer.write("usb/b.yaml", config_map("b", "1"));
    writer.write("open.yaml", config_map("open", "1"));
    writer.mounts.insert("usb".into(), 7);
    writer.settle();
    let mut standby = Story::new();
    standby.write("open.yaml", config_map("open", "1"));
    standby.update();
    standby.take_over(&writer);
    writer.write("usb/c.yaml", config_map("c", "1"));
    writer.settle();
    standby.take_over(&writer);
    standby.write("usb/b.yaml", config_map("b", "1"));
    assert_eq!(standby.update().events, NOTHING, "one is not there yet");
    standby.write("usb/c.yaml", config_map("c", "1"));
    standby.update();
    assert_eq!(keys(&standby), keys(&writer));
}

#[test]
fn a_folder_that_is_no_mount_takes_nothing_over_from_a_mount_with_more_files() {
    let (mut writer, mut standby) = pair(&[("c.yaml", config_map("c", "1"))]);
    writer.mounts.insert(PathBuf::new(), 7);
    writer.write("more.yaml", config_map("more", "1"));
    writer.settle();
    standby.published.clone_from(&writer.published);
    standby.is_takeover = true;
    for _ in 0..2 {
        assert!(matches!(standby.try_update(), Err(ManifestError::Unmounted { .. })));
    }
    standby.write("more.yaml", config_map("more", "1"));
    standby.take_over(&writer);
    assert_eq!(keys(&standby), keys(&writer));
}

#[test]
fn a_rollout_goes_on_beside_a_broken_document_found_at_a_restart() {
    let mut story = Story::new();
    story.write("f.yaml", format!("{}\n---\n{}", rolling("i:1"), config_map("c", "1")));
    story.settle();
    let before = story.pods();
    story.restart();
    story.write("f.yaml", format!("{}\n---\n{{broken", rolling("i:2")));
    let notices = story.update().notices;
    assert_eq!(notices.len(), 1, "{notices:?}");
    story.settle();
    assert_eq!(keys(&story).len(), before.len() + 1, "the ConfigMap stays");
    assert!(story.pods().keys().all(|name| !before.contains_key(name)), "{:?}", story.pods());
}

#[test]
fn an_empty_folder_takes_nothing_over() {
    let (mut writer, mut standby) = pair(&[]);
    writer.write("c.yaml", config_map("c", "1"));
    writer.settle();
    standby.published.clone_from(&writer.published);
    standby.is_takeover = true;
    assert!(matches!(standby.try_update(), Err(ManifestError::Emptied { objects: 1, .. })));
    standby.write("c.yaml", config_map("c", "1"));
    standby.try_update().expect("the files are back");
}
