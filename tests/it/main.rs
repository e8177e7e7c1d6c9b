//! Tests of the whole program, in one binary: the real executable on real files.

mod attention;
mod bad_input;
mod catalogue_attention;
mod catalogue_elementwise;
mod catalogue_matmul;
mod check;
mod context;
mod databases;
mod faults;
mod fuzz;
mod grid;
mod ingest;
mod layers;
mod models;
mod names;
mod night;
mod night_faults;
mod papers;
mod plan;
mod real_profiles;
mod rehearsal;
mod rehearsal_faults;
mod sameness;
mod variants;
mod vendor;
mod vendor_check;
