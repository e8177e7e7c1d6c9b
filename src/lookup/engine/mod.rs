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

pub use lookup_engine::LookupEngine;
