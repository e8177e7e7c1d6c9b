//! The program: everything is in the library.

use std::process::ExitCode;

/// A quarter of the CPU time of `plan` and `db check` of 100,000 cases was spent in the allocator of glibc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(npubench::cli::main())
}
