//! Tests of the whole program, in one binary: the real executable on real files.

mod attention;
mod audit;
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
mod grid_check;
mod ingest;
mod layers;
mod models;
mod names;
mod papers;
mod real_profiles;
mod rehearsal;
mod sameness;
mod variants;
mod vendor;
mod vendor_check;
