//! Declarations in YAML with their positions: assets of the product, `database.yaml`, device profiles; and schemas of
//! operators as PyTorch prints them.
//!
//! Layer 1: imports `domain` and `files`.

pub(crate) mod assets;
mod comm_network;
pub(crate) mod database_file;
pub(crate) mod device_profile;
mod ini_file;
mod operator_schema;
pub(crate) mod yaml;

pub(crate) use assets::AssetFile;
pub use assets::{AssetError, AssetFiles};
pub(crate) use comm_network::{CommNetwork, CommTier, LinkKind};
pub use database_file::DatabaseFile;
pub use device_profile::{ComputeUnit, DeviceProfile, KernelWork};
pub(crate) use ini_file::IniFile;
pub use operator_schema::OperatorSchema;
pub(crate) use operator_schema::{SchemaArgument, SchemaType};
pub use yaml::YamlError;
pub(crate) use yaml::{check_yaml, find_value, parse as parse_yaml};
