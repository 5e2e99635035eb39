//! How many pods a node has room for, which Events it sends, and its address: settings of `edge` and `edged`.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use headwater_edged::{EdgedConfig, EventLevel};
use headwater_settings::{Events, InvalidSetting};

use super::images::Images;
use super::pressure::Pressure;
use super::resources::Resources;

/// The room for pods: at least one, and at most as many as load tests have run on a node.
const PODS_MAX: RangeInclusive<u32> = 1..=10_000;

/// The bounds of a node's pods, as its pod worker takes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodBounds {
    /// The room for pods; `None`: that of the runtime.
    pub(crate) pods_max: Option<u32>,
    /// When the node lacks a resource.
    pub(crate) pressure: Pressure,
    /// What the machine keeps from its pods.
    pub(crate) resources: Resources,
    /// Which Events the node sends.
    pub(crate) events: Events,
    /// The node's address, and that of its pods; `None`: loopback.
    pub(crate) node_address: Option<IpAddr>,
    /// How their images are pulled, and when they are removed.
    pub(crate) images: Images,
    /// The folder of its static pods; `None`: it has none.
    pub(crate) static_pods: Option<PathBuf>,
}

impl PodBounds {
    /// Checks that each bound is in its range.
    ///
    /// # Errors
    /// The setting, its value, and the range.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        if let Some(pods_max) = self.pods_max {
            check("pods_max", pods_max, &PODS_MAX)?;
        }
        check_node_address(self.node_address)?;
        check_static_pods(self.static_pods.as_deref())?;
        self.pressure.check()?;
        self.images.check()?;
        self.resources.check()
    }

    /// Sets them in a pod worker's configuration.
    pub(crate) fn set(&self, config: &mut EdgedConfig) {
        if let Some(pods_max) = self.pods_max {
            config.settings.pods_max = pods_max;
        }
        if let Some(address) = self.node_address {
            config.node_address = address;
        }
        config.static_pods = self.static_pods.clone();
        self.images.set(config);
        self.resources.set(config);
        config.settings.events = match self.events {
            Events::None => EventLevel::None,
            Events::Warnings => EventLevel::Warnings,
            Events::All => EventLevel::All,
        };
        config.settings.pressure = self.pressure.settings();
    }
}

/// Checks that other machines can have the address for this node.
///
/// # Errors
/// It is the address of no machine, or of many.
pub(crate) fn check_node_address(address: Option<IpAddr>) -> Result<(), InvalidSetting> {
    match address {
        Some(address) if address.is_unspecified() || address.is_multicast() => {
            let what = format!("{address} is the address of no machine: set that of this node");
            Err(InvalidSetting::new("node_address", what))
        }
        _ => Ok(()),
    }
}

/// Checks that the folder of static pods is the same wherever the process starts.
///
/// # Errors
/// Its path is relative.
fn check_static_pods(path: Option<&Path>) -> Result<(), InvalidSetting> {
    match path.filter(|path| !path.is_absolute()) {
        Some(path) => {
            let what = format!("{} is relative: set the whole path of the folder", path.display());
            Err(InvalidSetting::new("static_pods", what))
        }
        None => Ok(()),
    }
}

pub(super) fn check<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<(), InvalidSetting> {
    if range.contains(&value) {
        return Ok(());
    }
    let what = format!("{value} is out of range: set {} to {}", range.start(), range.end());
    Err(InvalidSetting::new(key, what))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headwater_edged::{PressureSettings, RuntimeKind};

    use super::*;

    fn config(bounds: PodBounds) -> EdgedConfig {
        let node = "gw-7".parse().expect("a name");
        let mut config =
            EdgedConfig::new(node, "edge.sock".into(), "edged".into(), RuntimeKind::Hollow);
        bounds.set(&mut config);
        config
    }

    #[test]
    fn bounds_that_are_not_set_are_those_of_the_runtime_and_of_a_kubelet() {
        let unset = config(PodBounds::default());
        assert_eq!(unset.settings.pods_max, 10_000, "a hollow node has room for many");
        assert_eq!(unset.settings.pressure, PressureSettings::default());
        let pressure = Pressure { memory_available_mib: 3, ..Pressure::default() };
        assert_eq!(unset.node_address, IpAddr::from([127, 0, 0, 1]));
        let node_address = Some(IpAddr::from([192, 0, 2, 7]));
        let events = Events::All;
        let set = config(PodBounds {
            pods_max: Some(7),
            pressure,
            events,
            node_address,
            ..PodBounds::default()
        });
        assert_eq!(set.node_address, IpAddr::from([192, 0, 2, 7]));
        assert_eq!(unset.settings.events, EventLevel::Warnings);
        assert_eq!(set.settings.events, EventLevel::All);
        assert_eq!(set.settings.pods_max, 7);
        assert_eq!(set.settings.pressure.memory_available_bytes, 3 << 20);
    }

    #[test]
    fn a_bound_out_of_its_range_is_named_with_the_range() {
        PodBounds::default().check().expect("the defaults are in range");
        let with = |change: &dyn Fn(&mut PodBounds)| {
            let mut bounds = PodBounds::default();
            change(&mut bounds);
            let error = bounds.check().expect_err("out of range");
            (error.key, error.reason)
        };
        for (key, range, (found, reason)) in [
            ("pods_max", "0 is out of range: set 1 to 10000", with(&|b| b.pods_max = Some(0))),
            ("pods_max", "10001", with(&|b| b.pods_max = Some(10_001))),
            (
                "pressure.memory_available_mib",
                "set 0 to 1048576",
                with(&|b| b.pressure.memory_available_mib = 1 << 21),
            ),
            (
                "pressure.disk_available_percent",
                "100 is out of range: set 0 to 99",
                with(&|b| b.pressure.disk_available_percent = 100),
            ),
            (
                "pressure.files_free_percent",
                "0 to 99",
                with(&|b| b.pressure.files_free_percent = 101),
            ),
            (
                "pressure.pids_available_percent",
                "0 to 99",
                with(&|b| b.pressure.pids_available_percent = 255),
            ),
            (
                "node_address",
                "0.0.0.0 is the address of no machine",
                with(&|b| b.node_address = Some(IpAddr::from([0, 0, 0, 0]))),
            ),
            ("static_pods", "pods is relative", with(&|b| b.static_pods = Some("pods".into()))),
            ("pressure.hold", "at most 24h", with(&|b| b.pressure.hold = Duration::from_hours(25))),
        ] {
            assert_eq!(found, key);
            assert!(reason.contains(range), "{key}: {reason}");
        }
    }
}
