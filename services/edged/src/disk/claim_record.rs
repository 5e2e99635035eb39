//! The record of a claim's directory, and the list of those that no claim of the node has.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::durable_file;
use super::paths::{Paths, entries};
use crate::container::claim::{Claim, ClaimName, ReclaimPolicy};

/// The facts of a claim that its directory needs after the claim has left the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimRecord {
    /// Its name.
    pub(crate) name: ClaimName,
    /// The last known policy.
    pub(crate) policy: ReclaimPolicy,
    /// The cloud deletes it, or has deleted it.
    pub(crate) is_deleted: bool,
    /// The time since which the node's view does not have it.
    pub(crate) left_at: Option<Timestamp>,
}

/// The directory of a claim that has left the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptClaim {
    /// The claim's name.
    pub name: ClaimName,
    /// The directory with its data.
    pub data: PathBuf,
    /// The time since which the node's view does not have the claim.
    pub left_at: Timestamp,
}

impl ClaimRecord {
    /// The record of a claim that the view has.
    pub(crate) fn of(claim: &Claim) -> Self {
        let Claim { name, policy, is_deleting, .. } = claim;
        Self { name: name.clone(), policy: *policy, is_deleted: *is_deleting, left_at: None }
    }
}

/// The directories of claims that have left the node, in the pod worker's directory `dir`, by claim.
/// None if there is no such directory.
///
/// # Errors
/// The directory cannot be listed. A record that cannot be read is left out.
pub fn kept_claims(dir: &Path) -> io::Result<Vec<KeptClaim>> {
    let paths = Paths::new(dir.to_owned());
    let mut kept = Vec::new();
    for entry in entries(&paths.all_claims())? {
        let Some(uid) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let record = durable_file::read::<ClaimRecord>(&paths.claim_record(&uid)).ok().flatten();
        if let Some(ClaimRecord { name, left_at: Some(left_at), .. }) = record {
            kept.push(KeptClaim { name, data: paths.claim_data(&uid), left_at });
        }
    }
    kept.sort_by(|a, b| (&a.name, a.left_at).cmp(&(&b.name, b.left_at)));
    Ok(kept)
}
