//! What a machine keeps from its pods: settings of `edge` and `edged`.

use std::ops::RangeInclusive;

use headwater_edged::container::requests::Amounts;
use headwater_edged::{CpuPolicy, EdgedConfig};
use headwater_settings::InvalidSetting;
use serde::{Deserialize, Serialize};

use super::pods::check;

/// Thousandths of a processor: 1024 processors are more than a gateway has.
const CPU_MILLI: RangeInclusive<u64> = 0..=1 << 20;

/// MiB: 1 TiB of memory, or of a disk, is more than a gateway keeps for itself.
const MIB: RangeInclusive<u64> = 0..=1 << 20;

/// Process ids: the most that Linux has.
const PIDS: RangeInclusive<u64> = 0..=1 << 22;

/// The `[resources]` table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resources {
    /// Thousandths of a processor that pods do not get.
    pub(crate) reserved_cpu_milli: u64,
    /// Memory that pods do not get, in MiB.
    pub(crate) reserved_memory_mib: u64,
    /// Room on the disk that pods do not get, in MiB.
    pub(crate) reserved_storage_mib: u64,
    /// Process ids of each pod; 0: those of the machine.
    pub(crate) pod_pids_max: u64,
    /// Which processors containers run on.
    pub(crate) cpu_policy: Policy,
}

/// See [`CpuPolicy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// All of them on all.
    #[default]
    None,
    /// Whole processors of guaranteed pods are their own.
    Static,
}

impl Resources {
    /// Checks the amounts.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let Self {
            reserved_cpu_milli,
            reserved_memory_mib,
            reserved_storage_mib,
            pod_pids_max,
            cpu_policy,
        } = *self;
        if cpu_policy == Policy::Static && reserved_cpu_milli == 0 {
            let what = "the static policy needs a processor that no pod has for itself: set \
                        resources.reserved_cpu_milli, for example to 500";
            return Err(InvalidSetting::new("resources.cpu_policy", what));
        }
        check("resources.reserved_cpu_milli", reserved_cpu_milli, &CPU_MILLI)?;
        check("resources.reserved_memory_mib", reserved_memory_mib, &MIB)?;
        check("resources.reserved_storage_mib", reserved_storage_mib, &MIB)?;
        check("resources.pod_pids_max", pod_pids_max, &PIDS)
    }

    /// Sets them in a pod worker's configuration.
    pub(crate) fn set(&self, config: &mut EdgedConfig) {
        config.settings.reserved = Amounts {
            cpu_milli: self.reserved_cpu_milli,
            memory_bytes: self.reserved_memory_mib << 20,
            storage_bytes: self.reserved_storage_mib << 20,
        };
        config.settings.pod_pids_max = Some(self.pod_pids_max).filter(|most| *most > 0);
        config.settings.cpu_policy = match self.cpu_policy {
            Policy::None => CpuPolicy::None,
            Policy::Static => CpuPolicy::Static,
        };
    }
}

#[cfg(test)]
mod tests {
    use headwater_edged::RuntimeKind;

    use super::*;

    #[test]
    fn a_pod_worker_has_what_the_machine_keeps_and_an_amount_out_of_range_is_named() {
        let (node, path) = ("gw-1".parse().expect("a name"), || std::path::PathBuf::from("x"));
        let mut config = EdgedConfig::new(node, path(), path(), RuntimeKind::Hollow);
        let kept = Resources {
            reserved_cpu_milli: 250,
            reserved_memory_mib: 2,
            reserved_storage_mib: 3,
            pod_pids_max: 64,
            cpu_policy: Policy::Static,
        };
        kept.check().expect("in range");
        kept.set(&mut config);
        let amounts = Amounts { cpu_milli: 250, memory_bytes: 2 << 20, storage_bytes: 3 << 20 };
        assert_eq!(config.settings.reserved, amounts);
        assert_eq!(config.settings.pod_pids_max, Some(64));
        assert_eq!(config.settings.cpu_policy, CpuPolicy::Static);
        let wrong = Resources { reserved_cpu_milli: 0, ..kept };
        assert_eq!(wrong.check().expect_err("no processor").key, "resources.cpu_policy");
        let wrong = Resources { reserved_memory_mib: (1 << 20) + 1, ..Resources::default() };
        let wrong = wrong.check().expect_err("too much");
        assert_eq!(wrong.key, "resources.reserved_memory_mib");
        assert!(wrong.reason.contains("set 0 to 1048576"), "{}", wrong.reason);
    }
}
