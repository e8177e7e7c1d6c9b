//! What a fault plan states of the whole host: its name and clocks, its software, the container in which the programs run, and
//! its defects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name and clocks of the rehearsal host, by which the nodes of a sweep and the devices of a node differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedHost {
    pub(crate) name: Option<String>,
    /// Simulated seconds by which the clock of its devices is ahead of the clock of the system.
    pub(crate) clock_ahead: f64,
    /// Microseconds by which the clocks of single devices are ahead of the other clocks, by the host's numbers of the
    /// devices.
    pub(crate) device_clocks: BTreeMap<u32, f64>,
}

parameters! {
    /// Versions of the stand-ins. A change between two runs is an upgrade of the host.
    pub(crate) StandInSoftware {
        cann: String = "0+rehearsal".to_owned(),
        driver: String = "0+rehearsal".to_owned(),
        firmware: String = "0+rehearsal".to_owned(),
        torch: String = "0+rehearsal".to_owned(),
        torch_npu: String = "0+rehearsal".to_owned(),
        vllm_ascend: Option<String> = None,
    }
}

/// A container that sees a part of the host's devices. npu-smi shows them by the numbers of the host; torch counts them
/// from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedContainer {
    pub(crate) visible: Vec<u32>,
    pub(crate) chip_map: ChipMapAnswer,
    /// Devices that torch counts, in its order; by default the visible ones, ascending.
    pub(crate) torch_order: Vec<u32>,
    pub(crate) process_ids: ShownProcessIds,
}

impl RehearsedContainer {
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
}

words! {
    pub(crate) ChipMapAnswer { Container, Host, Refused }
    pub(crate) ShownProcessIds { Container, Host }
    pub(crate) HostDefect {
        OtherChip,
        SwappedDevices,
        MsprofExitCode,
        LostHead,
        UnsettledClock,
        SmallCache,
        UnequalDevices,
        ProfilerOverhead,
        SlowerThanProduction,
        UnknownErrorText,
        OtherKernelName,
        SharedRendezvousPort,
        SlowWhileQueried,
    }
}
