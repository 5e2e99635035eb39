//! How pods end, beyond their grace periods.

use k8s_openapi::api::core::v1::Pod;

use super::PodStore;
use crate::disk::file_error::FileError;
use crate::disk::paths::Paths;
use crate::pod::PodUid;

impl PodStore {
    /// The pod, reduced to what its end depends on; `None`: its record says it all.
    pub(crate) fn ending(&self, pod: &PodUid) -> Option<Pod> {
        self.read(pod, Paths::ending)
    }

    /// Writes down how the pod ends. Does nothing if the pod has no record.
    ///
    /// # Errors
    /// The errors of the file system. What was written before stays.
    pub(crate) async fn write_ending(&self, pod: &PodUid, ending: &Pod) -> Result<(), FileError> {
        self.write(pod, Paths::ending, ending).await
    }
}
