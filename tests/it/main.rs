//! Tests of the whole program, in one binary: the real executable on real files.

mod bad_input;
mod check;
mod context;
mod databases;
mod ingest;
mod layers;
mod papers;
mod real_profiles;
mod rehearsal;
mod vendor;
