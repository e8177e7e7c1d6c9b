//! Declarations in YAML with their positions: assets of the product, `database.yaml`, device profiles.

pub(crate) mod assets;
pub(crate) mod database_file;
pub(crate) mod device_profile;
pub(crate) mod locate;
pub(crate) mod yaml;

pub use assets::{Assets, AssetsError};
pub use database_file::DatabaseFile;
pub use device_profile::{DeviceProfile, Unit, Work};
pub use yaml::{SpecError, check_yaml};
