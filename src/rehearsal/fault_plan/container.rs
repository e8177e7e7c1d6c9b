//! A container in which the programs of the rehearsal host run: the devices that it sees and how they are numbered.

use serde::{Deserialize, Serialize};

use crate::kernel::LogicalDeviceId;

/// A container that sees a part of the host's devices. npu-smi shows them by the numbers of the host; torch counts them
/// from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedContainer {
    /// Visible devices by the numbers of the host, ascending.
    pub(crate) visible: Vec<u32>,
    /// Answer to `npu-smi info -m`.
    pub(crate) chip_map: ChipMapAnswer,
    /// Devices that torch counts, in its order; by default the visible ones, ascending.
    pub(crate) torch_order: Vec<u32>,
    /// Process ids in the table of `npu-smi info`.
    pub(crate) process_ids: ShownProcessIds,
}

/// Answer to `npu-smi info -m` inside a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChipMapAnswer {
    /// Logic ids from 0.
    #[default]
    Container,
    /// The logic ids of the host.
    Host,
    /// The command is refused.
    Refused,
}

/// Process ids in the table of `npu-smi info` inside a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShownProcessIds {
    /// Ids of the host, and those of the container in a column of their own, as newer drivers.
    #[default]
    Container,
    /// Ids of the host alone.
    Host,
}

impl RehearsedContainer {
    /// Returns the first problem and its key; `devices` is the number of the host's devices.
    pub(super) fn problem(&self, devices: u32) -> Option<(&'static str, String)> {
        let is_sorted = self.visible.windows(2).all(|pair| pair[0] < pair[1]);
        if self.visible.is_empty() || !is_sorted || self.visible.iter().any(|device| *device >= devices) {
            let last = devices.saturating_sub(1);
            let problem = format!("expected devices of the host, 0 to {last}, in ascending order");
            return Some(("visible", problem));
        }
        let is_repeated = |place: usize| self.torch_order[..place].contains(&self.torch_order[place]);
        let is_wrong = |place: usize| self.torch_order[place] >= devices || is_repeated(place);
        if (0..self.torch_order.len()).any(is_wrong) {
            return Some(("torch_order", "expected devices of the host, each once".to_owned()));
        }
        None
    }

    /// Returns the devices that torch counts, in its order.
    fn counted(&self) -> &[u32] {
        if self.torch_order.is_empty() { &self.visible } else { &self.torch_order }
    }

    /// Returns the number of devices that torch counts.
    pub(crate) fn device_count(&self) -> u32 {
        u32::try_from(self.counted().len()).unwrap_or(u32::MAX)
    }

    /// Returns the device that torch counts as `device`; `None` beyond the last one.
    pub(crate) fn physical_id(&self, device: LogicalDeviceId) -> Option<u32> {
        self.counted().get(device.0 as usize).copied()
    }

    /// Returns the logic id of a visible device in the answer to `npu-smi info -m`.
    pub(crate) fn shown_logic_id(&self, physical_id: u32) -> Option<u32> {
        match self.chip_map {
            ChipMapAnswer::Container => {
                let place = self.visible.iter().position(|visible| *visible == physical_id)?;
                u32::try_from(place).ok()
            }
            ChipMapAnswer::Host => Some(physical_id),
            ChipMapAnswer::Refused => None,
        }
    }
}
