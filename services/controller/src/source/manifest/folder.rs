//! The folder's state: turns one look at the files after another into events.
//!
//! Pure but for its arguments: the scan, the nodes, what was published, and identities (UIDs and
//! times), and what the nodes report of pods. A file that does not read leaves what it described before in place; so does a folder
//! that cannot be looked into, and a mount that is gone, also at the first look after a restart. A folder in which no
//! manifest can be read any more is taken for an accident, whatever is hidden beside it.
//! Looking twice at the same files says nothing.

mod file;
mod mounts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_event::{NodeName, ResourceKey};
use headwater_object::{Object, ObjectError};
use headwater_telemetry::error_chain;
use jiff::Timestamp;
use serde_json::{Map, Value};

use self::file::{File, PublishedFiles};
use self::mounts::Mounts;
use super::ManifestError;
use super::description::{
    DescribedObject, Description, Members, RolloutInputs, describe, workload_of,
};
use super::entry::SharedContent;
use super::origin::{MANIFEST_ANNOTATION, MOUNT_ANNOTATION, manifest_of};
use super::scan::Scan;
use super::validation::Validation;
use crate::packed::{PackedPayload, PayloadPacker};
use crate::source::identity::is_same_object;
use crate::source::workloads::WorkloadState;
use crate::source::{
    Cause, NoReports, Notice, NoticeKind, PodReports, PublishedObjects, SourceEvent, SourceKind,
};

/// The identity of a new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// A UID that no object had before.
    pub uid: String,
    /// When.
    pub time: Timestamp,
}

/// Everything a source of manifests knows between two looks.
#[derive(Debug)]
pub struct Folder {
    /// How messages call the folder.
    name: String,
    /// Whether to go on when every manifest is gone at once.
    allow_empty: bool,
    validation: Validation,
    device: Option<u64>,
    mounts: Mounts,
    nodes: BTreeSet<NodeName>,
    files: BTreeMap<PathBuf, File>,
    /// The objects that were sent and not deleted.
    objects: BTreeMap<ResourceKey, SentObject>,
    shared: SharedContent,
    packer: PayloadPacker,
    /// The notices of the last description, without those of the scan.
    described_notices: BTreeSet<Notice>,
    /// The notices that hold after the last look; all of them were sent.
    sent_notices: BTreeSet<Notice>,
    reported_kinds: BTreeSet<(String, String)>,
    is_first_look: bool,
    /// What the last scan did not look at.
    skipped: Vec<Notice>,
    /// The pods whose reports may change what is described next.
    waiting: BTreeSet<ResourceKey>,
    /// When something else may be described although nothing changed.
    next_look: Option<Timestamp>,
    /// The workloads as they were unfolded last.
    workloads: Arc<Vec<WorkloadState>>,
}

/// What surrounds a folder at a look.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The nodes that pods are spread over.
    pub(crate) nodes: &'a BTreeSet<NodeName>,
    /// What is published. Only the first look reads it, and a takeover.
    pub(crate) published: &'a dyn PublishedObjects,
    /// Whether another controller published it since the last look.
    pub(crate) is_takeover: bool,
    /// What the nodes report of pods.
    pub(crate) reports: &'a dyn PodReports,
    /// The time.
    pub(crate) now: Timestamp,
}

/// An object as it was sent.
#[derive(Clone, Debug)]
struct SentObject {
    payload: PackedPayload,
    /// What it was made of, so that one that is described as before is not made again.
    ingredients: blake3::Hash,
    /// The workload that it is a pod of.
    workload: Option<Arc<str>>,
}

/// The differences of one look to the one before.
#[derive(Debug, Default)]
struct Differences {
    /// The objects that are gone, or that another one of the same name replaced, with their UIDs.
    gone: BTreeMap<ResourceKey, String>,
    /// The objects that came or changed.
    new: BTreeMap<ResourceKey, Object>,
}

impl Folder {
    /// A folder that was not looked at yet.
    pub fn new(name: impl Into<String>, allow_empty: bool) -> Self {
        Self {
            name: name.into(),
            allow_empty,
            validation: Validation::Warn,
            device: None,
            mounts: Mounts::default(),
            nodes: BTreeSet::new(),
            files: BTreeMap::new(),
            objects: BTreeMap::new(),
            shared: SharedContent::default(),
            packer: PayloadPacker::default(),
            described_notices: BTreeSet::new(),
            sent_notices: BTreeSet::new(),
            reported_kinds: BTreeSet::new(),
            is_first_look: true,
            skipped: Vec::new(),
            waiting: BTreeSet::new(),
            next_look: None,
            workloads: Arc::default(),
        }
    }

    /// Refuses documents that a cluster would not accept, if `strict`; otherwise they only have a
    /// notice.
    #[must_use]
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.validation = if strict { Validation::Strict } else { Validation::Warn };
        self
    }

    /// The notices that hold after the last look.
    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.sent_notices.iter()
    }

    /// Takes in a look at the files where no node reports anything. The first answers with a complete
    /// list.
    ///
    /// # Errors
    /// When the folder is emptied or replaced: nothing is taken in. A later look may be in order again.
    pub fn update(
        &mut self,
        scan: Scan,
        nodes: &BTreeSet<NodeName>,
        published: &dyn PublishedObjects,
        identities: &mut dyn FnMut() -> ObjectIdentity,
    ) -> Result<Vec<SourceEvent>, ManifestError> {
        let now = Timestamp::UNIX_EPOCH;
        let reports = &NoReports;
        let around = Surroundings { nodes, published, is_takeover: false, reports, now };
        self.look(scan, &around, identities)
    }

    /// Takes in a look at the files. The first answers with a complete list.
    ///
    /// # Errors
    /// As [`Folder::update`].
    pub(crate) fn look(
        &mut self,
        mut scan: Scan,
        around: &Surroundings<'_>,
        identities: &mut dyn FnMut() -> ObjectIdentity,
    ) -> Result<Vec<SourceEvent>, ManifestError> {
        let Surroundings { nodes, published, is_takeover, .. } = *around;
        let published_files = PublishedFiles::new(published, is_takeover);
        let is_compared = self.is_first_look || is_takeover;
        if is_compared {
            let lacking = |mount: &Path| published_files.lacking(&scan, mount);
            self.mounts.learn(published, is_takeover, lacking);
        }
        self.refuse_another_place(&scan)?;
        self.hide_missing_mounts(&mut scan);
        self.refuse_emptied(&scan, is_compared.then_some(&published_files))?;
        self.device = Some(scan.device);
        self.mounts.update(&scan, &scan.unreadable_folders);
        let is_changed = self.take_files(&scan, &published_files) || self.nodes != *nodes;
        self.skipped = scan.skipped;
        let is_due = !self.waiting.is_empty()
            || self.next_look.is_some_and(|at| at <= around.now)
            || is_takeover;
        if self.is_first_look || is_changed || is_due {
            return Ok(self.describe(around, identities));
        }
        let mut events = Vec::new();
        self.send_notices(&mut events);
        Ok(events)
    }

    /// The pods whose reports may change what is described next.
    pub(crate) fn waiting(&self) -> &BTreeSet<ResourceKey> {
        &self.waiting
    }

    /// When something else may be described although nothing changed.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        self.next_look
    }

    /// The workloads as they were unfolded last.
    pub(crate) fn workloads(&self) -> Arc<Vec<WorkloadState>> {
        self.workloads.clone()
    }

    /// Describes the files as they were read last, in other surroundings.
    pub(crate) fn describe(
        &mut self,
        around: &Surroundings<'_>,
        identities: &mut dyn FnMut() -> ObjectIdentity,
    ) -> Vec<SourceEvent> {
        let Surroundings { nodes, published, is_takeover, reports, now } = *around;
        self.nodes.clone_from(nodes);
        let is_compared = self.is_first_look || is_takeover;
        let mut description = {
            let sent = |key: &ResourceKey| Some(self.objects.get(key)?.payload.value());
            let earlier = |key: &ResourceKey| Some(published.get(key)?.value());
            let past = |key: &ResourceKey| match (is_takeover, is_compared) {
                // What another controller published since is newer than what this one sent. A pod
                // that it removed is gone.
                (true, _) if is_pod(key) => earlier(key),
                (true, _) => earlier(key).or_else(|| sent(key)),
                (false, true) => sent(key).or_else(|| earlier(key)),
                (false, false) => sent(key),
            };
            let members =
                if is_compared { members_of(published, &published.keys()) } else { self.members() };
            let inputs = RolloutInputs { members: &members, reports, now };
            let files = self.files.iter().map(|(path, file)| (&**path, &file.entries[..]));
            describe(files, nodes, &past, &inputs)
        };
        self.waiting = std::mem::take(&mut description.waiting);
        self.next_look = description.next;
        self.workloads = Arc::new(std::mem::take(&mut description.workloads));
        let mut events = Vec::new();
        self.take_description(description, published, identities, &mut events);
        self.send_notices(&mut events);
        self.is_first_look = false;
        events
    }

    /// The pods of each workload, as they were sent.
    fn members(&self) -> Members {
        let mut members = Members::new();
        for (key, object) in &self.objects {
            if let Some(workload) = &object.workload {
                add_member(&mut members, key, workload.clone());
            }
        }
        members
    }

    fn refuse_another_place(&self, scan: &Scan) -> Result<(), ManifestError> {
        if self.allow_empty {
            return Ok(());
        }
        if self.mounts.lack_root(scan) {
            return Err(ManifestError::Unmounted { folder: self.name.clone() });
        }
        if self.device.is_some_and(|device| device != scan.device) {
            return Err(ManifestError::OtherDevice { folder: self.name.clone() });
        }
        Ok(())
    }

    /// Refuses a scan without any manifest that can be read, if objects would go. A hidden folder, or a link
    /// that leads nowhere, keeps its own objects and says nothing about those of other files. `published`: the
    /// objects are those that are published, not those that were sent.
    fn refuse_emptied(
        &self,
        scan: &Scan,
        published: Option<&PublishedFiles<'_>>,
    ) -> Result<(), ManifestError> {
        if self.allow_empty || scan.has_readable_manifest() {
            return Ok(());
        }
        let is_gone = |path: &Path| !scan.files.contains_key(path) && !scan.is_hidden(path);
        let objects = match published {
            Some(published) => published.count(is_gone),
            None => self.count(is_gone),
        };
        if objects > 0 {
            return Err(ManifestError::Emptied { folder: self.name.clone(), objects });
        }
        Ok(())
    }

    /// How many of the objects that were sent come from the files that `selects` selects.
    fn count(&self, selects: impl Fn(&Path) -> bool) -> usize {
        let is_selected = |object: &&SentObject| {
            manifest_of(&object.payload.value()).is_some_and(|file| selects(Path::new(file)))
        };
        self.objects.values().filter(is_selected).count()
    }

    /// Lets the manifests of mounts that are gone be hidden, whatever lies in their place.
    fn hide_missing_mounts(&self, scan: &mut Scan) {
        let mut missing = if self.allow_empty { Vec::new() } else { self.mounts.missing(scan) };
        // The folder itself was looked at: see `ManifestError::Unmounted`.
        missing.retain(|mount| mount != Path::new(""));
        scan.files.retain(|path, _| missing.iter().all(|mount| !path.starts_with(mount)));
        scan.skipped.extend(missing.iter().map(|mount| Notice {
            file: Some(mount.clone()),
            line: None,
            kind: NoticeKind::Unreadable,
            text: "was a mount with manifests and is none now; its objects stay. Mount it again, or \
                   start with --allow-empty to remove them"
                .to_owned(),
        }));
        scan.unreadable_folders.extend(missing);
    }

    /// Reads the files that changed. Returns whether any did.
    fn take_files(&mut self, scan: &Scan, published: &PublishedFiles<'_>) -> bool {
        let mut is_changed = false;
        let is_hidden = |path: &Path| scan.is_hidden(path);
        let is_compared = self.is_first_look || published.is_takeover();
        if is_compared && !scan.unreadable_folders.is_empty() {
            let known = self.files.keys().map(PathBuf::as_path);
            let hidden: BTreeSet<PathBuf> = known
                .chain(published.paths())
                .filter(|path| is_hidden(path))
                .map(Path::to_owned)
                .collect();
            for path in hidden {
                let before = self.files.remove(&path);
                let file = File::hidden(&path, before, published, &mut self.shared);
                self.files.insert(path, file);
            }
        }
        self.files.retain(|path, _| {
            let stays = scan.files.contains_key(path) || is_hidden(path);
            is_changed |= !stays;
            stays
        });
        for (path, text) in &scan.files {
            if self.files.get(path).is_some_and(|file| file.is_current(text, published)) {
                continue;
            }
            is_changed = true;
            let before = self.files.remove(path);
            let reading = (self.validation, &mut self.shared);
            let file = File::read(path, text, before, published, reading);
            self.files.insert(path.clone(), file);
        }
        is_changed
    }

    fn take_description(
        &mut self,
        description: Description,
        published: &dyn PublishedObjects,
        identities: &mut dyn FnMut() -> ObjectIdentity,
        events: &mut Vec<SourceEvent>,
    ) {
        let mut notices: BTreeSet<Notice> = description.notices.into_iter().collect();
        if self.files.is_empty() {
            let text = format!("no file under {} ends in .yaml, .yml or .json", self.name);
            notices.insert(Notice { file: None, line: None, kind: NoticeKind::Source, text });
        }
        for (path, file) in &self.files {
            notices.extend(file.findings.iter().map(|finding| finding.in_file(path)));
        }
        for ((group, kind), other) in description.other_kinds {
            if self.reported_kinds.insert((group.clone(), kind.clone())) {
                let of = if group.is_empty() { String::new() } else { format!(" of {group}") };
                events.push(SourceEvent::Notice(Notice {
                    file: Some(other.first.file.to_path_buf()),
                    line: Some(other.first.line),
                    kind: NoticeKind::NotReplicated,
                    text: format!("{kind}{of} is not replicated ({} found)", other.count),
                }));
            }
        }
        let mut before = std::mem::take(&mut self.objects);
        let mut differences = Differences::default();
        for (key, described) in description.objects {
            let mount = self.mounts.of(&described.origin.file);
            let ingredients = ingredients(&described, mount);
            let sent = before.remove(&key);
            if let Some(sent) = sent.as_ref().filter(|sent| sent.ingredients == ingredients) {
                self.objects.insert(key, sent.clone());
                continue;
            }
            let past = match &sent {
                Some(sent) => Some(sent.payload.value()),
                None if self.is_first_look => published.get(&key).map(|object| object.value()),
                None => None,
            };
            match finish(&key, &described, mount, past.as_ref(), identities) {
                Ok(object) => {
                    let (kind, hash) = (object.object_type().name, *object.payload_hash());
                    let payload = self.packer.pack_hashed(kind, object.payload(), hash);
                    let workload = described.workload.clone();
                    let sent_now = SentObject { payload, ingredients, workload };
                    self.objects.insert(key.clone(), sent_now);
                    differences.add(key, sent, object);
                }
                Err(error) => {
                    let (text, origin) = (error_chain(&error), described.origin);
                    let (file, line) = (Some(origin.file.to_path_buf()), Some(origin.line));
                    notices.insert(Notice { file, line, kind: NoticeKind::Invalid, text });
                    if let Some(sent) = sent {
                        self.objects.insert(key, sent);
                    }
                }
            }
        }
        differences.gone.extend(before.into_iter().map(|(key, sent)| (key, sent.uid())));
        if self.is_first_look {
            differences.list(events);
        } else {
            differences.changes(events);
        }
        self.described_notices = notices;
    }

    /// Sends the notices that were not sent before, and one for each trouble that is repaired.
    fn send_notices(&mut self, events: &mut Vec<SourceEvent>) {
        let notices: BTreeSet<Notice> =
            self.described_notices.iter().chain(&self.skipped).cloned().collect();
        let new = notices.difference(&self.sent_notices).cloned();
        events.extend(new.map(SourceEvent::Notice));
        let gone = self.sent_notices.difference(&notices).filter(|gone| gone.is_trouble());
        let repaired = gone.filter(|gone| !notices.iter().any(|now| gone.is_succeeded_by(now)));
        events.extend(repaired.map(|gone| SourceEvent::Notice(gone.repaired())));
        self.sent_notices = notices;
    }
}

impl SentObject {
    fn uid(&self) -> String {
        uid_of(&self.payload.value())
    }
}

impl Differences {
    /// Adds an object that was made; `before` is the one that was sent last under its key.
    fn add(&mut self, key: ResourceKey, before: Option<SentObject>, object: Object) {
        if let Some(before) = before {
            if before.payload.unpack() == object.payload() {
                return;
            }
            let uid = before.uid();
            if uid != object.uid() {
                self.gone.insert(key.clone(), uid);
            }
        }
        self.new.insert(key, object);
    }

    /// A complete list, pods last.
    fn list(self, events: &mut Vec<SourceEvent>) {
        let (pods, others): (Vec<_>, Vec<_>) =
            self.new.into_values().partition(|object| is_pod(object.key()));
        events.push(SourceEvent::Init);
        events.extend(others.into_iter().chain(pods).map(SourceEvent::InitApply));
        events.push(SourceEvent::InitDone);
    }

    /// The changes: pods leave first and come last, so that what they name is there with them.
    fn changes(self, events: &mut Vec<SourceEvent>) {
        let delete = |(key, uid)| SourceEvent::Delete { key, uid, cause: CAUSE };
        let (pods, others): (Vec<_>, Vec<_>) =
            self.gone.into_iter().partition(|(key, _)| is_pod(key));
        events.extend(pods.into_iter().map(delete));
        let (new_pods, new_others): (Vec<_>, Vec<_>) =
            self.new.into_values().partition(|object| is_pod(object.key()));
        let new = new_others.into_iter().chain(new_pods);
        events.extend(new.map(|object| SourceEvent::Apply(object, CAUSE)));
        events.extend(others.into_iter().map(delete));
    }
}

/// The published pods of each workload, of those among `keys`.
fn members_of<'k>(
    published: &dyn PublishedObjects,
    keys: impl IntoIterator<Item = &'k ResourceKey>,
) -> Members {
    let mut members = Members::new();
    for key in keys.into_iter().filter(|key| is_pod(key)) {
        let workload = published.get(key).and_then(|pod| workload_of(&pod.value()));
        if let Some(workload) = workload {
            add_member(&mut members, key, workload);
        }
    }
    members
}

fn add_member(members: &mut Members, pod: &ResourceKey, workload: Arc<str>) {
    let namespace = pod.namespace().unwrap_or_default().to_owned();
    members.entry((namespace, workload)).or_default().push(pod.clone());
}

/// The content of an object without its identity: equal content and past make the same object.
fn ingredients(described: &DescribedObject, mount: Option<&Path>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&described.payload.digest().0);
    hasher.update(described.placed.as_ref().map_or(&[][..], |node| node.as_str().as_bytes()));
    hasher.update(&[0]);
    hasher.update(described.origin.file.as_os_str().as_encoded_bytes());
    // Neither a name nor a path has a zero byte.
    hasher.update(&[0]);
    hasher.update(&[u8::from(mount.is_some())]);
    hasher.update(mount.map_or(&[][..], |mount| mount.as_os_str().as_encoded_bytes()));
    hasher.finalize()
}

/// Gives a described object its UID and creation time: the former ones, unless it is another object
/// now.
fn finish(
    key: &ResourceKey,
    described: &DescribedObject,
    mount: Option<&Path>,
    past: Option<&Value>,
    identities: &mut dyn FnMut() -> ObjectIdentity,
) -> Result<Object, ObjectError> {
    let mut value = described.value();
    let same = past.filter(|past| is_same_object(key, past, &value));
    let (uid, time) = match same {
        Some(past) => {
            let time = past["metadata"]["creationTimestamp"].as_str();
            (uid_of(past), time.map(str::to_owned))
        }
        None => {
            let ObjectIdentity { uid, time } = identities();
            (uid, Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
        }
    };
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), uid.into());
        if let Some(time) = time {
            metadata.insert("creationTimestamp".to_owned(), time.into());
        }
        let annotations =
            metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if annotations.is_null() {
            *annotations = Value::Object(Map::new());
        }
        if let Some(annotations) = annotations.as_object_mut() {
            let file = described.origin.file.to_string_lossy().into_owned();
            annotations.insert(MANIFEST_ANNOTATION.to_owned(), file.into());
            annotations.remove(MOUNT_ANNOTATION);
            if let Some(mount) = mount {
                let mount = mount.to_string_lossy().into_owned();
                annotations.insert(MOUNT_ANNOTATION.to_owned(), mount.into());
            }
        }
    }
    Object::from_value(value)
}

/// A file does not say why it changed.
const CAUSE: Cause =
    Cause { intended_time: None, traceparent: None, source: SourceKind::MANIFESTS };

fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn is_pod(key: &ResourceKey) -> bool {
    key.kind() == "pod"
}

#[cfg(test)]
mod tests;
