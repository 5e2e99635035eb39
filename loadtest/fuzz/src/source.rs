//! Sources: manifests in a folder, and lines of the objects socket.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use headwater_controller::source::manifest::{Folder, ObjectIdentity, Scan};
use headwater_controller::source::objects::read_line;
use headwater_controller::{PublishedObject, SourceEvent};
use headwater_event::{NodeName, ResourceKey};

/// What parts the files of one input.
const NEXT_FILE: &str = "\u{1e}";

/// A folder of manifests: described, and looked at again.
pub fn manifest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut files = BTreeMap::new();
    for (number, text) in text.split(NEXT_FILE).take(4).enumerate() {
        files.insert(PathBuf::from(format!("{number}.yaml")), Ok(text.to_owned()));
    }
    let scan = || Scan { device: 1, files: files.clone(), ..Scan::default() };
    let nodes: BTreeSet<NodeName> =
        ["a", "b"].into_iter().map(|name| name.parse().expect("a node name")).collect();
    let published: BTreeMap<ResourceKey, PublishedObject> = BTreeMap::new();
    let mut created = 0;
    let mut new_identity = || {
        created += 1;
        ObjectIdentity { uid: format!("uid-{created}"), time: jiff::Timestamp::UNIX_EPOCH }
    };
    let mut folder = Folder::new("folder", false);
    let first = folder
        .update(scan(), &nodes, &published, &mut new_identity)
        .expect("nothing was taken away");
    let lists = first.iter().filter(|event| matches!(event, SourceEvent::Init)).count();
    assert_eq!(lists, 1, "the first look lists what there is");
    let second =
        folder.update(scan(), &nodes, &published, &mut new_identity).expect("nothing has changed");
    assert!(second.is_empty(), "the same files yield something else: {second:?}");
}

/// A line of the objects socket.
pub fn line(bytes: &[u8]) {
    if let Err(reason) = read_line(bytes) {
        assert!(!reason.is_empty(), "a line is refused without a reason");
    }
}
