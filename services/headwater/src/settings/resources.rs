//! What a machine keeps from its pods: settings of `edge` and `edged`.

use std::ops::RangeInclusive;

use headwater_edged::EdgedConfig;
use headwater_edged::container::requests::Amounts;
use headwater_settings::InvalidSetting;
use serde::{Deserialize, Serialize};

use super::pods::check;

/// Thousandths of a processor: 1024 processors are more than a gateway has.
const CPU_MILLI: RangeInclusive<u64> = 0..=1 << 20;

/// MiB: 1 TiB of memory, or of a disk, is more than a gateway keeps for itself.
const MIB: RangeInclusive<u64> = 0..=1 << 20;

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
}

impl Resources {
    /// Checks the amounts.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let Self { reserved_cpu_milli, reserved_memory_mib, reserved_storage_mib } = *self;
        check("resources.reserved_cpu_milli", reserved_cpu_milli, &CPU_MILLI)?;
        check("resources.reserved_memory_mib", reserved_memory_mib, &MIB)?;
        check("resources.reserved_storage_mib", reserved_storage_mib, &MIB)
    }

    /// Sets them in a pod worker's configuration.
    pub(crate) fn set(&self, config: &mut EdgedConfig) {
        config.settings.reserved = Amounts {
            cpu_milli: self.reserved_cpu_milli,
            memory_bytes: self.reserved_memory_mib << 20,
            storage_bytes: self.reserved_storage_mib << 20,
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
            ..Resources::default()
        };
        kept.check().expect("in range");
        kept.set(&mut config);
        let amounts = Amounts { cpu_milli: 250, memory_bytes: 2 << 20, storage_bytes: 3 << 20 };
        assert_eq!(config.settings.reserved, amounts);
        let wrong = Resources { reserved_memory_mib: (1 << 20) + 1, ..Resources::default() };
        let wrong = wrong.check().expect_err("too much");
        assert_eq!(wrong.key, "resources.reserved_memory_mib");
        assert!(wrong.reason.contains("set 0 to 1048576"), "{}", wrong.reason);
    }
}
