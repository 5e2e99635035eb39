//! What a published volume uses, as its driver measures it.

use std::path::Path;

use headwater_edged::runtime::{DiskUsage, FileSystemUsage};

use crate::client::CallError;
use crate::ledger::{PodVolume, VolumeId};
use crate::proto::volume_usage::Unit;
use crate::proto::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse};
use crate::volumes::Inner;

/// A volume is not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    /// The driver is not registered, or does not measure volumes, or answers with what is no measure.
    #[error("{0}")]
    None(String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl MeasureError {
    /// Whether the driver did not answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Call(CallError::TimedOut { .. }))
    }
}

/// Asks the driver of a volume.
///
/// # Errors
/// See [`MeasureError`].
pub(crate) async fn measure(
    inner: &Inner,
    place: &PodVolume,
    id: &VolumeId,
) -> Result<FileSystemUsage, MeasureError> {
    let client = inner.client(&id.driver).map_err(MeasureError::None)?;
    if !client.capabilities().await?.measures {
        return Err(MeasureError::None("the driver does not measure volumes".to_owned()));
    }
    let target = inner.layout.target(&place.pod, &place.spec_name);
    let staging = inner.ledger().stage_of(id).is_some();
    let staging = staging.then(|| inner.layout.staging_target(&id.driver, &id.handle));
    let request = NodeGetVolumeStatsRequest {
        volume_id: id.handle.clone(),
        volume_path: target.to_string_lossy().into_owned(),
        staging_target_path: staging.unwrap_or_default().to_string_lossy().into_owned(),
    };
    let response = client.statistics(request).await?;
    of_response(&response, &target).map_err(MeasureError::None)
}

/// The usage in an answer. A driver may leave the inodes out; a block device has none.
fn of_response(
    response: &NodeGetVolumeStatsResponse,
    target: &Path,
) -> Result<FileSystemUsage, String> {
    let mut found = FileSystemUsage {
        mount_point: target.to_owned(),
        used: DiskUsage::default(),
        capacity: DiskUsage::default(),
        available: DiskUsage::default(),
    };
    let mut has_bytes = false;
    for usage in &response.usage {
        let amount = |amount: i64| {
            u64::try_from(amount).map_err(|_| format!("the driver measures {amount} of a volume"))
        };
        let amounts = [amount(usage.used)?, amount(usage.total)?, amount(usage.available)?];
        let systems = [&mut found.used, &mut found.capacity, &mut found.available];
        for (system, amount) in systems.into_iter().zip(amounts) {
            match usage.unit() {
                Unit::Bytes => system.bytes = amount,
                Unit::Inodes => system.inodes = amount,
                Unit::Unknown => {}
            }
        }
        has_bytes |= usage.unit() == Unit::Bytes;
    }
    if has_bytes { Ok(found) } else { Err("the driver measures no bytes of the volume".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::VolumeUsage;

    fn of(usages: &[(Unit, [i64; 3])]) -> Result<FileSystemUsage, String> {
        let usage = usages.iter().map(|(unit, [used, total, available])| VolumeUsage {
            available: *available,
            total: *total,
            used: *used,
            unit: (*unit).into(),
        });
        of_response(&NodeGetVolumeStatsResponse { usage: usage.collect() }, Path::new("/target"))
    }

    #[test]
    fn an_answer_has_bytes_and_perhaps_inodes() {
        let found = of(&[(Unit::Inodes, [1, 10, 9]), (Unit::Bytes, [100, 4_096, 3_996])]);
        let found = found.expect("whole");
        assert_eq!(found.used, DiskUsage { bytes: 100, inodes: 1 });
        assert_eq!(found.capacity, DiskUsage { bytes: 4_096, inodes: 10 });
        assert_eq!(found.available, DiskUsage { bytes: 3_996, inodes: 9 });
        let device = of(&[(Unit::Bytes, [0, 1 << 30, 0])]).expect("a block device");
        assert_eq!((device.capacity.bytes, device.capacity.inodes), (1 << 30, 0));
    }

    #[test]
    fn an_answer_that_measures_nothing_is_none() {
        for usages in [
            &[][..],
            &[(Unit::Inodes, [1, 2, 1])],
            &[(Unit::Unknown, [1, 2, 1])],
            &[(Unit::Bytes, [-1, 2, 1])],
        ] {
            of(usages).expect_err("no measure");
        }
    }
}
