//! Tests of the whole program, in one binary: the real executable on real files.

mod bad_input;
mod sameness;
mod attention;
mod check;
mod context;
mod databases;
mod fuzz;
mod ingest;
mod layers;
mod names;
mod papers;
mod real_profiles;
mod rehearsal;
mod variants;
mod vendor;
