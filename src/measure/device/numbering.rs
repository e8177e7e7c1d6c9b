//! Relation of the physical to the logical numbers of devices, and its comparison with the number of devices that torch
//! counts.

use std::collections::BTreeMap;

use super::{DeviceError, HostDevices};
use crate::{
    kernel::LogicalDeviceId,
    measure::device::npu_smi::{LogicalIdSource, NpuSmiInfo},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceNumbering {
    by_physical_id: BTreeMap<u32, LogicalDeviceId>,
    /// True if torch must count as many devices as are listed; else it may count more.
    pub(crate) is_exact: bool,
}

impl DeviceNumbering {
    /// Returns the numbers of the listed devices.
    ///
    /// The numbers of `npu-smi info -m` are the driver's numbers, which stay valid if torch counts further devices that
    /// `npu-smi` does not list. Positions in the table are valid only if both count the same devices.
    pub(crate) fn of_listed(info: &NpuSmiInfo) -> Self {
        let numbers = info.chips.iter().map(|chip| (chip.physical_id, chip.logical_id));
        Self {
            by_physical_id: numbers.collect(),
            is_exact: info.logical_ids == LogicalIdSource::TablePosition,
        }
    }

    /// Returns true if the logical numbers are not 0 to n-1, so that the number of torch's devices decides what they
    /// mean.
    pub(crate) fn has_gaps(&self) -> bool {
        let mut numbers: Vec<u32> = self.by_physical_id.values().map(|id| id.0).collect();
        numbers.sort_unstable();
        !numbers.iter().copied().eq(0..self.listed())
    }

    /// Resolves numbers with gaps by the number of devices that torch counts: if it is greater than all of them, they
    /// are torch's; if it is the number of listed devices, torch numbers these in the order of their logic ids.
    pub(crate) fn resolve_gaps(self, counted: u32) -> Result<Self, DeviceError> {
        if self.mismatch(counted).is_none() {
            return Ok(self);
        }
        if counted != self.listed() {
            return Err(DeviceError::Miscounted { counted, listed: self.listed() });
        }
        let mut order: Vec<(LogicalDeviceId, u32)> =
            self.by_physical_id.iter().map(|(physical, logical)| (*logical, *physical)).collect();
        order.sort_unstable();
        let numbered =
            order.into_iter().zip(0..).map(|((_, physical), rank)| (physical, LogicalDeviceId(rank)));
        Ok(Self { by_physical_id: numbered.collect(), is_exact: true })
    }

    pub(crate) fn listed(&self) -> u32 {
        u32::try_from(self.by_physical_id.len()).unwrap_or(u32::MAX)
    }

    /// Returns the logical number of a device. A device that is not listed (of a test without `npu-smi`) has the same
    /// number.
    pub(crate) fn logical_id(&self, physical_id: u32) -> LogicalDeviceId {
        self.by_physical_id.get(&physical_id).copied().unwrap_or(LogicalDeviceId(physical_id))
    }

    pub(crate) fn mismatch(&self, counted: u32) -> Option<String> {
        let listed = self.listed();
        let greatest = self.by_physical_id.values().max().map_or(0, |id| id.0);
        let is_valid =
            if self.is_exact { counted == listed } else { counted >= listed && counted > greatest };
        (listed > 0 && !is_valid).then(|| {
            format!("torch counts {counted} devices, `npu-smi` lists {listed}, whose greatest logic id is {greatest}")
        })
    }

    pub(crate) fn remark(&self, host: &HostDevices) -> Option<String> {
        let differs = self.by_physical_id.iter().any(|(physical, logical)| *physical != logical.0);
        let pairs = self.by_physical_id.iter().map(|(physical, logical)| format!("{physical} is {logical}"));
        let pairs = pairs.collect::<Vec<_>>().join(", ");
        match &host.without_chip_map {
            Some(reason) => Some(format!(
                "devices are numbered for torch by their order in `npu-smi info` ({pairs}), because \
                 `npu-smi info -m` has no numbers: {reason}"
            )),
            None => differs.then(|| format!("devices are numbered for torch by `npu-smi info -m`: {pairs}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(numbers: &[(u32, u32)], is_exact: bool) -> DeviceNumbering {
        let numbers = numbers.iter().map(|&(physical, logical)| (physical, LogicalDeviceId(logical)));
        DeviceNumbering { by_physical_id: numbers.collect(), is_exact }
    }

    #[test]
    fn counted_devices_contradict_a_numbering_that_they_cannot_have() {
        let container = numbering(&[(3, 0), (4, 1), (5, 2)], false);
        assert!(!container.has_gaps());
        assert_eq!(container.mismatch(3), None);
        // A chip that `npu-smi` lost is still counted by the runtime.
        assert_eq!(container.mismatch(4), None);
        assert!(container.mismatch(2).is_some_and(|text| text.contains("torch counts 2 devices")));
        let by_position = numbering(&[(3, 0), (4, 1), (5, 2)], true);
        assert_eq!(by_position.mismatch(3), None);
        assert!(by_position.mismatch(4).is_some() && by_position.mismatch(2).is_some());
        assert_eq!(DeviceNumbering::default().mismatch(8), None);
    }

    #[test]
    fn the_number_of_counted_devices_decides_what_gaps_mean() {
        // Chip 2 of 4 is lost: torch keeps the driver's numbers.
        let lost = numbering(&[(0, 0), (1, 1), (3, 3)], false);
        assert!(lost.has_gaps());
        assert_eq!(lost.clone().resolve_gaps(4).expect("valid"), lost);
        // A container whose tool shows the host's numbers: torch counts from 0.
        let container = numbering(&[(1, 3), (5, 4), (9, 7)], false).resolve_gaps(3).expect("valid");
        assert_eq!(container, numbering(&[(1, 0), (5, 1), (9, 2)], true));
        let error = numbering(&[(1, 3), (5, 4), (9, 7)], false).resolve_gaps(5).expect_err("ambiguous");
        assert!(matches!(error, DeviceError::Miscounted { counted: 5, listed: 3 }), "{error}");
    }

    #[test]
    fn devices_without_a_listing_keep_their_numbers() {
        assert_eq!(DeviceNumbering::default().logical_id(7), LogicalDeviceId(7));
        assert_eq!(numbering(&[(7, 2)], false).logical_id(7), LogicalDeviceId(2));
    }
}
