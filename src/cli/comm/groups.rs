//! `npubench comm groups`: lists the groups of devices that span each tier of a network.

use super::super::prelude::*;
use crate::{
    measure::collective::{devices_for, reachable_groups, tier_of_group},
    show::collectives::{GroupRecord, groups_table},
};

/// Lists the groups of devices that span each tier of a network
///
/// For each tier and number of ranks, the devices of the preferred group and the number of groups with the same layout. The
/// network is that of a device profile; see docs/device-profiles.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench comm groups --device ATLAS_800_A3_752T_128G_DIE --devices 0-15")]
pub(in crate::cli) struct GroupsOptions {
    /// Device profile
    #[arg(long, value_name = "NAME", default_value = DeviceProfile::default_name())]
    device: String,
    /// Devices of the groups, such as `0-3,8`
    #[arg(long, value_name = "LIST", value_parser = parse_devices, default_value = "0-15")]
    devices: DeviceList,
    /// Only groups of these numbers of ranks, separated by commas; an impossible one is an error
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Only groups of this tier; 0 is the outermost dimension of the grid
    #[arg(long, value_name = "N")]
    tier: Option<usize>,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &GroupsOptions) -> Result<ExitStatus, CommandError> {
    let GroupsOptions { devices: DeviceList(devices), ranks, tier, .. } = options;
    let network = network_of_profile(&options.common.assets.load()?, &options.device)?;
    let grid = &network.grid;
    let reachable = reachable_groups(grid, devices)?;
    if let Some(tier) = *tier {
        for &ranks in ranks {
            devices_for(grid, devices, ranks, tier)?;
        }
    }
    let mut choices = Vec::new();
    for size in reachable {
        let is_chosen = tier.is_none_or(|tier| tier == size.1);
        if is_chosen && (ranks.is_empty() || ranks.contains(&size.0)) {
            choices.push((size, devices_for(grid, devices, size.0, size.1)?));
        }
    }
    if choices.is_empty() {
        return Err(CommandError::bad_input(
            format!("no group of the {} devices has such a size or tier", devices.len()),
            "give other devices with `--devices`, or list all groups without `--ranks` and `--tier`",
        ));
    }
    options.common.output.emit(choices.iter().map(|choice| GroupRecord::new(&network, choice)), |width| {
        groups_table(&network, &choices, width)
    });
    if devices.len() > 1 {
        print_note(&format!(
            "all {} devices together span tier {}",
            devices.len(),
            tier_of_group(grid, devices)?
        ));
    }
    Ok(ExitStatus::Done)
}
