//! The ways of looking an operator up, one file for each.

mod attention;
mod collective;
mod composite;
mod compute;
mod decomposed;
mod dispatch;
mod elementwise;
mod lookup_engine;
mod moe;
mod recorded_case;

pub use lookup_engine::LookupEngine;
