//! What the volumes of claims use, under a kubelet's names.

use std::collections::BTreeSet;

use headwater_edged::runtime::FileSystemUsage;
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Opts, Registry};

use crate::usage::VolumesByPod;

/// A metric: its name, its help, and its value.
type VolumeMetric = (&'static str, &'static str, fn(&FileSystemUsage) -> u64);

const METRICS: [VolumeMetric; 6] = [
    ("capacity_bytes", "Capacity in bytes of the volume", |it| it.capacity.bytes),
    ("available_bytes", "Number of available bytes in the volume", |it| it.available.bytes),
    ("used_bytes", "Number of used bytes in the volume", |it| it.used.bytes),
    ("inodes", "Maximum number of inodes in the volume", |it| it.capacity.inodes),
    ("inodes_free", "Number of free inodes in the volume", |it| it.available.inodes),
    ("inodes_used", "Number of used inodes in the volume", |it| it.used.inodes),
];

/// The metrics of the claims of these pods. Pods that share a claim have one line.
pub(super) fn of_volumes(
    listed: &[Pod],
    volumes: &VolumesByPod,
) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let mut gauges = Vec::with_capacity(METRICS.len());
    for (name, help, value) in METRICS {
        let name = format!("kubelet_volume_stats_{name}");
        let gauge = GaugeVec::new(Opts::new(name, help), &["namespace", "persistentvolumeclaim"])?;
        registry.register(Box::new(gauge.clone()))?;
        gauges.push((gauge, value));
    }
    let mut seen = BTreeSet::new();
    for pod in listed {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_pod = pod.metadata.uid.as_deref().and_then(|uid| volumes.get(uid));
        for volume in of_pod.into_iter().flat_map(|volumes| volumes.iter()) {
            let Some(claim) = volume.claim.as_deref() else { continue };
            if !seen.insert((namespace, claim)) {
                continue;
            }
            for (gauge, value) in &gauges {
                #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                gauge.with_label_values(&[namespace, claim]).set(value(&volume.system) as f64);
            }
        }
    }
    Ok(registry.gather())
}
