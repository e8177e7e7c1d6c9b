use proptest::prelude::*;

use super::*;

const A2: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 97.5        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 12          0    / 0          3379 / 65536         |
+===========================+===============+====================================================+
| 2     910B3               | Warning       | 93.0        -                 0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          59891/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
| 2       0                 | 166929        |                          | 56087                   |
| 2       0                 | 166930        | /usr/local/pyth          | 117                     |
+===========================+===============+====================================================+
";

const A3: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 5     Ascend910           | OK            | 163.6       30                0    / 0             |
| 0     10                  | 0000:89:00.0  | 0           0    / 0          3180 / 65536         |
+------------------------------------------------------------------------------------------------+
| 5     Ascend910           | OK            | -           31                0    / 0             |
| 1     11                  | 0000:8B:00.0  | 0           0    / 0          2896 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 5       0                 | 3325989       | python                   | 50128                   |
| 5       1                 | 3328327       | python                   | 132                     |
+===========================+===============+====================================================+
";

const WIDE: &str = "\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     910B4               | OK            | 82.6                 32                      0    / 0                |
| 0                         | 0000:C1:00.0  | 0                    0    / 0                2871 / 32768            |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0       0                 | 485946        | pytest             | 5175                  | 17                      |
+===========================+===============+======================================================================+
";

const ASCEND_950: &str = "\
+-------------------------------------------------------------------------------------------------+
| npu-smi 25.7.rc1                                 Version: 25.7.rc1                              |
+--------+------------------+---------------+-----------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 0      | Ascend950PR      | OK            | 187.1       46                0     / 0             |
|        |                  | NA            | 7           0    / 0          6620  / 131072        |
+========+==================+===============+=====================================================+
| 3      | Ascend950PR      | Alarm         | 197.9       48                0     / 0             |
|        |                  | 0000:11:00.0  | 0           0    / 0          6056  / 131072        |
+========+==================+===============+=====================================================+
+----------------+---------------+--------------------------+-------------------------------------+
| NPU ID         | Process id    | Process name             | Process memory(MB)                  |
+================+===============+==========================+=====================================+
| 0              | 2066378       | pytest                   | 360                                 |
| 3              | NA            | NA                       | NA                                  |
+================+===============+==========================+=====================================+
";

const C310P: &str = "\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.1                                   Version: 25.2.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 0       310P3                 | OK              | NA           49                8728  / 8728          |
| 0       0                     | 0000:01:00.0    | 0            19435/ 21527                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 32      310P3                 | OK              | NA           49                0     / 0             |
| 0       1                     | 0000:02:00.0    | 0            1910 / 21527                            |
+===============================+=================+======================================================+
";

fn parsed(text: &str) -> NpuSmiInfo {
    parse_info(text).expect("a layout of the vendor")
}

fn refusal(text: &str) -> String {
    parse_info(text).expect_err("not the table").to_string()
}

#[test]
fn a2_device_index_is_card_id() {
    let info = parsed(A2);
    assert_eq!(info.version, "24.1.0");
    let first = NpuChip {
        npu: 1,
        chip: 0,
        physical_id: 1,
        logical_id: LogicalDeviceId(0),
        name: "910B3".to_owned(),
        health: "OK".to_owned(),
        power_w: Some(97.5),
        temperature_c: Some(41),
        aicore_percent: Some(12),
        memory_used_mb: Some(3379),
        memory_total_mb: Some(65536),
        bus_id: Some("0000:C1:00.0".to_owned()),
        host_id: None,
    };
    let second = NpuChip {
        npu: 2,
        physical_id: 2,
        logical_id: LogicalDeviceId(1),
        health: "Warning".to_owned(),
        power_w: Some(93.0),
        temperature_c: None,
        aicore_percent: Some(0),
        memory_used_mb: Some(59891),
        bus_id: Some("0000:C2:00.0".to_owned()),
        ..first.clone()
    };
    assert_eq!(info.chips, [first, second]);
    let process = |pid, name: &str, mb| NpuProcess {
        npu: 2,
        chip: Some(0),
        pid,
        container_pid: None,
        name: name.to_owned(),
        memory_mb: Some(mb),
    };
    assert_eq!(info.processes, [process(166_929, "", 56087), process(166_930, "/usr/local/pyth", 117)]);
    assert_eq!(info.processes_on(&info.chips[0]).count(), 0);
    assert_eq!(info.processes_on(&info.chips[1]).count(), 2);
}

#[test]
fn a3_device_index_is_phy_id_and_second_die_has_no_power() {
    let info = parsed(A3);
    let ids: Vec<_> =
        info.chips.iter().map(|chip| (chip.npu, chip.chip, chip.physical_id, chip.power_w)).collect();
    assert_eq!(ids, [(5, 0, 10, Some(163.6)), (5, 1, 11, None)]);
    let held: Vec<_> = info.processes_on(&info.chips[1]).map(|process| process.pid).collect();
    assert_eq!(held, [3_328_327]);
}

#[test]
fn npu_smi_wide_columns_and_container_pid_are_parsed() {
    let info = parsed(WIDE);
    assert_eq!(info.version, "26.0.rc2");
    assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(2871), Some(32768)));
    assert_eq!((info.processes[0].pid, info.processes[0].memory_mb), (485_946, Some(5175)));
    assert_eq!(info.processes[0].container_pid, Some(17));
    let host = parsed(&WIDE.replace("| 17                      |", "| NA                      |"));
    assert_eq!((host.processes[0].pid, host.processes[0].container_pid), (485_946, None));
}

#[test]
fn npu_smi_950_has_one_id_per_chip() {
    let info = parsed(ASCEND_950);
    let ids: Vec<_> = info.chips.iter().map(|chip| (chip.npu, chip.chip, chip.physical_id)).collect();
    assert_eq!(ids, [(0, 0, 0), (3, 0, 3)]);
    assert_eq!((info.chips[0].aicore_percent, info.chips[0].bus_id.as_deref()), (Some(7), None));
    assert_eq!((info.chips[1].health.as_str(), info.chips[1].memory_total_mb), ("Alarm", Some(131_072)));
    assert_eq!(info.processes.len(), 1, "a row of NA is a free card");
    assert_eq!((info.processes[0].npu, info.processes[0].chip), (0, None));
}

#[test]
fn npu_smi_310p_memory_is_memory_usage() {
    let info = parsed(C310P);
    let ids: Vec<_> = info.chips.iter().map(|chip| (chip.npu, chip.physical_id, chip.power_w)).collect();
    assert_eq!(ids, [(0, 0, None), (32, 1, None)]);
    assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(19435), Some(21527)));
    assert!(info.processes.is_empty());
}

#[test]
fn npu_smi_910a_memory_is_hbm_usage() {
    let info = parsed(&A2.replace("0    / 0          3379 / 65536", "1197 / 13553      4    / 32768"));
    assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(4), Some(32768)));
}

#[test]
fn chips_of_one_card_without_index_are_numbered_by_position() {
    let info = parsed(&A2.replace("| 2     910B3", "| 1     910B3"));
    assert_eq!(info.chips.iter().map(|chip| chip.physical_id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(
        refusal(&A3.replace("| 1     11", "| 1     10")),
        "expected one chip for each device index, found index 10 at two chips"
    );
}

#[test]
fn npu_smi_column_offsets_are_ignored() {
    for table in [A2, A3, WIDE, ASCEND_950, C310P] {
        let squeezed: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(parse_info(&squeezed.join("\r\n")), parse_info(table));
    }
}

#[test]
fn npu_smi_errors_state_expected_content() {
    for empty in ["", " \n\n"] {
        assert!(refusal(empty).contains("found nothing"), "{}", refusal(empty));
    }
    let other = refusal("dcmi module initialize failed. ret is -8005\n");
    assert!(other.contains("found `dcmi module initialize failed. ret is -8005`"), "{other}");
    let titles: Vec<&str> = A2.lines().take(6).collect();
    assert_eq!(parse_info(&titles.join("\n")), Err(NpuSmiError::NoChips));
    let cut: Vec<&str> = A2.lines().take(7).collect();
    assert_eq!(
        refusal(&cut.join("\n")),
        "line 7: expected the chip's second line, found the end of the text"
    );
    assert_eq!(
        refusal(&A2.replace("97.5 ", "much ")),
        "line 7: expected a number for `Power(W)`, found `much`"
    );
    let short = refusal(&A2.replace("97.5 ", "     "));
    assert!(
        short.contains("one value for each of `Power(W)`, `Temp(C)`, `Hugepages-Usage(page)`"),
        "{short}"
    );
}

#[test]
fn lost_line_is_error_not_shifted_values() {
    for table in [A2, A3, WIDE, ASCEND_950, C310P] {
        let whole = parsed(table);
        let lines: Vec<&str> = table.lines().collect();
        for lost in 0..lines.len() {
            let text: Vec<&str> =
                lines.iter().enumerate().filter(|(index, _)| *index != lost).map(|(_, line)| *line).collect();
            if let Ok(info) = parse_info(&text.join("\n")) {
                assert_eq!(info.chips, whole.chips, "without `{}`", lines[lost]);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_handled(text in any::<String>(), cells in "(\\|[ a-z0-9/|()-]{0,40}\\|?\n){0,12}") {
        let _ = parse_info(&text);
        let _ = parse_info(&cells);
        let _ = parse_info(&format!("{A3}{cells}"));
    }

    #[test]
    fn any_damage_is_handled(
        table in prop::sample::select(vec![A2, A3, WIDE, ASCEND_950, C310P]),
        lost in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut lines: Vec<&str> = table.lines().collect();
        lines.remove(lost.index(lines.len()));
        let mut bytes = lines.join("\n").into_bytes();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = parse_info(&String::from_utf8_lossy(&bytes));
    }
}
