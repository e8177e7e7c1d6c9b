//! What most tests use.

pub(crate) use crate::{
    context::{
        ADD, Context, DECODER_KERNELS, Files, HEADER, Json as _, LIFELIKE_RUN, Ran, SEARCH_PATH, STEADY_RUN,
        SWIGLU, Words, profile,
    },
    kill_resume::{count, killed_after, killed_when, kills, ledger, number, processes_in, tables, tables_of},
    plain_rows::{PlainRow, assert_rows_refused, planned},
    rehearsal::{rehearse, signal},
    requirements::{shared, vendor_python},
    runs::wait_for,
};
