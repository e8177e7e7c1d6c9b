//! The network between devices that a command uses.

use crate::base::command_error::CommandError;
use crate::{
    base::assets::AssetFiles,
    kernel::{collective::CommNetwork, device::DeviceProfile},
};

/// Returns the network of a device profile. Fails if the profile declares none.
pub(crate) fn network_of_profile(assets: &AssetFiles, name: &str) -> Result<CommNetwork, CommandError> {
    DeviceProfile::load(assets, name)?.comm.ok_or_else(|| {
        CommandError::bad_input(
            format!("the device profile `{name}` declares no network"),
            "add its key `comm` in a profile of your own (`--assets`); docs/device-profiles.md describes it",
        )
    })
}
