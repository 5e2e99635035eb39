//! The ends of containers in a runtime that the node had before.

use super::PodStore;
use crate::disk::file_error::FileError;
use crate::disk::paths::Paths;
use crate::pod::PodUid;
use crate::worker::FormerRuns;

impl PodStore {
    /// The ends of the pod's containers in the former runtime; none if there are none.
    pub(crate) fn former_runs(&self, pod: &PodUid) -> FormerRuns {
        self.read(pod, Paths::former_runs).unwrap_or_default()
    }

    /// Writes the ends of the pod's containers in the former runtime. Does nothing if the pod has no record.
    ///
    /// # Errors
    /// The errors of the file system. The former ends stay.
    pub(crate) async fn write_former_runs(
        &self,
        pod: &PodUid,
        runs: &FormerRuns,
    ) -> Result<(), FileError> {
        self.write(pod, Paths::former_runs, runs).await
    }
}
