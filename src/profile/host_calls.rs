//! Calls of fused attention recorded on the host, and their kernels.
//!
//! The host's shapes show more than the kernel's, such as the view of a paged cache. Kernels and calls are matched by
//! their shapes, never by their order: calls are missing for replayed graphs, and several streams mix their order.
//! Lengths, layout and mask mode are in no record, so that they stay unknown.

use super::{RecordGroup, operator_details, prelude::*};
use crate::kernel::{AttentionCall, AttentionCase, Dims, SHAPE_LABELS, best_shape_matches};

/// Positions of a call's arguments, and the slot of each. Names with `_V2` belong to the second form of the API.
const ARGUMENTS: [usize; 24] =
    [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26];
const SLOTS: [usize; 24] =
    [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 17, 18, 19, 20, 14, 15, 16, 21, 22, 24, 25, 26];
const ARGUMENTS_V2: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 9];
const SLOTS_V2: [usize; 8] = [0, 1, 2, 24, 25, 3, 4, 14];

/// Reads the distinct calls of the profile of a kernel table: from `operator_details.csv` beside it, or from the database
/// itself. Empty if the host was not recorded.
pub(super) fn host_calls(table: &Path) -> Result<BTreeSet<AttentionCall>, ProfileError> {
    let mut calls = BTreeSet::new();
    let add = |name: &str, shapes: &str| calls.extend(attention_call(name, shapes));
    let file = table.with_file_name("operator_details.csv");
    if sqlite::is_database(table)? {
        sqlite::for_each_operator(table, add)?;
    } else if file.is_file() {
        operator_details::for_each_operator(&file, add)?;
    }
    Ok(calls)
}

/// Parses a call from an operator's name and the shapes of its arguments, such as `128,4,128;\n12307,128,128;\n…`
/// with an empty shape for an argument that is not a tensor.
fn attention_call(name: &str, shapes: &str) -> Option<AttentionCall> {
    let name = name.to_ascii_lowercase();
    if !name.contains("npu_fused_infer_attention_score") {
        return None;
    }
    let arguments: Vec<&str> = shapes.split(';').map(str::trim).collect();
    let (positions, slots): (&[usize], &[usize]) =
        if name.contains("_v2") { (&ARGUMENTS_V2, &SLOTS_V2) } else { (&ARGUMENTS, &SLOTS) };
    let mut call = AttentionCall::default();
    for (&argument, &slot) in positions.iter().zip(slots) {
        let dims = arguments.get(argument).filter(|text| !text.is_empty());
        let dims: Option<Vec<u64>> =
            dims.and_then(|text| text.split(',').map(|dim| dim.trim().parse().ok()).collect());
        call.set_shape(slot, dims.unwrap_or_default());
    }
    call.is_complete().then_some(call)
}

/// Sets the attributes of a group of the kernel that follow from host calls and shapes, and its completeness.
pub(super) fn describe_attention(group: &mut RecordGroup, calls: &BTreeSet<AttentionCall>) {
    let kernel = AttentionCase::new(&group.case);
    let shape = |(column, slot)| Some((column, Dims(kernel.dims(slot)?).to_string()));
    let mut cells: Vec<(&str, String)> = SHAPE_LABELS.into_iter().filter_map(shape).collect();
    match best_shape_matches(&group.case, calls, |call| call).as_slice() {
        [] => {}
        [call] => {
            cells.push(("Runtime operator_input_shapes_raw", call.shapes_cell(&group.case)));
            cells.push(("Runtime source_profile", "host calls by shapes".to_owned()));
        }
        several => {
            cells.push(("Runtime source_profile", format!("{} host calls fit the shapes", several.len())));
        }
    }
    cells.push(("Runtime metadata_completeness", kernel.completeness()));
    cells.iter().for_each(|(column, value)| group.set_attribute(column, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::AttentionSlot;

    #[test]
    fn host_call_arguments_map_to_kernel_slots() {
        let mut arguments = vec![String::new(); 41];
        for (at, shape) in
            [(0, "128,4,128"), (1, "99,128,1,128"), (2, "99,128,1,128"), (4, "2048,2048"), (18, "128,64")]
        {
            arguments[at] = shape.to_owned();
        }
        let call =
            attention_call("npu::npu_fused_infer_attention_score", &arguments.join(";\r\n")).expect("a call");
        assert_eq!(call.dims(AttentionSlot::Mask), Some([2048, 2048].as_slice()));
        assert_eq!(call.dims(AttentionSlot::BlockTable), Some([128, 64].as_slice()));
        assert_eq!(call.dims(AttentionSlot::QueryRope), None);
        let v2 = "4,16,1,512;\n9,1,128,512;\n9,1,128,512;\n4,16,1,64;\n9,1,128,64;\n;\n;\n;\n;\n4,9;\n";
        let call = attention_call("npu::npu_fused_infer_attention_score_v2", v2).expect("a call");
        assert_eq!(call.dims(AttentionSlot::BlockTable), Some([4, 9].as_slice()));
        assert_eq!(call.dims(AttentionSlot::KeyRope), Some([9, 1, 128, 64].as_slice()));
        assert_eq!(attention_call("aten::mm", "4,4;\n4,4"), None);
        assert_eq!(
            attention_call("npu_fused_infer_attention_score", ";\n;\n"),
            None,
            "shapes were not recorded"
        );
    }
}
