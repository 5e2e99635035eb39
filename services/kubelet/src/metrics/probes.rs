//! `/metrics/probes`: the results of probes.

use std::collections::BTreeMap;

use headwater_edged::ProbeTotal;
use http::Response;
use k8s_openapi::api::core::v1::Pod;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts, Registry};

use super::response;
use crate::response::Body;

/// `/metrics/probes`.
pub(crate) fn of_probes(totals: &[ProbeTotal], listed: &[Pod]) -> Response<Body> {
    response(families(totals, listed))
}

fn families(totals: &[ProbeTotal], listed: &[Pod]) -> prometheus::Result<Vec<MetricFamily>> {
    let by_uid: BTreeMap<&str, &Pod> =
        listed.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect();
    let results = IntCounterVec::new(
        Opts::new(
            "prober_probe_total",
            "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        ),
        &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
    )?;
    for total in totals {
        let Some(pod) = by_uid.get(total.pod.as_str()) else { continue };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for (result, count) in [("successful", total.successes), ("failed", total.failures)] {
            let labels =
                [total.kind, result, &total.container, name, namespace, total.pod.as_str()];
            results.with_label_values(&labels).inc_by(count);
        }
    }
    let registry = Registry::new();
    registry.register(Box::new(results))?;
    Ok(registry.gather())
}
