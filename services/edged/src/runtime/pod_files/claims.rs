//! The directories of claims: one for each UID, which outlives the pods of the claim.
//!
//! A claim that is made again under its name has another UID, and so an empty directory. A directory
//! that an earlier version named after its claim becomes that of the claim that has the name now.
//! `reclaim` decides what becomes of a directory whose claim has left the node.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::volumes;
use crate::container::claim::{Claim, ClaimName, ClaimView, ReclaimPolicy};
use crate::disk::claim_record::ClaimRecord;
use crate::disk::durable_file;
use crate::disk::file_error::FileError;
use crate::disk::paths::{Paths, entries};

mod reclaim;

use reclaim::{Absence, ClaimStep, Uses};

/// The prefix of a directory that is being removed. No UID has it.
const REMOVED: &str = ".removed-";

/// The directories of the claims of a node.
#[derive(Debug)]
pub(in crate::runtime) struct ClaimDirectories {
    paths: Paths,
    /// The claims that the view lacks, by UID. The lock also keeps a directory from its removal
    /// until a pod that begins to use it has its link.
    absences: Mutex<BTreeMap<String, Absence>>,
}

impl ClaimDirectories {
    pub(in crate::runtime) fn new(paths: Paths) -> Self {
        Self { paths, absences: Mutex::default() }
    }

    /// Makes the claim's directory unless it is there, or adopts that of an earlier version, and
    /// makes `link` a link to its data. A new directory has this mode.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(in crate::runtime) fn link(
        &self,
        claim: &Claim,
        mode: u32,
        link: &Path,
    ) -> Result<(), FileError> {
        let _absences = self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        self.adopt(claim)?;
        let data = self.paths.claim_data(&claim.uid);
        volumes::create(&data, mode)?;
        volumes::link(link, &data)
    }

    /// Brings all directories in line with the node's view. A claim counts as absent when the view
    /// has lacked it for `hold`.
    ///
    /// # Errors
    /// The errors of the file system. A directory may be left for the next time.
    pub(in crate::runtime) fn reclaim(
        &self,
        view: &ClaimView,
        hold: Duration,
        now: Instant,
        time: Timestamp,
    ) -> Result<(), FileError> {
        let mut absences = self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.paths.all_claims();
        let found = entries(&all).map_err(FileError::new("list", &all))?;
        if found.is_empty() {
            absences.clear();
            return Ok(());
        }
        for claim in view.claims.values().filter(|claim| !claim.uid.is_empty()) {
            if self.is_of_earlier_version(&self.paths.named_claim(&claim.name)) {
                self.adopt(claim)?;
            }
        }
        let links = self.links()?;
        let mut removed = Vec::new();
        for entry in found {
            let path = entry.path();
            let Some(uid) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if uid.starts_with(REMOVED) {
                removed.push(path);
                continue;
            }
            if path.is_symlink() {
                // Pods of an earlier version lead here until their volumes are written again.
                if !links.contains(&path) {
                    fs::remove_file(&path).map_err(FileError::new("remove", &path))?;
                }
                continue;
            }
            let record = self.paths.claim_record(&uid);
            let Some(record) =
                durable_file::read(&record).map_err(FileError::new("read", &record))?
            else {
                continue;
            };
            let absence = Absence::observe(&mut absences, &uid, &record, view, now)
                .filter(|absence| absence.has_lasted(hold, now));
            let data = self.paths.claim_data(&uid);
            let is_used =
                links.contains(&data) || links.contains(&self.paths.named_claim(&record.name));
            let uses = if is_used { Uses::ByPods } else { Uses::None };
            match reclaim::step(&uid, &record, view, absence, uses, time) {
                ClaimStep::Keep => {}
                ClaimStep::Write(next) => {
                    report(&uid, &record, &next, &data);
                    self.write(&uid, &next)?;
                }
                ClaimStep::Remove => {
                    let aside = all.join(format!("{REMOVED}{uid}"));
                    fs::rename(&path, &aside).map_err(FileError::new("remove", &path))?;
                    tracing::info!(claim = %record.name, uid, "a deleted claim's directory is removed");
                    absences.remove(&uid);
                    removed.push(aside);
                }
            }
        }
        drop(absences);
        for path in removed {
            fs::remove_dir_all(&path).map_err(FileError::new("remove", &path))?;
        }
        Ok(())
    }

    /// Writes the claim's record, and moves the data of an earlier version to its directory. A crash
    /// at any step leaves the data where the next call finds it.
    fn adopt(&self, claim: &Claim) -> Result<(), FileError> {
        let (named, data) =
            (self.paths.named_claim(&claim.name), self.paths.claim_data(&claim.uid));
        let dir = self.paths.claim(&claim.uid);
        if !self.paths.claim_record(&claim.uid).exists() {
            durable_file::create_dir(self.paths.dir(), &dir)
                .map_err(FileError::new("create", &dir))?;
            self.write(&claim.uid, &ClaimRecord::of(claim))?;
        }
        if data.exists() || !self.is_of_earlier_version(&named) {
            return Ok(());
        }
        fs::rename(&named, &data).map_err(FileError::new("adopt", &named))?;
        tracing::info!(
            claim = %claim.name, uid = claim.uid, from = %named.display(),
            "the directory of an earlier version is adopted"
        );
        // Pods that run since the earlier version have links to the former path.
        symlink(&data, &named).map_err(FileError::new("link", &named))
    }

    fn is_of_earlier_version(&self, named: &Path) -> bool {
        fs::symlink_metadata(named).is_ok_and(|found| found.is_dir())
    }

    fn write(&self, uid: &str, record: &ClaimRecord) -> Result<(), FileError> {
        let path = self.paths.claim_record(uid);
        durable_file::write(&path, record).map_err(FileError::new("write", &path))
    }

    /// Where the volumes of all pods on the machine lead, running or not.
    fn links(&self) -> Result<Vec<PathBuf>, FileError> {
        let pods = self.paths.pods();
        let mut links = Vec::new();
        for pod in entries(&pods).map_err(FileError::new("list", &pods))? {
            let volumes = pod.path().join("volumes");
            for volume in entries(&volumes).map_err(FileError::new("list", &volumes))? {
                match fs::read_link(volume.path()) {
                    Ok(target) => links.push(target),
                    // It is a directory, or the pod has just been removed.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                        ) => {}
                    Err(error) => return Err(FileError::new("read", volume.path())(error)),
                }
            }
        }
        Ok(links)
    }
}

/// Logs once that a claim has left the node, and what becomes of its directory.
fn report(uid: &str, before: &ClaimRecord, after: &ClaimRecord, data: &Path) {
    let ClaimRecord { name, policy, is_deleted, left_at } = after;
    if before.left_at.is_some() || left_at.is_none() {
        return;
    }
    let (claim, path): (&ClaimName, _) = (name, data.display());
    match (policy, is_deleted) {
        (ReclaimPolicy::Delete, true) => tracing::info!(
            %claim, uid, %path,
            "a claim is deleted: its directory is removed after its last pod"
        ),
        _ => tracing::warn!(
            %claim, uid, %path,
            "a claim has left the node and its directory stays: remove it when its data is not \
             needed; `headwater doctor` lists it"
        ),
    }
}

#[cfg(test)]
mod tests;
