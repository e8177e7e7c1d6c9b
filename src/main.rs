//! The program: everything is in the library.

use std::process::ExitCode;

/// Half the time of commands on large databases is allocation. This one returns the memory of threads that have parsed a collection.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(npubench::cli::main())
}
