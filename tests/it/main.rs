//! Tests of the whole program, in one binary: the real executable on real files.

mod bad_input;
mod context;
mod ingest;
mod layers;
mod papers;
mod real_profiles;
mod rehearsal;
mod vendor;
