//! Sweep that measures the rows of a collective that a query lacks.

use std::path::Path;

use super::{answer::MissReason, collective_message::message_of_query, query::OpQuery};
use crate::kernel::{CollectiveKind, CommandSizes, DataKind, Dtype, KernelName, PartWeights, SweepCommand};

/// Returns the command for a database; `None` for a collective that no sweep has, and without the number of ranks.
pub(crate) fn sweep_of_query<'q>(
    query: &'q OpQuery,
    kernel: &KernelName,
    reason: Option<&MissReason>,
    database: &'q Path,
    data_kind: DataKind,
) -> Option<SweepCommand<'q>> {
    let collective = CollectiveKind::of_kernel(kernel)?;
    let is_group = |ranks: &u64| *ranks == 2 || *ranks > 2 && collective != CollectiveKind::SendReceive;
    let ranks = query.ranks.filter(is_group)?;
    // A collective has one input; others are those of a composite.
    let is_operator = query.op != kernel.as_str();
    let message = message_of_query(Some(kernel), query, is_operator).ok();
    let message = message.filter(|_| query.inputs.len() == 1).map(|message| message.bytes);
    // Rows of the default type answer for types that no sweep has.
    let dtype = query.inputs.first().and_then(|input| input.dtype.as_ref());
    let dtype = dtype.filter(|dtype| dtype.is_of_messages());
    let element = dtype.unwrap_or(&Dtype::Bf16).bytes()?;
    let granularity = collective.size_granularity(element, ranks);
    let sizes = match (reason, message) {
        (Some(MissReason::MessageOutOfRange { bytes, .. }), _) => CommandSizes::around(*bytes, granularity),
        (_, Some(bytes)) => CommandSizes::ladder_to(bytes, granularity)?,
        (_, None) => CommandSizes::default_of(granularity),
    };
    Some(SweepCommand {
        database,
        data_kind,
        collective,
        ranks,
        tier: query.tier,
        dtype,
        environment: "",
        parts: &PartWeights::Equal,
        sizes,
        measures_again: false,
    })
}
