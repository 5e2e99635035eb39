//! A file of the folder: what it describes, and what it described before and cannot say now.

use std::cell::{LazyCell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use headwater_event::ResourceKey;

use super::members_of;
use crate::source::PublishedObjects;
use crate::source::manifest::entry::{Content, Entries, Entry, EntryId, SharedContent};
use crate::source::manifest::origin::manifest_of;
use crate::source::manifest::parse::Finding;
use crate::source::manifest::scan::Scan;
use crate::source::manifest::validation::Validation;

/// What is known of one file.
#[derive(Debug)]
pub(super) struct File {
    /// The digest of its text, or why it cannot be read.
    content: Result<blake3::Hash, String>,
    /// What it describes, with what it described before and cannot say now.
    pub(super) entries: Vec<Entry>,
    pub(super) findings: Vec<Finding>,
    /// Whether every document could be used.
    is_whole: bool,
}

/// What is published from each file.
pub(super) struct PublishedFiles<'a> {
    published: &'a dyn PublishedObjects,
    /// Whether another controller published it since the last look.
    is_takeover: bool,
    /// The keys by the paths of the files, once they are needed.
    keys: OnceCell<BTreeMap<PathBuf, Vec<ResourceKey>>>,
}

impl File {
    /// A file that cannot be seen. `before`: what was known of it.
    pub(super) fn hidden(
        path: &Path,
        mut before: Option<Self>,
        published: &PublishedFiles<'_>,
        shared: &mut SharedContent,
    ) -> Self {
        let content = Err("hidden".to_owned());
        let findings = before.as_mut().map(|file| std::mem::take(&mut file.findings));
        let findings = findings.unwrap_or_default();
        let entries = published.earlier(path, before, shared);
        Self { content, entries, findings, is_whole: false }
    }

    /// Reads a file. `before`: what was known of it.
    pub(super) fn read(
        path: &Path,
        text: &Result<String, String>,
        before: Option<Self>,
        published: &PublishedFiles<'_>,
        (validation, shared): (Validation, &mut SharedContent),
    ) -> Self {
        let mut read = match text {
            Ok(text) if text.trim().is_empty() => {
                // Some editors empty a file before they write it.
                let is_new = before.is_none() && published.entries(path, shared).is_empty();
                let reason = "the file is empty; to remove what it described, delete the file";
                let finding = Finding::unreadable(None, reason);
                let findings = if is_new { Vec::new() } else { vec![finding] };
                Entries { entries: Vec::new(), findings }
            }
            Ok(text) => Entries::read(text, validation, shared),
            Err(reason) => Entries {
                entries: Vec::new(),
                findings: vec![Finding::unreadable(None, reason.clone())],
            },
        };
        let is_whole = read.is_whole();
        if !is_whole {
            let is_gone = |entry: &Entry| read.entries.iter().all(|now| now.id != entry.id);
            let earlier = published.earlier(path, before, shared).into_iter();
            let kept: Vec<Entry> = earlier.filter(is_gone).collect();
            let mut broken = read.findings.iter_mut().filter(|finding| finding.leaves_out());
            if let (false, Some(finding)) = (kept.is_empty(), broken.next()) {
                finding.text.push_str("; what the file described before stays in place");
            }
            read.entries.extend(kept);
        }
        Self { content: content(text), entries: read.entries, findings: read.findings, is_whole }
    }

    /// Whether the file would be read as it was.
    pub(super) fn is_current(
        &self,
        text: &Result<String, String>,
        published: &PublishedFiles<'_>,
    ) -> bool {
        // What it described before may be another thing after a takeover.
        self.content == content(text) && (self.is_whole || !published.is_takeover)
    }
}

impl<'a> PublishedFiles<'a> {
    pub(super) fn new(published: &'a dyn PublishedObjects, is_takeover: bool) -> Self {
        Self { published, is_takeover, keys: OnceCell::new() }
    }

    /// Whether another controller published it since the last look.
    pub(super) fn is_takeover(&self) -> bool {
        self.is_takeover
    }

    /// The paths of the files that something is published from.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.keys().keys().map(PathBuf::as_path)
    }

    /// How many objects are published from the files that `selects` selects.
    pub(super) fn count(&self, selects: impl Fn(&Path) -> bool) -> usize {
        let selected = self.keys().iter().filter(|(path, _)| selects(path));
        selected.map(|(_, keys)| keys.len()).sum()
    }

    /// The files below `folder` that something is published from and that a scan does not find.
    pub(super) fn lacking(&self, scan: &Scan, folder: &Path) -> BTreeSet<PathBuf> {
        let paths = self.paths().filter(|path| path.starts_with(folder));
        paths.filter(|path| !scan.files.contains_key(*path)).map(Path::to_owned).collect()
    }

    /// What is published from a file.
    fn entries(&self, path: &Path, shared: &mut SharedContent) -> Vec<Entry> {
        let keys = self.keys().get(path).into_iter().flatten();
        let objects = keys.filter_map(|key| self.published.get(key));
        objects.filter_map(|object| Entries::restored(&object.value(), shared)).collect()
    }

    /// What a file described before. After a restart or a takeover that is what is published from it, and the pods
    /// of its workloads stay as they are. A workload is not known after a restart; at a takeover the one that was
    /// read last stays with its pods.
    fn earlier(&self, path: &Path, before: Option<File>, shared: &mut SharedContent) -> Vec<Entry> {
        let before = match before {
            Some(before) if !self.is_takeover => return before.entries,
            before => before.into_iter().flat_map(|before| before.entries),
        };
        let mut entries = self.entries(path, shared);
        // The published pods are parsed for a workload alone.
        let owners = LazyCell::new(|| {
            members_of(self.published, self.keys().get(path).into_iter().flatten())
        });
        entries.extend(before.filter_map(|entry| match entry.content {
            Content::Workload(workload) | Content::Held(workload) => {
                let owner = workload.owner();
                let content = Content::Held(workload);
                owners.contains_key(&owner).then_some(Entry { content, ..entry })
            }
            _ => Some(entry).filter(|entry| self.may_be_unused(entry)),
        }));
        entries
    }

    /// Whether an entry is in no stream, and perhaps only because no node needs it. A pod that another controller
    /// removed is gone.
    fn may_be_unused(&self, entry: &Entry) -> bool {
        let EntryId::Object { key, .. } = &entry.id else { return false };
        let is_object = matches!(entry.content, Content::Object(_) | Content::Restored(_));
        is_object && key.kind() != "pod" && self.published.get(key).is_none()
    }

    fn keys(&self) -> &BTreeMap<PathBuf, Vec<ResourceKey>> {
        self.keys.get_or_init(|| {
            let mut keys: BTreeMap<PathBuf, Vec<ResourceKey>> = BTreeMap::new();
            for key in self.published.keys() {
                let object = self.published.get(&key).map(|object| object.value());
                if let Some(file) = object.as_ref().and_then(manifest_of) {
                    keys.entry(file.into()).or_default().push(key);
                }
            }
            keys
        })
    }
}

fn content(text: &Result<String, String>) -> Result<blake3::Hash, String> {
    match text {
        Ok(text) => Ok(blake3::hash(text.as_bytes())),
        Err(reason) => Err(reason.clone()),
    }
}
