//! Collectives in a trace of a profiler: `trace_view.json` of torch_npu, `msprof_*.json` of msprof.
//!
//! An event of a collective has `data_type`, `alg_type` and `count` among its arguments; the events of its tasks have not.

use crate::profile::{
    TraceError, TraceEvent, collective_benchmark::parse_element_type, for_each_trace_event, prelude::*,
    recorded_collectives::CollectiveRecord,
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct CollectiveArguments {
    count: Option<Value>,
    data_type: Option<Value>,
    alg_type: Option<Value>,
}

pub(super) fn read_collectives(path: &Path) -> Result<Vec<CollectiveRecord>, TraceError> {
    let mut records = Vec::new();
    for_each_trace_event(path, &mut |event| {
        records.extend(record_of_event(event));
        Ok(())
    })?;
    Ok(records)
}

fn record_of_event(event: &TraceEvent<'_>) -> Option<CollectiveRecord> {
    let kernel = event.name.get(..=event.name.find("__")?)?;
    if event.ph != "X" || !KernelName::is_collective_name(kernel) {
        return None;
    }
    let arguments: CollectiveArguments = event.arguments();
    let (count, dtype) = (arguments.count?, arguments.data_type?);
    Some(CollectiveRecord {
        kernel: kernel.to_owned(),
        group: None,
        count: count.as_u64().or_else(|| count.as_str()?.trim().parse().ok()),
        dtype: dtype.as_str().and_then(parse_element_type),
        algorithm: arguments.alg_type.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        duration: event.duration().filter(|time| time.is_kernel_duration()),
        name: event.name.clone().into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Dtype;

    #[test]
    fn collectives_have_sizes_and_other_events_are_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace_view.json");
        let text = r#"[
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "HCCL"}},
            {"ph": "X", "name": "hcom_allReduce__586_0_1", "pid": 1, "tid": 0, "ts": "1.5", "dur": 79089.5202,
             "args": {"connection_id": 1, "data_type": "FP32", "alg_type": "MESH-RING", "count": 4097000}},
            {"ph": "X", "name": "hcom_allGather__097_1_1", "dur": "2.5",
             "args": {"data_type": "BFP16", "alg_type": "N/A", "count": "64"}},
            {"ph": "X", "name": "hcom_broadcast__097_2_1", "dur": 2, "args": {"data_type": "INVALID_TYPE", "count": -1}},
            {"ph": "X", "name": "Notify_Wait", "dur": 2, "args": {"notify_id": 3}},
            {"ph": "s", "name": "hcom_allReduce__586_0_1", "id": 4, "args": {}}
        ]"#;
        fs::write(&path, text).expect("written");
        let records = read_collectives(&path).expect("read");
        let found: Vec<_> = records
            .iter()
            .map(|record| {
                (&*record.kernel, record.count, record.dtype.clone(), record.duration.map(|time| time.0))
            })
            .collect();
        assert_eq!(
            found,
            [
                ("hcom_allReduce_", Some(4_097_000), Some(Dtype::Float), Some(79_089_520)),
                ("hcom_allGather_", Some(64), Some(Dtype::Bf16), Some(2_500)),
                ("hcom_broadcast_", None, None, Some(2_000)),
            ]
        );
        assert_eq!(records[0].algorithm, "MESH-RING");
        fs::write(&path, &text[..300]).expect("written");
        assert!(matches!(read_collectives(&path), Err(TraceError::Text { .. })));
    }
}
